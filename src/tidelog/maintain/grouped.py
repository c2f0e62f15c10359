"""The delta of an aggregate's source, group by group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.plan.lowered import Aggregation
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.sorting import sorted_order

Array = NDArray[np.int64]


@dataclass(frozen=True)
class ChangedGroups:
    """The groups that change, and their inserted and deleted values, sorted by group and value."""

    groups: Array
    """The groups as codes of the source."""
    which: Array
    """For each value the number of its group."""
    values: Array
    """The values as ordinals."""
    inserted: NDArray[np.bool_]
    """Which values are inserted; the others are deleted."""

    def parts(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield for each group the inserted and the deleted values."""
        ends = np.cumsum(np.bincount(self.which, minlength=self.groups.shape[1])).tolist()
        start = 0
        for end in ends:
            values, inserted = self.values[start:end], self.inserted[start:end]
            yield values[inserted].tolist(), values[~inserted].tolist()
            start = end


def changed_groups(
    source: StoredRelation, aggregation: Aggregation, inserted: Words, deleted: Words
) -> ChangedGroups:
    """Return the delta of a source by group."""
    assert aggregation.target is not None
    codes = source.unpack(np.concatenate([inserted, deleted], axis=1))
    order = _sorted_by(source, (*aggregation.group, aggregation.target), codes)
    codes = codes[:, order]
    group = codes[list(aggregation.group)]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (group[:, 1:] != group[:, :-1]).any(axis=0)
    values = codes[aggregation.target] + source.domains[aggregation.target].bias
    first = np.ascontiguousarray(group[:, starts])
    return ChangedGroups(first, np.cumsum(starts) - 1, values, order < inserted.shape[1])


def _sorted_by(source: StoredRelation, first: tuple[int, ...], codes: Array) -> Array:
    """Return the permutation that sorts rows by these columns, then by the others."""
    n = codes.shape[1]
    if n < 2:
        return np.arange(n)
    columns = tuple(dict.fromkeys((*first, *range(len(source.domains)))))
    layout = Layout(columns, source.domains)
    words = np.empty((layout.words, n), np.int64)
    kernel.pack(codes, n, layout.by_column, words)
    return sorted_order(words)
