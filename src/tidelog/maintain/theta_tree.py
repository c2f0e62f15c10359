"""Inequality joins: changes are enumerated, and the result is not stored.

A rule joins the relations at the lower end of its join tree (plan/theta/), and no row of it has
two derivations. So the net change is the sum of the delta joins,

    sum over i of   A1' .. A(i-1)'  dAi  A(i+1) .. An          (primed: after the epoch)

and nothing has to be remembered to know it. Every row of a delta join is in the change, unless
another one takes it back: a row of one atom was inserted and one of another atom was deleted. A
comparison with a known value narrows an atom to the rows between two binary searches
(plan/bounds.py), so the work follows the change of the result.

Several rules may derive a row, or it may be given as well: given rows of such a relation are
stored. Then the change of each row is judged by all its derivations, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidelog.join.enumeration import RuleResults
from tidelog.join.gather import distinct
from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.join.rules import RuleJoins
from tidelog.join.united_results import UnitedResults
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.epoch_program import Drive, EpochProgram, drives_of
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas, Strategy
from tidelog.plan.body import AtomUse, LoweredRule, is_fallible
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import without
from tidelog.store.run import Run, Words
from tidelog.store.versions import Delta, UnsortedRows, Version


class ThetaTree(Strategy):
    """Maintains the changes of one relation. Its rows are enumerated when they are read."""

    name = "theta-tree"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        (self._head,) = layer.relations
        self._relation, self._given = catalog.relations[self._head], catalog.given[self._head]
        self.results = UnitedResults(
            [RuleResults(catalog, rule, is_injective=True) for rule in layer.rules]
        )
        """The derived rows."""
        catalog.computed[self._head] = self.rows

    def bootstrap(self) -> None:
        """Store nothing. A rule that can fail is evaluated, to find out whether it does."""
        self._relation.replace_runs([])
        for results in self.results.each:
            if any(map(is_fallible, results.joins.rule.conditions)):
                reader = self._reader(None)
                for _ in results.joins.run(None, PLAIN, reader, None, after=reader):
                    pass
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Prepare the delta joins of all atoms."""
        for results in self.results.each:
            for place in range(len(results.joins.rule.atoms)):
                results.joins.prepare(place, PLAIN)

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step, unless Python takes part, or a row may have several derivations."""
        if not self.results.are_disjoint:
            return False
        drives: list[Drive] = []
        for results in self.results.each:
            found = drives_of(self._catalog, results.joins)
            if found is None:
                return False
            drives += found
        program.refuse_given(self._head)
        program.require_empty(self._given)
        program.join(self._relation, drives)
        return True

    def update(self) -> Deltas:
        """Enumerate the change."""
        self.choice = NOTHING
        each = [self._change(results.joins) for results in self.results.each]
        given = self._given
        is_given = given.delta or (given.stored and any(each))
        if self.results.are_disjoint and not is_given:
            delta = each[0]
            if len(each) > 1:
                inserted = [own.inserted for own in each if own.sizes[0]]
                deleted = [own.deleted for own in each if own.sizes[1]]
                delta = Delta(self._pieces(inserted), self._pieces(deleted))
        else:
            changed = [*each, given.delta] if given.delta else each
            delta = self._judged([rows for own in changed for rows in (own.inserted, own.deleted)])
        return {self._head: delta} if delta else {}

    def _change(self, joins: RuleJoins) -> Delta:
        """Return the change of what one rule derives."""
        found: dict[int, list[Words]] = {1: [], -1: []}
        for place, rows, weight in self._changed(joins.rule):
            self.choice = UPDATE
            after = self._reader(None) if weight > 0 else None
            for instances in joins.run(place, PLAIN, self._reader(place), [Run(rows)], after=after):
                if instances.rows.shape[1]:
                    found[weight].append(instances.rows.copy())
        # A row is added by one delta join at most, and taken back by one at most.
        delta = Delta(self._pieces(found[1]), self._pieces(found[-1]))
        if found[1] and found[-1]:
            inserted, deleted = delta.inserted, delta.deleted
            return Delta(without(inserted, deleted), without(deleted, inserted))
        return delta

    def _pieces(self, arrays: list[Words]) -> Words | UnsortedRows:
        return UnsortedRows(arrays) if arrays else self._relation.no_rows()

    def _judged(self, changed: Sequence[Words]) -> Delta:
        """Return the change of rows that may have several derivations, or be given."""
        rows = distinct(np.concatenate(changed, axis=1))[0]
        if not rows.shape[1]:
            return self._relation.no_delta()
        self.choice = UPDATE
        is_new = Run(self._given.delta.inserted).locate(rows, 0) >= 0
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

    def _changed(self, rule: LoweredRule) -> Iterator[tuple[int, Words, int]]:
        """Yield the places of changed atoms, their rows, and 1 or -1."""
        for place, atom in enumerate(rule.atoms):
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
