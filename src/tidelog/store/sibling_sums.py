"""Several aggregates of the same rows by the same groups: counts, sums and means.

There is one sum for each column that is added up (store/accumulators.py). It includes the number of
rows, and the sum and the mean of a column come from the same sum. All sums get the same rows in the
same order, so they number the groups of an epoch alike, and the results of a group are put together
by its number (kernel/siblings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import epoch_layout as e
from tidelog.kernel import exact
from tidelog.kernel import siblings as kernel
from tidelog.store.accumulators import Accumulators, Operation, Sum

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class SummedColumn:
    """The results that come from the sum of one column."""

    sums: Accumulators
    target: int | None
    operations: Array
    """What is computed, in the order of `places`."""
    kept: int
    """Which of them the sums store."""
    places: Array
    """Where they are among all results."""

    @classmethod
    def single(cls, sums: Accumulators, target: int | None, operation: Operation) -> SummedColumn:
        """Return a sum with one result, the only one."""
        return cls(sums, target, operation.numbers.reshape(1, -1), 0, np.zeros(1, np.int64))

    def describe(self, row: Array, key: Array) -> bool:
        """Describe the sums of groups with a key to short epochs; return False if they cannot be.

        `row` is described in kernel/epoch_layout.py. The arrays stay where they are until somebody
        else changes the sums.
        """
        if not self.sums.describe(row):
            return False
        row[e.KEY], row[e.KEY_COUNT] = key.ctypes.data, len(key)
        row[e.TARGET] = -1 if self.target is None else self.target
        row[e.OPERATIONS], row[e.RESULT_COUNT] = self.operations.ctypes.data, len(self.places)
        row[e.RESULT_PLACES], row[e.KEPT] = self.places.ctypes.data, self.kept
        return True


class SiblingSums:
    """Groups with the sums of some columns, and several results."""

    def __init__(self, key: int, parts: Sequence[tuple[Operation, int | None]]) -> None:
        """Make sums for groups with a key of `key` columns; parts are (operation, column)."""
        self._key, self._parts = key, len(parts)
        targets = [target for _, target in parts]
        columns: list[int | None] = [t for t in dict.fromkeys(targets) if t is not None]
        columns = columns or [None]  # nothing but counts
        # Every sum counts the rows of its groups: the first one serves.
        whose = [columns[0] if target is None else target for target in targets]
        self.columns = [
            _results_of(key, column, {i: parts[i][0] for i, t in enumerate(whose) if t == column})
            for column in columns
        ]
        """The columns that are added up."""
        self.each = [results.sums for results in self.columns]
        """One for each column that is added up."""
        self.of_parts = [self.each[columns.index(column)] for column in whose]
        """For each part the sums that it is computed from."""
        self._limited = [i for i, (operation, _) in enumerate(parts) if operation.may_overflow]
        """The parts that can overflow."""
        self._limbs = np.zeros(exact.SIZE, np.int64)
        self._scratch = self._scratch_for(1)

    def clear(self) -> None:
        """Forget all groups."""
        for sums in self.each:
            sums.clear()

    @property
    def is_kept(self) -> bool:
        """Whether the groups are in files, and have not been read yet."""
        return all(sums.is_kept for sums in self.each)

    def add(
        self,
        columns: Array,
        key: Array,
        added: int,
        partials: Callable[[int | None], Array] | None = None,
    ) -> tuple[Array, Array]:
        """Add the first `added` of the rows to their groups, and subtract the others.

        If there are `partials`, a function of the column to add up, each row stands for many.

        Returns the result rows to delete and those to insert: columns of ordinals, the key and the
        results. A row changes when one of its results does. A group has a result row if it has rows
        and none of its sums overflows its type.
        """
        for results in self.columns:
            if partials is None:
                results.sums.add(columns, key, results.target, added)
            else:
                results.sums.add(columns, key, None, added, partials(results.target))
        heads, _, undo = self.each[0].touched()
        groups = len(undo)
        scratch = self._scratch if groups == 1 else self._scratch_for(groups)
        self._write_results(scratch)
        deleted = np.empty((self._key + self._parts, groups), np.int64)
        inserted = np.empty((self._key + self._parts, groups), np.int64)
        deletes, inserts = kernel.changed_rows(heads, undo, *scratch, deleted, inserted)
        return deleted[:, :deletes], inserted[:, :inserts]

    def _write_results(self, scratch: tuple[Array, Array, Flags, Flags]) -> None:
        for results in self.columns:
            kernel.write_results(
                *results.sums.touched(), results.operations, results.kept, results.places,
                results is self.columns[0], self._limbs, *scratch,
            )  # fmt: skip

    def failed(self) -> tuple[Array, Array]:
        """Return rows of the groups in which a sum overflows: those to delete and to insert.

        Only groups of this epoch, as columns: the key, the results (0 where there is none), and for
        each part that can overflow whether it does.
        """
        heads, _, undo = self.each[0].touched()
        before, after, _, _ = scratch = self._scratch_for(len(undo))
        self._write_results(scratch)
        overflows = [self.of_parts[part].overflows() for part in self._limited]
        had, has = (np.array(flags, np.int64) for flags in zip(*overflows, strict=True))
        before[self._limited] *= 1 - had
        after[self._limited] *= 1 - has
        before, after = np.concatenate([before, had]), np.concatenate([after, has])
        deleted = np.empty((self._key + len(before), len(undo)), np.int64)
        inserted = np.empty_like(deleted)
        deletes, inserts = kernel.changed_rows(
            heads, undo, before, after, had.any(axis=0), has.any(axis=0), deleted, inserted
        )
        return deleted[:, :deletes], inserted[:, :inserts]

    def _scratch_for(self, groups: int) -> tuple[Array, Array, Flags, Flags]:
        """Return room for the results before and after an epoch, and for which groups have any."""
        return (
            np.empty((self._parts, groups), np.int64), np.empty((self._parts, groups), np.int64),
            np.empty(groups, np.bool_), np.empty(groups, np.bool_),
        )  # fmt: skip

    def commit(self) -> None:
        """Keep what the epoch has added."""
        for sums in self.each:
            sums.commit()

    # --- for debugging and tests ---

    def contents(self) -> list[dict[tuple[int, ...], Sum]]:
        """Return the sums of all groups, for each column that is added up."""
        return [sums.contents() for sums in self.each]

    def check(self) -> None:
        """Assert that all have the same groups. Between epochs only."""
        for sums in self.each:
            sums.check()
        first, *others = (
            {key: found.support for key, found in contents.items()} for contents in self.contents()
        )
        assert all(other == first for other in others), "sums of other groups"
        assert not self._limbs.any(), "limbs are left over"


def _results_of(key: int, target: int | None, parts: Mapping[int, Operation]) -> SummedColumn:
    """Make the sums of a column, and what is computed from them; parts by their places."""
    operations = list(parts.values())
    # Overflows must be known; and an operation that only counts rows stores no sum.
    kept = max(
        range(len(operations)),
        key=lambda i: (operations[i].may_overflow, not operations[i].is_count),
    )
    return SummedColumn(
        Accumulators(key, operations[kept]),
        target,
        np.array([operation.numbers for operation in operations]),
        kept,
        np.array(list(parts), np.int64),
    )
