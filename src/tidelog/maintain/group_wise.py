"""Aggregates whose results are found group by group.

A change of the source names the groups that it touches. Each of them gets its result anew, from
whatever a subclass has to find it quickly: `GroupWise` compares it with the one that is held.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Aggregate, Array
from tidelog.maintain.calls import Calls
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.group_lookup import GroupLookup
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.lowered import Aggregation
from tidelog.store.relation import Version, without


class GroupWise(Aggregate):
    """Keeps results that can be computed for given groups."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        width = len(aggregation.group)
        self._held = GroupLookup(catalog, aggregation.result, tuple(range(width)))
        if aggregation.algebra is not None:
            types = catalog.types(aggregation.source)
            self._calls = Calls(aggregation, types, catalog.codec)

    def bootstrap(self) -> None:
        """Aggregate every group."""
        codes = self._source.unpack(self._source.rows(Version.NEW))
        groups = self._distinct_groups(codes)
        rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        self._result.replace(rows, None, np.ones(rows.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Make ready for small updates."""
        self._held.prepare()

    def update(self) -> None:
        """Aggregate the groups that the source's change touches again."""
        groups = self._touched_groups()
        self.choice = UPDATE if groups.shape[1] else NOTHING
        if not groups.shape[1]:
            return
        after = self._catalog.pack(self._aggregation.result, self._compute(groups))
        _, held = self._held.read(groups, Version.NEW)
        before = self._catalog.pack(self._aggregation.result, held)
        inserted, deleted = without(after, before), without(before, after)
        self._result.change(inserted, deleted)

    def check(self) -> None:
        """Assert that the result is that of the source."""
        groups = self._distinct_groups(self._source.unpack(self._source.rows(Version.NEW)))
        rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    @abstractmethod
    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""

    def _touched_groups(self) -> Array:
        """Return the groups to aggregate again: what the source's change touches.

        And those that are asked for from now on: a sum that overflows has had no value so far.
        """
        delta = self._source.delta
        changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        groups = self._distinct_groups(self._source.unpack(changed))
        if self._wanted is not None and self._wanted.delta.inserted.shape[1]:
            asked = self._source_codes(self._wanted.ordinals(self._wanted.delta.inserted))
            if not len(asked):
                asked = asked[:, :1]
            groups = np.concatenate([groups, asked], axis=1)
            groups = np.unique(groups, axis=1) if len(groups) else groups[:, :1]
        return groups

    def _source_codes(self, ordinals: Array) -> Array:
        """Return groups given by ordinals as codes of the source, without those that it lacks."""
        columns = self._aggregation.group
        if not columns:
            return np.empty((0, ordinals.shape[1]), np.int64)
        domains = [self._source.domains[column] for column in columns]
        fits = np.ones(ordinals.shape[1], np.bool_)
        for row, domain in zip(ordinals, domains, strict=True):
            if not domain.is_raw:
                fits &= (row >= domain.bias) & (row - domain.bias <= domain.mask)
        biases = np.array([domain.bias for domain in domains], np.int64)
        return ordinals[:, fits] - biases[:, None]

    def _is_wanted(self, group: Array) -> bool:
        """Return whether a group, given by codes of the source, is asked for."""
        if self._wanted is None:
            return True
        if not len(group):
            return len(self._wanted) > 0
        columns = self._aggregation.group
        ordinals = [
            int(code) + self._source.domains[column].bias
            for code, column in zip(group, columns, strict=True)
        ]
        codes = []
        for ordinal, domain in zip(ordinals, self._wanted.domains, strict=True):
            if not domain.covers(ordinal, ordinal):
                return False
            codes.append(ordinal - domain.bias)
        row = self._wanted.pack(np.array(codes, np.int64)[:, None])
        return bool(self._wanted.find(row).present[0])

    def _distinct_groups(self, codes: Array) -> Array:
        group = codes[list(self._aggregation.group)]
        if not len(group):
            return np.empty((0, min(1, codes.shape[1])), np.int64)
        return group if group.shape[1] == 1 else np.unique(group, axis=1)


class FromRows(GroupWise):
    """Can compute the result of a group from its rows."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        self._rows_of = GroupLookup(catalog, aggregation.source, aggregation.group)

    def prepare(self) -> None:
        """Make ready for small updates."""
        super().prepare()
        self._rows_of.prepare()

    @abstractmethod
    def _value(self, rows: Array) -> int:
        """Return the ordinal of the aggregate of a group's rows; there is at least one."""

    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""
        number, columns = self._rows_of.read(groups, Version.NEW)
        if not len(number):
            return np.empty((len(groups) + 1, 0), np.int64)
        order = np.argsort(number, kind="stable")
        number, columns = number[order], columns[:, order]
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        stops = np.append(starts[1:], len(number))
        aggregation = self._aggregation
        values = []
        kept = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            part = columns[:, start:stop]
            try:
                values.append(self._value(part))
                kept.append(start)
            except EvaluationError:
                # In a group that nobody asks for it is no error.
                if self._is_wanted(groups[:, number[start]]):
                    raise
        present = groups[:, number[kept]].copy()
        for row, column in enumerate(aggregation.group):
            present[row] += self._source.domains[column].bias
        result = np.vstack([present, np.array(values, np.int64).reshape(1, -1)])
        if result.shape[1]:
            domain = self._result.domains[-1]
            for extreme in (int(result[-1].min()), int(result[-1].max())):
                if not domain.covers(extreme, extreme):
                    raise DomainOverflow(domain, extreme)
        return result
