"""A sensitivity index: the intervals of values on which one use of an atom makes a trace depend.

A row is (key.., first, last, others..): the values of the atom's earlier columns, an interval of
its next column, and the other variables that were bound when the interval was recorded
(leapfrog-maintenance.md, 4.2). Rows live in a stored relation of their own: sorted runs, packed by
the domains of their columns, with an undo. A value that no code can be below or above stands for
an end that is missing. When a domain widens, codes change: the index is dropped, and the trace that
it belongs to is recorded again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import intervals
from tidelog.kernel.marks import ALIVE
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation, without
from tidelog.store.run import Words
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

Array = NDArray[np.int64]

HIGHEST = 2**63 - 1
LOWEST = -(2**63)
_SMALL = 512  # rows: runs up to this size are searched without a tree
_FEW = 64


class SensitivityIndex:
    """The intervals of one use of an atom, by the values of its earlier columns."""

    def __init__(
        self, name: str, key: Sequence[Domain], interval: Domain, others: Sequence[Domain]
    ) -> None:
        self.width = len(key)
        """The number of columns before the interval."""
        self._domain = interval
        self._relation = StoredRelation(name, (*key, interval, interval, *others))
        self._by_depth = self._relation.primary.layout.by_depth
        self._room: Words = np.empty((self._relation.words, _FEW), np.int64)

    def __len__(self) -> int:
        return len(self._relation)

    @property
    def stored(self) -> int:
        """The number of intervals, those included that runs still have to drop."""
        return self._relation.stored

    @property
    def nbytes(self) -> int:
        """The memory of the runs and their trees."""
        return self._relation.nbytes

    @property
    def fields(self) -> Array:
        """Word, shift and mask of each column (store/layout.py)."""
        return self._relation.primary.layout.by_column

    @property
    def words(self) -> int:
        """The number of words of a row."""
        return self._relation.words

    def load(self, rows: Words) -> None:
        """Take over the rows of a first recording, in any order and with repetitions."""
        self._relation.replace(_distinct(rows), None, None)

    def containing(self, keys: Array) -> Words:
        """Return the rows that were there before the epoch, for each key and value in a column.

        The last row of `keys` are values that the intervals contain.
        """
        runs = self._relation.primary.runs
        if not runs or not keys.shape[1]:
            return self._relation.no_rows()
        column = self.width + 1
        field = self.fields[column]
        trees = np.zeros((len(runs), 2), np.int64)
        for number, run in enumerate(runs):
            if run.size > _SMALL:
                nodes = run.tree(column, field, 0).nodes
                trees[number] = nodes.ctypes.data, nodes.shape[1] // 2
        descriptors = self._relation.primary.old_descriptors()
        while True:
            found = intervals.stab(
                descriptors, trees, ALIVE, self.words, self._by_depth, keys, keys.shape[1],
                self._room,
            )  # fmt: skip
            if found <= self._room.shape[1]:
                return _distinct(self._room[:, :found].copy())
            self._room = np.empty((self.words, 2 * found), np.int64)

    def codes(self, rows: Words) -> Array:
        """Return rows as columns of codes."""
        return self._relation.unpack(rows)

    def ends(self, first: Array, last: Array) -> tuple[Array, Array]:
        """Return the ends of intervals; those that are missing as the least and greatest number."""
        if self._domain.is_raw:
            return first, last
        return (
            np.where(first == 0, LOWEST, first), np.where(last == self._domain.mask, HIGHEST, last),
        )  # fmt: skip

    def rows(self) -> Array:
        """Return all rows as columns of codes, sorted, with their ends as `ends` has them."""
        codes = self.codes(self._relation.rows(Version.NEW))
        width = self.width
        codes[width], codes[width + 1] = self.ends(codes[width], codes[width + 1])
        return codes

    def change(self, removed: Words, added: Words) -> bool:
        """Remove rows and then add rows, in any order; return whether that changes anything."""
        added, removed = _distinct(added), _distinct(removed)
        if removed.shape[1] and added.shape[1]:
            removed = without(removed, added)
        _, removed = self._relation.split(removed)
        added, _ = self._relation.split(added)
        self._relation.change(added, removed)
        return bool(added.shape[1] or removed.shape[1])

    def commit(self) -> None:
        """Make what the epoch has changed the only version."""
        self._relation.commit()

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        self._relation.abort()

    def check(self) -> None:
        """Assert that the rows are sound."""
        self._relation.check()


def _distinct(rows: Words) -> Words:
    """Return the rows sorted, each once. One word is sorted in place."""
    if rows.shape[1] < 2:
        return rows
    rows = sort_words(rows)
    fresh = np.ones(rows.shape[1], np.bool_)
    fresh[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    return rows if fresh.all() else np.ascontiguousarray(rows[:, fresh])
