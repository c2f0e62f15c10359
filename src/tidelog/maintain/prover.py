"""Proving rows of relations that are not stored, in the old and in the new version of an epoch.

A `Prover` has two sets of tables (maintain/tables.py), one for each version. They are kept for the
epoch: what was proved once is known. Each version has its own rules, which differ in an epoch that
changes the program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidelog.maintain.tables import Tables
from tidelog.plan.demand import Definition, DemandCall, DemandRewriting, definitions
from tidelog.plan.lowered import Lowered
from tidelog.plan.propagation import PropagatedLayer, Propagation, approximation, propagation
from tidelog.store.catalog import Catalog
from tidelog.store.run import Words
from tidelog.store.versions import Version

VERSIONS = (Version.OLD, Version.NEW)


@dataclass(frozen=True)
class Known:
    """What a version is proved from: a program, and which of its relations are not stored."""

    lowered: Lowered
    layers: Sequence[PropagatedLayer]
    """The layers whose changes are asked for, with the rules that this version has."""
    on_demand: Collection[str]

    def defined(self) -> dict[str, Definition]:
        """Return how the relations that are not stored are derived."""
        return definitions(self.lowered, lambda name: name not in self.on_demand)


@dataclass(frozen=True)
class Asking:
    """The questions that can be asked in one version, and the tables that answer them."""

    plan: Propagation
    tables: Tables


class Prover:
    """The tables of an epoch for some layers, one set for each version."""

    def __init__(self, catalog: Catalog, known: Mapping[Version, Known]) -> None:
        self._catalog, self._known = catalog, known
        self._asking: dict[Version, Asking] | None = None
        self._whole: dict[tuple[str, Version], tuple[Tables, DemandCall]] = {}
        self._in_use = False

    def begin(self) -> Mapping[Version, Asking]:
        """Return the questions of the layers, and the tables of this epoch."""
        if self._asking is None:
            self._asking = dict(self._planned())
        if not self._in_use:
            self._in_use = True
            for asking in self._asking.values():
                asking.tables.begin()
        return self._asking

    def clear(self) -> None:
        """End the epoch: forget everything."""
        if self._in_use and self._asking is not None:
            for asking in self._asking.values():
                asking.tables.clear()
            self._in_use = False

    def rows(self, name: str, version: Version) -> Words:
        """Return all rows of a relation, sorted."""
        key = (name, version)
        if key not in self._whole:
            known = self._known[version]
            types = known.lowered.relations
            rewriting = DemandRewriting(known.defined(), types.__getitem__, self._catalog.stats)
            call = rewriting.call(name, ())
            self._whole[key] = Tables(self._catalog, rewriting.program(), version, types), call
        tables, call = self._whole[key]
        tables.begin()
        try:
            asked = tables.relation(call.asked)
            tables.ask({call.asked: asked.pack(np.zeros((1, 1), np.int64))})
            return tables.relation(call.answers).rows().copy()
        finally:
            tables.clear()

    def _planned(self) -> Iterator[tuple[Version, Asking]]:
        catalog, plans = self._catalog, dict[int, Propagation]()
        for version in VERSIONS:
            known = self._known[version]
            types = known.lowered.relations
            if id(known) not in plans:
                plans[id(known)] = propagation(known.layers, known.defined(), types, catalog.stats)
            plan = plans[id(known)]
            tables = Tables(catalog, plan.program, version, types)
            for name in plan.proofs:
                tables.watch(approximation(name))
            yield version, Asking(plan, tables)
