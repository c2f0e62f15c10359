"""Aggregates that are registered from Python, by their algebra.

- An Abelian *group*: inserted values are added to the sum of a group, deleted ones subtracted. As
  with sums of numbers (maintain/sums.py), a result row's count is its *support*, the number of rows
  of its group, and a group without support has no row.
- A *function of sets*: the sets are a relation of their own, maintained as `setof` is
  (maintain/sets.py); the function is called on each set that changes.

Semigroups are maintained by scan trees (maintain/scans.py). The functions are called for each group
that changes, and for sums once for each changed row.

A function may fail in a group, and something may excuse the failure (plan/failure_rules.py). Such a
group has no result row. When it changes, it is added up again from all its rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Array
from tidelog.maintain.group_wise import FromRows
from tidelog.maintain.grouped import ChangedGroups, changed_groups
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas
from tidelog.plan.lowered import Aggregation
from tidelog.store.run import Words
from tidelog.store.sorting import sort_words, sorted_order
from tidelog.store.versions import Delta, FoundRows, Version
from tidelog.values.algebra import Group, SetFunction


class Registered(FromRows):
    """A base class of aggregates that call Python functions."""

    def _value(self, rows: Array) -> int:
        """Return the aggregate of a group's rows; a function of sets has one row, the set."""
        aggregation = self._aggregation
        assert aggregation.target is not None
        group = rows[list(aggregation.group), 0].tolist()
        return self._calls.result(rows[aggregation.target].tolist(), group)


class SetFunctions(Registered):
    """Maintains a function of the set of each group."""

    name = "set function"
    why = "the function is called on each set that changes"
    algebra = "function of a set"
    state = "the sets are a relation of their own, and one result a group"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is a function of sets."""
        return isinstance(aggregation.algebra, SetFunction)


class GroupSums(Registered):
    """Maintains sums in an Abelian group that is given by Python functions."""

    name = "group sums"
    why = "the change is added to the sums of its groups, by the functions given"
    algebra = "Abelian group"
    state = "one sum and support count a group"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is a sum in a group."""
        return isinstance(aggregation.algebra, Group)

    def bootstrap(self) -> None:
        """Add up every group."""
        rows = self._source.rows(Version.NEW)
        change = changed_groups(self._source, self._aggregation, rows, self._source.no_rows())
        with self._noting() as unvalued:
            words, support = self._from_values(change)
        if self._failed is not None:
            self._replace_failed(self._failed_ordinals(unvalued))
        order = sorted_order(words)
        result = np.ascontiguousarray(words[:, order])
        self._result.replace(result, None, support[order])
        self.choice = BOOTSTRAP

    def update(self) -> Deltas:
        """Add the change of the source to its groups."""
        groups = self._touched_groups()
        self.choice = UPDATE if groups.shape[1] else NOTHING
        if not groups.shape[1]:
            return {}
        delta = self._source.delta
        change = changed_groups(self._source, self._aggregation, delta.inserted, delta.deleted)
        numbers, held = self._held.read(change.groups, Version.NEW)
        before = self._result.pack_ordinals(held)
        found = self._result.find(before)
        with self._noting() as unvalued:
            after, support, kept = self._added(change, numbers, held[-1], found.counts)
            fresh, fresh_support = self._from_values(self._all_of(self._without_row(groups)))
        same = kept & (after == before).all(axis=0)
        self._result.set_counts(FoundRows(found.columns[:, same].copy()), support[same])
        moved = kept & ~same
        inserted = np.concatenate([after[:, moved], fresh], axis=1)
        supports = np.concatenate([support[moved], fresh_support])
        order = sorted_order(inserted)
        inserted = np.ascontiguousarray(inserted[:, order])
        deleted = sort_words(np.ascontiguousarray(before[:, ~same]))
        relation = self._result
        relation.remove(deleted)
        relation.add(inserted, None, supports[order])
        return self._with_failures(Delta(inserted, deleted), groups, unvalued)

    # --- adding up ---

    def _added(
        self, change: ChangedGroups, numbers: Array, held: Array, support: Array
    ) -> tuple[Words, Array, NDArray[np.bool_]]:
        """Return the changed rows of groups, their support, and which groups still have a row."""
        parts = list(change.parts())
        values = held.copy()
        support = support.copy()
        for i, number in enumerate(numbers.tolist()):
            inserted, deleted = parts[number]
            support[i] += len(inserted) - len(deleted)
            if not support[i]:
                continue
            group = change.groups[:, number]
            try:
                ordinals = self._group_ordinals(group)
                values[i] = self._calls.changed(int(held[i]), inserted, deleted, ordinals)
            except EvaluationError as error:
                self._fail(group, error)
                support[i] = 0
        kept = support > 0
        self._result.domains[-1].require(values[kept])
        values[~kept] = self._result.domains[-1].bias
        return self._packed(change.groups[:, numbers], values), support, kept

    def _from_values(self, change: ChangedGroups) -> tuple[Words, Array]:
        """Return the rows of groups whose values are all inserted, and their support."""
        values, support, kept = [], [], []
        for number, (inserted, _) in enumerate(change.parts()):
            group = change.groups[:, number]
            try:
                values.append(self._calls.result(inserted, self._group_ordinals(group)))
            except EvaluationError as error:
                self._fail(group, error)
                continue
            support.append(len(inserted))
            kept.append(number)
        ordinals = np.array(values, np.int64)
        self._result.domains[-1].require(ordinals)
        groups = change.groups[:, np.array(kept, np.int64)]
        return self._packed(groups, ordinals), np.array(support, np.int64)

    def _all_of(self, groups: Array) -> ChangedGroups:
        """Return all values of groups as a change."""
        _, columns = self._rows_of.read(groups, Version.NEW)
        rows = self._source.pack_ordinals(np.ascontiguousarray(columns))
        return changed_groups(self._source, self._aggregation, rows, self._source.no_rows())

    def _without_row(self, groups: Array) -> Array:
        numbers, _ = self._held.read(groups, Version.NEW)
        unknown = np.ones(groups.shape[1], np.bool_)
        unknown[numbers] = False
        return np.ascontiguousarray(groups[:, unknown])

    # --- rows ---

    def _group_ordinals(self, group: Array) -> list[int]:
        columns = self._aggregation.group
        biases = (self._source.domains[column].bias for column in columns)
        return [code + bias for code, bias in zip(group.tolist(), biases, strict=True)]

    def _packed(self, groups: Array, ordinals: Array) -> Words:
        codes = np.vstack([groups, ordinals[None, :] - self._result.domains[-1].bias])
        return self._result.pack(np.ascontiguousarray(codes))
