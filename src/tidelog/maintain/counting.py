"""Non-recursive relations: counting on delta joins.

Each row's count is the number of body assignments, over all rules, that derive it, and one more if
it is given. For a body A1..An the signed change is

    sum over i of   A1' .. A(i-1)'  dAi  A(i+1) .. An          (primed: after the epoch)

where a negated atom takes part with its sign flipped. A row comes when its count leaves 0 and goes
when it reaches 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel.join import DEAD_NOW, PLAIN
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.gather import Tally
from tidelog.maintain.joins import Reader, Reading, reading
from tidelog.maintain.lacking import Lacking
from tidelog.maintain.rules import RuleJoins
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.body import AtomUse
from tidelog.plan.lowered import Layer
from tidelog.store.relation import Delta, Version
from tidelog.store.run import Run, Words


class Counting:
    """Keeps one relation that does not depend on itself."""

    name = "counting"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        (self._head,) = layer.relations
        self._relation = catalog.relations[self._head]
        self._given = catalog.given[self._head]
        self._joins = [RuleJoins(catalog, rule) for rule in layer.rules]
        self.choice = NOTHING

    def bootstrap(self) -> None:
        """Compute the relation from the relations it reads."""
        tally = Tally(self._relation.words)
        reader = self._reader(None)
        for joins in self._joins:
            lacking = Lacking.of(self._catalog, joins.rule)
            if lacking is not None and lacking.pays:
                tally.add(lacking.rows(), 1)
                continue
            for instances in joins.run(None, PLAIN, reader, None, after=reader):
                tally.add(instances.rows, 1)
        given = self._given.rows(Version.NEW)
        tally.merge(given, np.ones(given.shape[1], np.int64))
        self._relation.replace(tally.rows, None, tally.sums)
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Make ready for small updates."""
        for joins in self._joins:
            for place in range(len(joins.rule.atoms)):
                joins.prepare(place, PLAIN)

    def update(self) -> None:
        """Bring the relation up to date with the deltas of the relations it reads."""
        self.choice = NOTHING
        tally = Tally(self._relation.words)
        for joins in self._joins:
            for place, atom in enumerate(joins.rule.atoms):
                delta = self._catalog.relations[atom.relation].delta
                sign = -1 if atom.negated else 1
                for rows, weight in ((delta.inserted, sign), (delta.deleted, -sign)):
                    if rows.shape[1]:
                        self.choice = UPDATE
                        reader = self._reader(place)
                        after = self._reader(None) if weight > 0 else None
                        driver = [Run(rows)]
                        for instances in joins.run(place, PLAIN, reader, driver, after=after):
                            tally.add(instances.rows, weight)
        given = self._given.delta
        if given:
            self.choice = UPDATE
            tally.merge(given.inserted, np.ones(given.inserted.shape[1], np.int64))
            tally.merge(given.deleted, np.full(given.deleted.shape[1], -1, np.int64))
        if len(tally):
            self._relation.delta = self._apply(tally.nonzero())

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""
        return self._catalog.relations[relation].rows(version)

    def check(self) -> None:
        """Assert that every row has a count."""
        for run in self._relation.alive(Version.NEW):
            assert run.counts is not None, f"{self._head} has no counts"
            assert (run.counts > 0).all(), f"{self._head} has rows that nothing derives"

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered: nothing."""
        return {}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back nothing."""

    def _apply(self, change: Tally) -> Delta:
        relation = self._relation
        if not len(change):
            return relation.no_delta()
        found = relation.find(change.rows)
        counts = found.counts + change.sums
        assert counts.min() >= 0, f"negative counts in {relation.name}"
        present = found.present
        deleted = inserted = relation.no_rows()
        if present.any():
            relation.set_counts(found, counts)
            gone = present & (counts == 0)
            deleted = _columns(change.rows, gone)
            relation.set_marks(deleted, np.full(deleted.shape[1], DEAD_NOW, np.int32))
        if not present.all():
            new = ~present & (counts > 0)
            inserted = _columns(change.rows, new)
            relation.add(inserted, None, counts[new])
        return Delta(inserted, deleted)

    def _reader(self, driver: int | None) -> Reader:
        """Atoms before the driver are read after the epoch, those behind it before the epoch."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            version = Version.NEW if driver is None or place < driver else Version.OLD
            index = self._catalog.relations[atom.relation].index(order)
            return reading(index, version)

        return read


def _columns(rows: Words, which: NDArray[np.bool_]) -> Words:
    return np.ascontiguousarray(rows[:, which])
