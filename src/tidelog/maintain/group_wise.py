"""Aggregates whose results are found group by group.

A change of the source names the groups that it touches. Each of them gets its result anew, from
whatever a subclass has to find it quickly: `GroupWise` compares it with the one that is held.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Aggregate, Array
from tidelog.maintain.calls import Calls
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.group_lookup import GroupLookup
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.lowered import Aggregation
from tidelog.store.relation import without
from tidelog.store.versions import Version


class GroupWise(Aggregate):
    """Keeps results that can be computed for given groups."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        width = len(aggregation.group)
        self._held = GroupLookup(catalog, aggregation.result, tuple(range(width)))
        self._unvalued: list[Array] | None = None
        """The groups that have been found without a value; None: there must not be any."""
        if aggregation.algebra is not None:
            types = catalog.types(aggregation.source)
            self._calls = Calls(aggregation, types, catalog.codec)

    def bootstrap(self) -> None:
        """Aggregate every group."""
        codes = self._source.unpack(self._source.rows(Version.NEW))
        groups = self._distinct_groups(codes)
        with self._noting_failures(groups, first=True):
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
        with self._noting_failures(groups):
            after = self._catalog.pack(self._aggregation.result, self._compute(groups))
        _, held = self._held.read(groups, Version.NEW)
        before = self._catalog.pack(self._aggregation.result, held)
        inserted, deleted = without(after, before), without(before, after)
        self._result.change(inserted, deleted)

    def check(self) -> None:
        """Assert that the result is that of the source."""
        groups = self._distinct_groups(self._source.unpack(self._source.rows(Version.NEW)))
        with self._noting() as unvalued:
            rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        if self._failed is not None:
            after = self._catalog.pack(self._failed.name, self._failed_ordinals(unvalued))
            assert np.array_equal(after, self._failed.rows()), "other groups have no value"
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    @abstractmethod
    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""

    def _touched_groups(self) -> Array:
        """Return the groups to aggregate again: what the source's change touches."""
        delta = self._source.delta
        changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        return self._distinct_groups(self._source.unpack(changed))

    # --- groups without a value ---

    @contextmanager
    def _noting_failures(self, groups: Array, *, first: bool = False) -> Iterator[None]:
        """Note which of the groups, all that are computed in here, have no value."""
        with self._noting() as unvalued:
            yield
        if self._failed is None:
            return
        after = self._failed_ordinals(unvalued)
        if first:
            self._keep_failed(after, after[:, :0], first=True)
        elif after.shape[1] or self._failed.stored:
            all_of_them = self._catalog.pack(self._failed.name, self._failed_ordinals(groups.T))
            _, held = self._failed.split(all_of_them)
            before = self._failed.ordinals(held)
            self._keep_failed(_lacking(after, before), _lacking(before, after))

    @contextmanager
    def _noting(self) -> Iterator[list[Array]]:
        """Have failures noted in the list that is given; where nothing excuses them, raised."""
        unvalued: list[Array] = []
        self._unvalued = None if self._failed is None else unvalued
        try:
            yield unvalued
        finally:
            self._unvalued = None

    def _fail(self, group: Array, error: EvaluationError) -> None:
        """Note that a group has no value, given by codes of the source, or raise the error."""
        if self._unvalued is None:
            raise error
        self._unvalued.append(group)

    def _failed_ordinals(self, groups: Iterable[Array]) -> Array:
        """Return groups, given by codes of the source, as rows of the relation of failed ones."""
        columns = list(self._aggregation.group)
        codes = np.array([*groups], np.int64)
        if not columns:
            return np.zeros((1, len(codes)), np.int64)
        return codes.reshape(-1, len(columns)).T + self._source.biases[columns]

    def failure(self, row: Array) -> EvaluationError:
        """Return the error that a group has no value."""
        columns = list(self._aggregation.group)
        try:
            self._compute(row[: len(columns), None] - self._source.biases[columns])
        except EvaluationError as error:
            return error
        raise AssertionError("the group has a value")

    def _distinct_groups(self, codes: Array) -> Array:
        group = codes[list(self._aggregation.group)]
        if not len(group):
            return np.empty((0, min(1, codes.shape[1])), np.int64)
        return group if group.shape[1] == 1 else np.unique(group, axis=1)


def _lacking(rows: Array, others: Array) -> Array:
    """Return the rows, as columns, that are not among others."""
    held = set(map(tuple, others.T.tolist()))
    return rows[:, [tuple(row) not in held for row in rows.T.tolist()]]


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
            except EvaluationError as error:
                self._fail(groups[:, number[start]], error)
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
