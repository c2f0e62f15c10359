"""`setof`: the delta of a group is applied to its set.

This is the CReaM algorithm of Mohapatra and Genesereth ("Maintaining Materialized Aggregate
Views"). In their terms, with X the variables that are not aggregated and r the aggregated body:

    v(X, S)         :- S = setof(y, r(X, y)).

    v-(X, S)        :- D = setof(y, r+(X, y)), v(X, S).         the differential rules:
    v+(X, S u D)    :- D = setof(y, r+(X, y)), v(X, S).         r is not read, only its change

and so with r- and the difference of sets. A new group begins with the empty set, and an empty set
has no row. If the head of the rule does not have all of X, two groups may have equal sets, and it
is not clear which of them a change means. CReaM then maintains an *auxiliary view* with all of X,
and counts its rows into the visible one. Lowering (plan/aggregates.py) always does so: the result
relation of an aggregate has all of X and is maintained here, and the rule around the aggregate is a
rule like any other, whose rows are counted (maintain/counting.py). A visible row is deleted with
the last group that derives it.

A body may derive a value of a group more than once. So r is a relation of (X, y) with counts; only
the first and the last derivation are a change. Lowering makes it if the body is not such a relation
by itself.

A set is a dictionary id (store/sets.py), so the result row is all that is stored for a group, and
each changed row costs O(log n) for a set of n elements.
"""

from __future__ import annotations

import numpy as np

from tidelog.maintain.aggregate import Array
from tidelog.maintain.group_wise import FromRows
from tidelog.maintain.grouped import ChangedGroups, changed_groups
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.run import Words
from tidelog.store.sets import EMPTY
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version


class Sets(FromRows):
    """Maintains the sets of the values of the groups of a relation."""

    name = "sets"
    why = "the change is applied to the set of its group"
    algebra = "set"
    reads_source = False
    state = "one set a group, a tree that shares its nodes with other sets"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is a set of values."""
        return aggregation.op == "setof"

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        assert aggregation.target is not None
        self._target = aggregation.target
        self._dictionary = catalog.codec.sets(aggregation.result_type)

    def bootstrap(self) -> None:
        """Build the set of every group."""
        rows = self._source.rows(Version.NEW)
        change = changed_groups(self._source, self._aggregation, rows, self._source.no_rows())
        none = np.empty(0, np.int64)
        _, sets = self._changed_sets(change, none, none)
        result = self._set_rows(change.groups, sets)
        self._result.replace(result, None, np.ones(result.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Build the order of the result that updates read."""
        self._held.prepare()

    def update(self) -> Deltas:
        """Apply the delta of the source to the sets of its groups."""
        delta = self._source.delta
        self.choice = UPDATE if delta else NOTHING
        if not delta:
            return {}
        change = changed_groups(self._source, self._aggregation, delta.inserted, delta.deleted)
        numbers, held = self._held.read(change.groups, Version.NEW)
        before, after = self._changed_sets(change, numbers, held[-1])
        differs = before != after
        deleted = self._set_rows(change.groups[:, differs], before[differs])
        inserted = self._set_rows(change.groups[:, differs], after[differs])
        return {self._result.name: self._result.change(inserted, deleted)}

    # --- sets ---

    def _changed_sets(
        self, change: ChangedGroups, numbers: Array, held: Array
    ) -> tuple[Array, Array]:
        """Return the sets of the groups before and after; `held` are those of some of them."""
        before = np.full(change.groups.shape[1], EMPTY, np.int64)
        before[numbers] = held
        after = self._dictionary.changed(before, change.which, change.values, change.inserted)
        return before, after

    def _set_rows(self, groups: Array, sets: Array) -> Words:
        """Return the result's rows of groups, sorted; an empty set has none."""
        kept = sets != EMPTY
        groups, sets = groups[:, kept], sets[kept]
        domain = self._result.domains[-1]
        domain.require(sets)
        codes = np.empty((len(groups) + 1, len(sets)), np.int64)
        codes[:-1] = groups
        codes[-1] = sets - domain.bias
        return sort_words(self._result.pack(codes))

    def _value(self, rows: Array) -> int:
        """Return the id of the set of a group's rows, for `check`."""
        return self._dictionary.number(rows[self._target].tolist())
