"""Inequality joins: changes are enumerated, and the result is not stored.

The rule joins the relations at the lower end of its join tree (plan/theta/), and no row of it has
two derivations. So the net change is the sum of the delta joins,

    sum over i of   A1' .. A(i-1)'  dAi  A(i+1) .. An          (primed: after the epoch)

and nothing has to be remembered to know it. Every row of a delta join is in the change, unless
another one takes it back: a row of one atom was inserted and one of another atom was deleted. A
comparison with a known value narrows an atom to the rows between two binary searches
(plan/bounds.py), so the work follows the change of the result.

Given rows of such a relation are stored. A row may be given and derived at once, so then the change
of each row is judged by what else it has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidelog.join.enumeration import RuleResults
from tidelog.join.gather import distinct
from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas, Strategy
from tidelog.plan.body import AtomUse, is_fallible
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import without
from tidelog.store.run import Run, Words, sort_pieces
from tidelog.store.versions import Delta, Version


class ThetaTree(Strategy):
    """Maintains the changes of one relation. Its rows are enumerated when they are read."""

    name = "theta-tree"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        (self._head,) = layer.relations
        (self._rule,) = layer.rules
        self._relation, self._given = catalog.relations[self._head], catalog.given[self._head]
        self.results = RuleResults(catalog, self._rule, is_injective=True)
        """The derived rows."""
        catalog.computed[self._head] = self.rows

    def bootstrap(self) -> None:
        """Store nothing. A rule that can fail is evaluated, to find out whether it does."""
        self._relation.replace_runs([])
        if any(map(is_fallible, self._rule.conditions)):
            reader = self._reader(None)
            for _ in self.results.joins.run(None, PLAIN, reader, None, after=reader):
                pass
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Prepare the delta joins of all atoms."""
        for place in range(len(self._rule.atoms)):
            self.results.joins.prepare(place, PLAIN)

    def update(self) -> Deltas:
        """Enumerate the change."""
        self.choice = NOTHING
        found: dict[int, list[Words]] = {1: [], -1: []}
        for place, rows, weight in self._changed():
            self.choice = UPDATE
            after = self._reader(None) if weight > 0 else None
            for instances in self.results.joins.run(
                place, PLAIN, self._reader(place), [Run(rows)], after=after
            ):
                if instances.rows.shape[1]:
                    found[weight].append(instances.rows.copy())
        # A row is added by one delta join at most, and taken back by one at most.
        inserted, deleted = self._united(found[1]), self._united(found[-1])
        if inserted.shape[1] and deleted.shape[1]:
            inserted, deleted = without(inserted, deleted), without(deleted, inserted)
        delta = Delta(inserted, deleted)
        given = self._given
        if given.delta or (given.stored and delta):
            delta = self._with_given(delta)
        return {self._head: delta} if delta else {}

    def _united(self, parts: list[Words]) -> Words:
        if not parts:
            return self._relation.no_rows()
        return sort_pieces(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))

    def _with_given(self, delta: Delta) -> Delta:
        """Return the change of rows that may be given as well as derived."""
        self.choice = UPDATE
        given = self._given.delta
        changed = (delta.inserted, delta.deleted, given.inserted, given.deleted)
        rows = distinct(np.concatenate(changed, axis=1))[0]
        is_new = Run(given.inserted).locate(rows, 0) >= 0
        was = self._given.find(rows, Version.OLD.limit).present & ~is_new
        was |= self.results.derivations(rows, Version.OLD) > 0
        is_now = self._given.find(rows).present
        is_now |= self.results.derivations(rows, Version.NEW) > 0
        return Delta(
            np.ascontiguousarray(rows[:, is_now & ~was]),
            np.ascontiguousarray(rows[:, was & ~is_now]),
        )

    def rows(self, version: Version = Version.NEW) -> Words:
        """Return all rows, given and derived, sorted."""
        derived = self.results.all(version)
        if not self._given.stored:
            return derived
        return distinct(np.concatenate([derived, self._given.rows(version)], axis=1))[0]

    def check(self) -> None:
        """Assert that nothing is stored."""
        assert not self._relation.stored, f"{self._head} stores rows"

    def _changed(self) -> Iterator[tuple[int, Words, int]]:
        """Yield the places of changed atoms, their rows, and 1 or -1."""
        for place, atom in enumerate(self._rule.atoms):
            delta = self._catalog.relations[atom.relation].delta
            for rows, weight in ((delta.inserted, 1), (delta.deleted, -1)):
                if rows.shape[1]:
                    yield place, rows, weight

    def _reader(self, driver: int | None) -> Reader:
        """Read atoms before the driver as after the epoch, those behind it as before the epoch."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            version = Version.NEW if driver is None or place < driver else Version.OLD
            return reading(self._catalog.relations[atom.relation].index(order), version)

        return read
