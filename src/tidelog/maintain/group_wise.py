"""Aggregates whose results are computed group by group.

The delta of the source tells which groups change. A subclass computes their results again, and
`GroupWise` compares them with the stored ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.join.group_lookup import GroupLookup
from tidelog.maintain.aggregate import Aggregate, Array
from tidelog.maintain.calls import Calls
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.relation import without
from tidelog.store.versions import Delta, Version


class GroupWise(Aggregate):
    """Maintains results that can be computed for given groups."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        width = len(aggregation.group)
        self._held = GroupLookup(catalog, aggregation.result, tuple(range(width)))
        self._unvalued: list[Array] | None = None
        """The groups without a value that were found; None: such a group is an error."""
        if aggregation.algebra is not None:
            types = catalog.types(aggregation.source)
            self._calls = Calls(aggregation, types, catalog.codec)

    def bootstrap(self) -> None:
        """Aggregate every group."""
        groups = self._all_groups()
        with self._noting() as unvalued:
            rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        if self._failed is not None:
            self._replace_failed(self._failed_ordinals(unvalued))
        self._result.replace(rows, None, np.ones(rows.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Build the orders that updates read."""
        self._held.prepare()

    def update(self) -> Deltas:
        """Aggregate the groups again that the delta of the source touches."""
        groups = self._touched_groups()
        self.choice = UPDATE if groups.shape[1] else NOTHING
        if not groups.shape[1]:
            return {}
        with self._noting() as unvalued:
            after = self._catalog.pack(self._aggregation.result, self._compute(groups))
        _, held = self._held.read(groups, Version.NEW)
        before = self._catalog.pack(self._aggregation.result, held)
        change = self._result.change(without(after, before), without(before, after))
        return self._with_failures(change, groups, unvalued)

    def check(self) -> None:
        """Assert that the result is that of the source."""
        groups = self._all_groups()
        with self._noting() as unvalued:
            rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        if self._failed is not None:
            after = self._catalog.pack(self._failed.name, self._failed_ordinals(unvalued))
            assert np.array_equal(after, self._failed.rows()), "other groups have no value"
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    @abstractmethod
    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""

    def _all_groups(self) -> Array:
        """Return every group."""
        return self._distinct_groups(self._source.unpack(self._source.rows(Version.NEW)))

    def _touched_groups(self) -> Array:
        """Return the groups that the delta of the source touches."""
        delta = self._source.delta
        changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        return self._distinct_groups(self._source.unpack(changed))

    # --- groups without a value ---

    def _with_failures(self, change: Delta, groups: Array, unvalued: list[Array]) -> Deltas:
        """Return the deltas of an update that has computed these groups, some without a value."""
        deltas = {self._result.name: change}
        failed = self._failed
        if failed is not None and (unvalued or failed.stored):
            after = self._failed_ordinals(unvalued)
            all_of_them = self._catalog.pack(failed.name, self._failed_ordinals(groups.T))
            _, held = failed.split(all_of_them)
            before = failed.ordinals(held)
            deltas[failed.name] = self._change_failed(
                _not_among(after, before), _not_among(before, after)
            )
        return deltas

    @contextmanager
    def _noting(self) -> Iterator[list[Array]]:
        """Yield a list that gets the groups without a value; raise them if they are errors."""
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
        """Return the error of a group without a value."""
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


def _not_among(rows: Array, others: Array) -> Array:
    """Return the rows, as columns, that are not among others."""
    held = set(map(tuple, others.T.tolist()))
    return rows[:, [tuple(row) not in held for row in rows.T.tolist()]]


class FromRows(GroupWise):
    """Can compute the result of a group from its rows."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        self._rows_of = GroupLookup(catalog, aggregation.source, aggregation.group)

    def prepare(self) -> None:
        """Build the orders that updates read."""
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
        self._result.domains[-1].require(result[-1])
        return result
