"""Semi-joins by an inequality: the rows of a guard that have a partner.

    kept(t..) :- guard(t..), extreme(key.., y), x < y.

A row has a partner if x is below the largest y of its key, which is maintained as an aggregate. So
the number of partners does not matter. When the largest y moves from `old` to `new`, just the rows
with x between the two change:

    kept(t..) :- moved(key.., old, new), guard(t..), x >= old, x < new.

A bound finds them (plan/bounds.py). The work follows the rows that come and go, not the partners:
an insertion of a y that is not the largest of its key costs nothing.

The delta has three parts. Keys whose extreme has moved change rows of the old guard; so do keys
that had no extreme, or have none any more. Then the changed guard meets the new extremes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidelog.join.gather import Tally
from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.epoch_program import Drive, EpochProgram
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas, Strategy
from tidelog.plan.body import AtomUse, is_external
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

_GUARD, _EXTREME, _MOVED = 0, 1, 0  # the places of atoms in the two rules


class SemiJoin(Strategy):
    """Maintains the rows of a guard that have a partner."""

    name = "semi-join"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        assert layer.semi_join is not None
        (self._head,) = layer.relations
        self._relation = catalog.relations[self._head]
        self._guard = catalog.relations[layer.semi_join.guard]
        self._extreme = catalog.relations[layer.semi_join.extreme]
        self._moved = catalog.relations[layer.semi_join.moved]
        self._is_max = layer.semi_join.is_max
        self._partners, self._between = (RuleJoins(catalog, rule) for rule in layer.rules)

    def bootstrap(self) -> None:
        """Find the rows of the guard that have a partner."""
        rows = self._kept_rows()
        self._relation.replace(rows, None, np.ones(rows.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Prepare the joins of small changes."""
        for joins, place in (
            (self._partners, _GUARD), (self._partners, _EXTREME), (self._between, _MOVED),
        ):  # fmt: skip
            joins.prepare(place, PLAIN)

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step, unless Python takes part in a join."""
        moved = self._drive(self._between, _MOVED, self._extreme, self._moved.primary.layout.biased)
        drives = (
            moved,
            self._drive(self._partners, _EXTREME, self._extreme),
            self._drive(self._partners, _GUARD, self._guard),
        )
        for joins in (self._partners, self._between):
            if any(map(is_external, joins.rule.conditions)):
                return False
        if not all(map(self._catalog.is_stored, (self._guard.name, self._extreme.name))):
            return False
        program.refuse_given(self._head)
        program.semi_join(self._relation, self._extreme, drives, is_max=self._is_max)
        return True

    def _drive(
        self,
        joins: RuleJoins,
        place: int,
        source: StoredRelation,
        fields: NDArray[np.int64] | None = None,
    ) -> Drive:
        """Return what drives a join: the guard is read as before the epoch, extremes as after."""
        new = frozenset() if place != _GUARD or joins is self._between else frozenset([_EXTREME])
        sign = 1 if fields is None else 0
        return Drive(source, sign, joins=joins, place=place, new=new, fields=fields)

    def update(self) -> Deltas:
        """Follow the changes of extremes and guard."""
        self.choice = NOTHING
        tally = Tally(self._relation.words)
        for joins, place, rows, weight in self._changes():
            if rows.shape[1]:
                self.choice = UPDATE
                reader = self._reader(Version.OLD, Version.NEW)
                for instances in joins.run(place, PLAIN, reader, [Run(rows)]):
                    tally.add(instances.rows, weight)
        if not len(tally):
            return {}
        inserted = np.ascontiguousarray(tally.rows[:, tally.sums > 0])
        deleted = np.ascontiguousarray(tally.rows[:, tally.sums < 0])
        if not inserted.shape[1] and not deleted.shape[1]:
            return {}
        return {self._head: self._relation.change(inserted, deleted)}

    def check(self) -> None:
        """Assert that exactly the rows with a partner are stored."""
        found = self._relation.rows(Version.NEW)
        assert np.array_equal(found, self._kept_rows()), f"{self._head} is stale"

    def _kept_rows(self) -> Words:
        tally = Tally(self._relation.words)
        reader = self._reader(Version.NEW, Version.NEW)
        for instances in self._partners.run(None, PLAIN, reader, None):
            tally.add(instances.rows, 1)
        return tally.rows

    def _changes(self) -> Iterator[tuple[RuleJoins, int, Words, int]]:
        """Yield joins, the atom to start from, its rows, and the weight of what they find."""
        extreme = self._extreme.delta
        if extreme:
            deleted = self._extreme.unpack(extreme.deleted)
            inserted = self._extreme.unpack(extreme.inserted)
            # The place of each inserted key among the deleted ones. There is one row for a key.
            place = Run(self._keys(deleted)).locate(self._keys(inserted), 0)
            is_moved = place >= 0
            is_gone = np.ones(deleted.shape[1], np.bool_)
            is_gone[place[is_moved]] = False
            old_values, new_values = deleted[-1, place[is_moved]], inserted[-1, is_moved]
            wider = (new_values > old_values) == self._is_max
            keys = inserted[:-1, is_moved]
            for which, first, last, weight in (
                (wider, old_values, new_values, 1), (~wider, new_values, old_values, -1),
            ):  # fmt: skip
                codes = np.vstack([keys[:, which], first[which], last[which]])
                rows = sort_words(self._moved.pack(np.ascontiguousarray(codes)))
                yield self._between, _MOVED, rows, weight
            columns = np.ascontiguousarray
            yield self._partners, _EXTREME, columns(extreme.deleted[:, is_gone]), -1
            yield self._partners, _EXTREME, columns(extreme.inserted[:, ~is_moved]), 1
        guard = self._guard.delta
        yield self._partners, _GUARD, guard.deleted, -1
        yield self._partners, _GUARD, guard.inserted, 1

    def _keys(self, codes: NDArray[np.int64]) -> Words:
        """Return the keys of extremes as sorted rows, with 0 in the place of the value."""
        keys = codes.copy()
        keys[-1] = 0
        return self._extreme.pack(keys)

    def _reader(self, guard: Version, extreme: Version) -> Reader:
        """Read the guard and the extremes, each in one version."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            stored = self._catalog.relations[atom.relation]
            version = guard if stored is self._guard else extreme
            return reading(stored.index(order), version)

        return read
