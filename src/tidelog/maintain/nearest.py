"""The nearest partner: `min` and `max` over an inequality join, without its pairs.

    priced(i, t, p) :- sale(i, t), p = max u : { price(i, u), u <= t }.

The value of a group (i, t) is the last price at or before t: a search in the order (i, u). So a
group costs O(log n), however many prices there are before it.

A changed price u matters only up to the next one: behind that, another price is nearer. These sales
are found by bounds (plan/bounds.py),

    touched(i, t) :- moved(i, u, next), sale(i, t), u <= t, next > t.
    touched(i, t) :- last(i, u), sale(i, t), u <= t.

where `next` is the first price behind u that was or is there, and `last` has those without one. If
several prices change, each is responsible for the sales up to the next. All touched groups are
computed again.
"""

from __future__ import annotations

import numpy as np

from tidelog.join.gather import distinct
from tidelog.join.joins import AtomReading, reading
from tidelog.join.ranges import PartnerRange, RangedPairs
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.aggregate import Array
from tidelog.maintain.group_wise import GroupWise
from tidelog.maintain.strategy import Deltas
from tidelog.plan.body import AtomUse
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.versions import Version


class Nearest(GroupWise):
    """Maintains the smallest or largest partner of each row of a relation."""

    name = "nearest"
    why = "the groups between a changed row and the next are looked up again"
    algebra = "semigroup"
    state = "no pairs; the first or last partner of a group is looked up"
    reads_source = False

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is the extreme of a range."""
        return aggregation.ranged is not None and aggregation.ranged.neighbours is not None

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        join = aggregation.ranged
        assert join is not None
        assert join.reads[0] is not None
        assert join.neighbours is not None
        guard, partner = join.rule.atoms
        self._guard, self._partner = (catalog.relations[a.relation] for a in (guard, partner))
        self._read = join.reads[0]
        self._range = PartnerRange(catalog, self._read)
        self._pairs = RangedPairs(catalog, join)
        self._is_max = aggregation.op == "max"
        self._moved = catalog.relations[join.neighbours.moved]
        self._last = catalog.relations[join.neighbours.last]
        self._from_moved = [RuleJoins(catalog, rule) for rule in join.neighbours.moved_rules]
        self._from_last = RuleJoins(catalog, join.neighbours.last_rule)

    def bootstrap(self) -> None:
        """Look up the partner of every group."""
        self._pairs.check(new_only=False)
        super().bootstrap()

    def prepare(self) -> None:
        """Prepare the searches, and the joins that find groups."""
        super().prepare()
        self._range.prepare()
        for joins in (*self._from_moved, self._from_last):
            joins.prepare(0, PLAIN)

    def update(self) -> Deltas:
        """Look up the groups again whose partner may have changed."""
        self._pairs.check(new_only=True)
        return super().update()

    def _all_groups(self) -> Array:
        return self._guard.unpack(self._guard.rows(Version.NEW))

    def _touched_groups(self) -> Array:
        guard = self._guard.delta
        parts = [guard.inserted, guard.deleted, *self._touched_by_partners()]
        parts = [part for part in parts if part.shape[1]]
        if not parts:
            return np.empty((len(self._aggregation.group), 0), np.int64)
        rows = parts[0] if len(parts) == 1 else distinct(np.concatenate(parts, axis=1))[0]
        return self._guard.unpack(rows)

    def _touched_by_partners(self) -> list[Words]:
        """Return the groups, as rows, from each changed partner up to the next one."""
        delta = self._partner.delta
        found: list[Words] = []
        if not delta:
            return found
        rows = np.concatenate([delta.inserted, delta.deleted], axis=1)
        low, high, which = self._range.beyond(rows, larger=self._is_max)
        values, is_there = self._range.extremes(
            low, high, Version.EITHER.limit, largest=not self._is_max
        )
        followed = which[is_there]
        codes = self._partner.unpack(rows)
        columns = [*(column for _, column in self._read.keys), self._read.column]
        bias = self._partner.domains[self._read.column].bias
        moved = np.vstack([codes[columns][:, followed], values[is_there] - bias])
        is_last = np.ones(rows.shape[1], np.bool_)
        is_last[followed] = False
        for relation, given, ways in (
            (self._moved, moved, self._from_moved),
            (self._last, codes[columns][:, is_last], [self._from_last]),
        ):
            if given.shape[1]:
                driver = Run(_packed(relation, given))
                for joins in ways:
                    for instances in joins.run(0, PLAIN, self._read_guard, [driver]):
                        found.append(distinct(instances.rows)[0])
        return found

    def _read_guard(self, place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
        return reading(self._catalog.relations[atom.relation].index(order), Version.NEW)

    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups that are there and have a partner, as ordinals."""
        present = self._guard.find(self._guard.pack(groups)).present
        ordinals = groups[:, present] + self._guard.biases
        low, high, which = self._range.between(ordinals)
        values, found = self._range.extremes(low, high, Version.NEW.limit, largest=self._is_max)
        values = values[found]
        self._result.domains[-1].require(values)
        return np.vstack([ordinals[:, which[found]], values])


def _packed(relation: StoredRelation, codes: Array) -> Words:
    """Return columns of codes as sorted, distinct rows."""
    rows = relation.pack(np.ascontiguousarray(codes))
    return rows if rows.shape[1] == 1 else distinct(rows)[0]
