"""Non-recursive relations: counting on delta joins.

Each row's count is the number of body assignments, over all rules, that derive it, and one more if
it is given. For a body A1..An the signed change is

    sum over i of   A1' .. A(i-1)'  dAi  A(i+1) .. An          (primed: after the epoch)

where the change of a negated atom counts with the opposite sign. A row is inserted when its count
leaves 0, and deleted when it reaches 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidelog.join.gather import Sums, Tally, distinct
from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.join.rules import RuleJoins, reused_joins
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.complement_bootstrap import ComplementBootstrap
from tidelog.maintain.epoch_program import Drive, EpochProgram, drives_of
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas, Strategy
from tidelog.plan.body import AtomUse, LoweredRule, copied_columns
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.versions import Delta, Version


class Counting(Strategy):
    """Maintains one relation that does not depend on itself."""

    name = "counting"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        (self._head,) = layer.relations
        self._relation = catalog.relations[self._head]
        given = catalog.given[self._head]
        # Given rows that are candidates are not in the relation for that alone.
        self._given = None if layer.pruned else given
        self._joins = [RuleJoins(catalog, rule) for rule in layer.rules]
        self._columns = [copied_columns(rule) for rule in layer.rules]
        self._original = self._copy_of(layer)
        self._often_empty = [
            [catalog.relations[a.relation] for a in rule.atoms if a.relation in catalog.aliases]
            for rule in layer.rules
        ]

    def bootstrap(self) -> None:
        """Compute the relation from the relations it reads."""
        tally = Tally(self._relation.words)
        reader = self._reader(None)
        for joins in filter(self._can_derive, self._joins):
            complement = ComplementBootstrap.of(self._catalog, joins.rule)
            if complement is not None and complement.pays:
                tally.add(complement.rows(), 1)
                continue
            joins.add_to(tally, None, reader, None, after=reader)
        if self._given is not None:
            given = self._given.rows(Version.NEW)
            tally.merge(given, np.ones(given.shape[1], np.int64))
        self._relation.replace(tally.rows, None, tally.sums)
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Prepare the delta joins of all atoms."""
        for joins in self._joins:
            for place in range(len(joins.rule.atoms)):
                joins.prepare(place, PLAIN)

    def loaded(self) -> None:
        """Prepare them again: plans depend on the sizes of relations."""
        self.prepare()

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step that counts derivations, unless Python takes part in a join."""
        drives = []
        for joins, columns in zip(self._joins, self._columns, strict=True):
            found = self._drives(joins, columns)
            if found is None:
                return False
            drives += found
        program.count(self._relation, self._given, drives)
        return True

    def _drives(self, joins: RuleJoins, columns: tuple[int, ...] | None) -> list[Drive] | None:
        """Return what drives a rule in short epochs; None if the kernel cannot run it."""
        if columns is None:
            return drives_of(self._catalog, joins)
        source = self._catalog.relations[joins.rule.atoms[0].relation]
        return [Drive(source, 1, self._relation.copies(source, columns))]

    @property
    def joins(self) -> list[RuleJoins]:
        """The joins of its rules."""
        return self._joins

    def reuse(self, other: Strategy) -> None:
        """Take over the planned joins of another strategy, for the rules that both have."""
        if isinstance(other, Counting):
            self._joins = reused_joins(self._joins, other.joins)

    def update(self) -> Deltas:
        """Bring the relation up to date with the deltas of the relations it reads."""
        self.choice = NOTHING
        if self._original is not None and (self._given is None or not self._given.stored):
            return self._follow(self._original.delta)
        tally = Tally(self._relation.words)
        for number in range(len(self._joins)):
            self._add_change(number, tally)
        given = None if self._given is None else self._given.delta
        if given:
            self.choice = UPDATE
            tally.merge(given.inserted, np.ones(given.inserted.shape[1], np.int64))
            tally.merge(given.deleted, np.full(given.deleted.shape[1], -1, np.int64))
        return {self._head: self._apply(tally.nonzero())} if len(tally) else {}

    def _add_change(self, number: int, tally: Tally) -> None:
        """Add the change of what one rule derives."""
        joins, columns = self._joins[number], self._columns[number]
        if not self._can_derive(joins) or any(map(_is_empty, self._often_empty[number])):
            return
        for place, rows, weight in self._changed(joins.rule):
            self.choice = UPDATE
            if columns is not None:
                relation = joins.rule.atoms[place].relation
                tally.add(self._copied(relation, rows, columns), weight)
                continue
            reader = self._reader(place)
            after = self._reader(None) if weight > 0 else None
            take = distinct if weight > 0 else _negative
            joins.add_to(tally, place, reader, [Run(rows)], take=take, after=after)

    def _changed(self, rule: LoweredRule) -> Iterator[tuple[int, Words, int]]:
        """Yield the changed rows of each atom: its place, rows, and what they weigh."""
        for place, atom in enumerate(rule.atoms):
            delta = self._catalog.relations[atom.relation].delta
            sign = -1 if atom.negated else 1
            for rows, weight in ((delta.inserted, sign), (delta.deleted, -sign)):
                if rows.shape[1]:
                    yield place, rows, weight

    def check(self) -> None:
        """Assert that every row has a count."""
        for run in self._relation.alive(Version.NEW):
            assert run.counts is not None, f"{self._head} has no counts"
            assert (run.counts > 0).all(), f"{self._head} has rows that nothing derives"

    def _can_derive(self, joins: RuleJoins) -> bool:
        """Return whether a rule may derive anything."""
        return True

    def _apply(self, change: Tally) -> Delta:
        relation = self._relation
        if not len(change):
            return relation.no_delta()
        found = relation.find(change.rows)
        counts, present = found.counts + change.sums, found.present
        if len(counts) == 1:
            least, there = int(counts[0]), int(present[0])
        else:
            least, there = int(counts.min()), int(np.count_nonzero(present))
        assert least >= 0, f"negative counts in {relation.name}"
        deleted = inserted = relation.no_rows()
        if there:
            relation.set_counts(found, counts)
            if least == 0:
                gone = present & (counts == 0)
                deleted = _columns(change.rows, gone)
                relation.remove(deleted, _columns(found.columns, gone))
        if there == 0 and least > 0:
            inserted = change.rows
            relation.add(inserted, None, counts)
        elif there < len(present):
            new = ~present & (counts > 0)
            inserted = _columns(change.rows, new)
            relation.add(inserted, None, counts[new])
        return Delta(inserted, deleted)

    def _copy_of(self, layer: Layer) -> StoredRelation | None:
        """Return the relation that this one copies, if it does: one rule, with the same columns."""
        if len(layer.rules) != 1 or self._columns[0] is None:
            return None
        other = self._catalog.relations[layer.rules[0].atoms[0].relation]
        columns = tuple(range(len(other.domains)))
        is_copy = self._columns[0] == columns and self._relation.domains == other.domains
        return other if is_copy else None

    def _follow(self, delta: Delta) -> Deltas:
        """Apply the delta of the original to its copy: each row has one derivation."""
        if not delta:
            return {}
        self.choice = UPDATE
        inserted, deleted = delta.inserted, delta.deleted
        self._catalog.meter.found(inserted.shape[1] + deleted.shape[1])
        return {self._head: self._relation.change(inserted, deleted)}

    def _copied(self, relation: str, rows: Words, columns: tuple[int, ...]) -> Words:
        """Return rows of another relation as rows of this one, with some of their columns."""
        self._catalog.meter.found(rows.shape[1])
        codes = self._catalog.relations[relation].unpack(rows)
        return self._relation.pack(np.ascontiguousarray(codes[list(columns)]))

    def _reader(self, driver: int | None) -> Reader:
        """Atoms before the driver read the new version, those after it the old one."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            version = Version.NEW if driver is None or place < driver else Version.OLD
            index = self._catalog.relations[atom.relation].index(order)
            return reading(index, version)

        return read


def _negative(rows: Words) -> tuple[Words, Sums]:
    """Return the distinct rows, each with minus the number of times that it occurred."""
    rows, sums = distinct(rows)
    return rows, -sums


def _is_empty(relation: StoredRelation) -> bool:
    """Return whether a relation has no rows, before and after the epoch."""
    return not relation.stored and not relation.delta


def _columns(rows: Words, which: NDArray[np.bool_]) -> Words:
    if rows.shape[1] == 1 and which[0]:
        return rows
    return np.ascontiguousarray(rows[:, which])
