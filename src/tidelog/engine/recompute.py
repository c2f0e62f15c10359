"""Relations that are evaluated anew when something they read has changed.

The last resort: for the rare stratum that no other strategy can keep, such as recursion whose rules
aggregate by variables that only the recursion binds. The reference engine evaluates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tidelog.logic import program as p
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, Choice
from tidelog.plan.lower import relations_read
from tidelog.plan.lowered import Layer
from tidelog.reference import evaluate
from tidelog.store.relation import without
from tidelog.store.run import Words
from tidelog.store.versions import Delta, Version
from tidelog.values.types import Row


class Recompute:
    """Keeps the relations of one stratum by evaluating them again."""

    name = "recompute"

    def __init__(self, catalog: Catalog, layer: Layer, program: p.Program) -> None:
        assert layer.recompute is not None
        self._catalog = catalog
        self._names = layer.relations
        self._reads = sorted(relations_read(layer.recompute) - set(layer.relations))
        self._program = replace(
            program, strata=(layer.recompute,), rules=layer.recompute.rules, facts=()
        )
        self.choice = NOTHING

    def bootstrap(self) -> None:
        """Evaluate the stratum."""
        for name, rows in self._evaluate().items():
            self._catalog.relations[name].replace(rows, None, _ones(rows))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Make ready for small updates: there is nothing to do."""

    def update(self) -> None:
        """Evaluate the stratum if anything it reads has changed, and compare."""
        catalog = self._catalog
        changed = any(catalog.relations[name].delta for name in self._reads)
        if not changed and not any(catalog.given[name].delta for name in self._names):
            self.choice = NOTHING
            return
        for name, after in self._evaluate().items():
            relation = catalog.relations[name]
            before = relation.rows(Version.OLD)
            inserted, deleted = without(after, before), without(before, after)
            relation.remove(deleted)
            relation.add(inserted, None, _ones(inserted))
            relation.delta = Delta(inserted, deleted)
        self.choice = Choice("bootstrap", "it is always evaluated anew")

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""
        return self._catalog.relations[relation].rows(version)

    def check(self) -> None:
        """Assert that the relations are what the rules give."""
        for name, rows in self._evaluate().items():
            assert np.array_equal(rows, self._catalog.relations[name].rows()), f"{name} is stale"

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered: nothing."""
        return {}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back nothing."""

    def restored(self) -> None:
        """Build what is not stored: nothing."""

    def _evaluate(self) -> dict[str, Words]:
        catalog = self._catalog
        facts: dict[str, list[Row]] = {}
        for name in self._reads:
            facts[name] = catalog.decode(name, catalog.relations[name].rows(Version.NEW))
        for name in self._names:
            facts[name] = catalog.decode(name, catalog.given[name].rows(Version.NEW))
        with catalog.meter.interrupts.allowed():
            found = evaluate(self._program, facts, catalog.meter)
        return {name: self._packed(name, found[name]) for name in self._names}

    def _packed(self, name: str, rows: frozenset[Row]) -> Words:
        catalog = self._catalog
        ordinals = catalog.encode(name, rows)
        if ordinals.shape[1]:
            for column, domain in zip(ordinals, catalog.domains(name), strict=True):
                for extreme in (int(column.min()), int(column.max())):
                    if not domain.covers(extreme, extreme):
                        raise DomainOverflow(domain, extreme)
        return catalog.pack(name, ordinals)


def _ones(rows: Words) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ones(rows.shape[1], np.int64)
