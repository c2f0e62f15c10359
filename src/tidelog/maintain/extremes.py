"""`min` and `max`: the first or last row of a group, in the order of its values.

The source has an order that begins with the columns of the group, then the aggregated one. So the
extreme of a group is found by a search, whatever was deleted, and however large the group is.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import descriptors as d
from tidelog.kernel import rows as kernel
from tidelog.maintain.aggregate import Array
from tidelog.maintain.epoch_program import EpochProgram, ExtremeLookup
from tidelog.maintain.group_wise import GroupWise
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.domain import Domain
from tidelog.store.versions import Version

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Extremes(GroupWise):
    """Maintains the smallest or largest value of the groups of a relation."""

    name = "extremes"
    why = "the first or last row of each group that changes is looked up"
    algebra = "semigroup"
    state = "the rows of the source by group and value"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is an extreme of values whose ordinals are in their order."""
        type_ = aggregation.target_type
        return (
            aggregation.op in ("min", "max") and type_ is not None and type_.kind not in UNORDERED
        )

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        assert aggregation.target is not None
        self._target = aggregation.target
        first = (*aggregation.group, aggregation.target)
        if aggregation.target in aggregation.group:
            first = aggregation.group
        rest = (c for c in range(len(self._source.domains)) if c not in first)
        self._order = (*first, *rest)

    def prepare(self) -> None:
        """Build the orders that updates read."""
        self._source.index(self._order).descriptors()
        self._held.prepare()

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step that looks up the groups of changed rows."""
        aggregation = self._aggregation
        if self._failed is not None or not self._catalog.is_stored(aggregation.source):
            return False
        lookup = ExtremeLookup(
            self._order, aggregation.group, self._target, aggregation.op == "max"
        )
        program.look_up(self._source, self._result, lookup)
        return True

    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""
        index = self._source.index(self._order)
        layout, n = index.layout, groups.shape[1]
        bounds = []
        for bound in (_lowest, _highest):
            codes = np.empty((len(self._source.domains), n), np.int64)
            for column, domain in enumerate(self._source.domains):
                codes[column] = bound(domain)
            for row, column in enumerate(self._aggregation.group):
                codes[column] = groups[row]
            words = np.empty((layout.words, n), np.int64)
            kernel.pack(codes, n, layout.by_column, words)
            bounds.append(words)
        values, found = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        word, shift, mask = (int(part) for part in layout.by_column[self._target])
        d.extremes(
            index.descriptors(), layout.words, bounds[0], bounds[1], n,
            self._aggregation.op == "max", Version.NEW.limit, word, shift, mask, values, found,
        )  # fmt: skip
        ordinals = values[found] + self._source.domains[self._target].bias
        self._result.domains[-1].require(ordinals)
        present = groups[:, found].copy()
        for row, column in enumerate(self._aggregation.group):
            present[row] += self._source.domains[column].bias
        return np.vstack([present, ordinals[None, :]])


def _lowest(domain: Domain) -> int:
    return _LEAST if domain.is_raw else 0


def _highest(domain: Domain) -> int:
    return _MOST if domain.is_raw else domain.mask
