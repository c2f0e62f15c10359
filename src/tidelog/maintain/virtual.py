"""Views that are not stored: changes are propagated and filtered (EPF).

    J. V. Harrison, S. W. Dietrich: Incremental View Maintenance. ADC 1994.

For each changed relation of a body, and both signs:

    propagate   join the change with the rest of the body, in the new version for insertions and
                in the old one for deletions: rows of the head that may have changed
    reduce      drop the rows that were propagated before
    filter      drop insertions that hold in the old version, and deletions that hold in the new
    change      the others have changed; in a recursion they are propagated in turn

Both questions, what follows from a change and whether a row holds, are asked of tables that are
kept for the epoch, one set for each version (maintain/tables.py). So no row is filtered twice, and
none is propagated that has not changed. A row that may have been inserted holds in the new version,
and one that may have been deleted held in the old one. So a row that may have been both has not
changed, and need not be asked for.

Layers that are stored but read such views are maintained in the same way, and their change is
applied to their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tidelog.join.gather import distinct
from tidelog.join.group_lookup import GroupLookup
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, Choice, Deltas, Strategy
from tidelog.maintain.tables import Tables
from tidelog.plan.demand import DemandCall, DemandRewriting, definitions
from tidelog.plan.lowered import Layer
from tidelog.plan.propagation import Propagation, approximation, changed, opposite, propagation
from tidelog.store.catalog import Catalog
from tidelog.store.relation import without
from tidelog.store.run import Words
from tidelog.store.versions import Delta, Version

_SIGNS = ((1, Version.NEW, Version.OLD), (-1, Version.OLD, Version.NEW))
"""For insertions and deletions: the version to propagate in, and that to filter in."""


class Prover:
    """The tables of an epoch for some layers, one set for each version."""

    def __init__(
        self, catalog: Catalog, layers: Sequence[Layer], on_demand: Collection[str]
    ) -> None:
        self._catalog, self._layers, self._on_demand = catalog, layers, on_demand
        self._asking: tuple[Propagation, dict[Version, Tables]] | None = None
        self._whole: dict[tuple[str, Version], tuple[Tables, DemandCall]] = {}
        self._in_use = False

    def begin(self) -> tuple[Propagation, Mapping[Version, Tables]]:
        """Return the questions of the layers, and the tables of this epoch."""
        catalog = self._catalog
        if self._asking is None:
            defined = definitions(catalog.lowered, lambda name: name not in self._on_demand)
            plan = propagation(self._layers, defined, catalog.types, catalog.stats)
            tables = {v: Tables(catalog, plan.program, v) for v in (Version.OLD, Version.NEW)}
            for held in tables.values():
                for name in plan.proofs:
                    held.watch(approximation(name))
            self._asking = plan, tables
        if not self._in_use:
            self._in_use = True
            for held in self._asking[1].values():
                held.begin()
        return self._asking

    def clear(self) -> None:
        """End the epoch: forget everything."""
        if self._in_use and self._asking is not None:
            for tables in self._asking[1].values():
                tables.clear()
            self._in_use = False

    def rows(self, name: str, version: Version) -> Words:
        """Return all rows of a relation, sorted."""
        catalog, key = self._catalog, (name, version)
        if key not in self._whole:
            defined = definitions(catalog.lowered, lambda n: n not in self._on_demand)
            rewriting = DemandRewriting(defined, catalog.types, catalog.stats)
            call = rewriting.call(name, ())
            self._whole[key] = Tables(catalog, rewriting.program(), version), call
        tables, call = self._whole[key]
        tables.begin()
        try:
            asked = tables.relation(call.asked)
            tables.ask({call.asked: asked.pack(np.zeros((1, 1), np.int64))})
            return tables.relation(call.answers).rows().copy()
        finally:
            tables.clear()


@dataclass
class _Counts:
    """What an update has done."""

    propagated: int = 0
    filtered: int = 0
    disqualified: int = 0
    rounds: int = 0


class Virtual(Strategy):
    """Maintains the changes of one layer; its rows are stored only if others need them."""

    name = "virtual"

    def __init__(self, catalog: Catalog, layer: Layer, prover: Prover) -> None:
        assert layer.virtual is not None
        self._catalog, self._layer, self._prover = catalog, layer, prover
        self._stored = [n for n in layer.relations if n not in layer.virtual]
        self._reads = {atom.relation for rule in layer.rules for atom in rule.atoms}
        if layer.aggregation is not None:
            self._reads.add(layer.aggregation.source)
        for name in layer.virtual:
            catalog.computed[name] = partial(prover.rows, name)

    def bootstrap(self) -> None:
        """Compute the relations that are stored."""
        relations = self._catalog.relations
        found = {name: self._prover.rows(name, Version.NEW) for name in self._stored}
        for name in self._layer.relations:
            rows = found.get(name, relations[name].no_rows())
            relations[name].replace(rows, None, np.ones(rows.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def update(self) -> Deltas:
        """Propagate and filter the changes of the relations below."""
        relations, given = self._catalog.relations, self._catalog.given
        layer = self._layer
        if not any(relations[n].delta for n in self._reads) and not any(
            given[n].delta for n in layer.relations
        ):
            self.choice = NOTHING
            return {}
        counts = _Counts()
        if layer.aggregation is not None:
            deltas = self._compared(counts)
        else:
            deltas = self._propagated(counts)
        for name in self._stored:
            if name in deltas:
                delta = deltas[name]
                deltas[name] = relations[name].change(delta.inserted, delta.deleted)
        self.choice = Choice(
            "update", "", counts.rounds, counts.propagated, counts.filtered, counts.disqualified
        )
        return deltas

    def check(self) -> None:
        """Assert that what is not stored has no rows, and what is has those of its rules."""
        for name in self._layer.relations:
            relation = self._catalog.relations[name]
            if name not in self._stored:
                assert not relation.stored, f"{name} stores rows"
                continue
            rows = self._prover.rows(name, Version.NEW)
            assert np.array_equal(rows, relation.rows()), f"{name} is stale"

    # --- rules ---

    def _propagated(self, counts: _Counts) -> dict[str, Delta]:
        plan, tables = self._prover.begin()
        relations, given, names = (
            self._catalog.relations,
            self._catalog.given,
            self._layer.relations,
        )
        found: dict[tuple[str, int], Words] = {}
        potential: dict[tuple[str, int], Words] = {}
        for name in names:
            delta = given[name].delta
            for rows, sign in ((delta.inserted, 1), (delta.deleted, -1)):
                if rows.shape[1]:
                    potential[name, sign] = rows
        new: dict[tuple[str, int], Words] = {}
        for name in self._reads.difference(names):
            delta = relations[name].delta
            for rows, sign in ((delta.inserted, 1), (delta.deleted, -1)):
                if rows.shape[1]:
                    new[name, sign] = rows
        while new or potential:
            counts.rounds += 1
            for sign, version, _ in _SIGNS:
                self._propagate(tables[version], sign, new, potential)
            new = {}
            for sign, version, other in _SIGNS:
                for name in names:
                    if (name, sign) not in potential:
                        continue
                    rows = potential.pop((name, sign))
                    counts.propagated += rows.shape[1]
                    actual = self._filtered(
                        plan, name, rows, tables[version], tables[other], counts
                    )
                    if actual.shape[1]:
                        new[name, sign] = actual
                        before = found.get((name, sign))
                        found[name, sign] = actual if before is None else _united(before, actual)
        none = {name: relations[name].no_rows() for name in names}
        return {
            name: Delta(found.get((name, 1), none[name]), found.get((name, -1), none[name]))
            for name in names
            if (name, 1) in found or (name, -1) in found
        }

    def _propagate(
        self,
        tables: Tables,
        sign: int,
        new: Mapping[tuple[str, int], Words],
        potential: dict[tuple[str, int], Words],
    ) -> None:
        """Propagate changes of both signs in the tables of one version."""
        layer = self._layer
        seeds: dict[str, Words] = {}
        for (name, of), rows in new.items():
            seed = (changed if of == sign else opposite)(name, layer)
            if tables.has(seed):
                seeds[seed] = rows
        # Given rows that change are potential changes like those that rules derive.
        for name in layer.relations:
            if (name, sign) in potential:
                seeds[approximation(name)] = potential.pop((name, sign))
        if seeds:
            tables.ask(seeds)
        for name in layer.relations:
            taken = tables.taken(approximation(name))
            if taken is not None:
                potential[name, sign] = taken

    def _filtered(
        self,
        plan: Propagation,
        name: str,
        rows: Words,
        tables: Tables,
        other: Tables,
        counts: _Counts,
    ) -> Words:
        """Return the rows that do not hold in the other version."""
        # What may have changed with the other sign holds there.
        unknown, known = other.relation(approximation(name)).split(rows)
        counts.disqualified += known.shape[1]
        if not unknown.shape[1]:
            return unknown
        proof = plan.proofs[name]
        counts.filtered += unknown.shape[1]
        other.ask({proof.asked: unknown})
        actual, proven = other.relation(proof.answers).split(unknown)
        counts.disqualified += proven.shape[1]
        return actual

    # --- aggregates ---

    def _compared(self, counts: _Counts) -> dict[str, Delta]:
        """Compare the groups that may have changed in both versions."""
        a = self._layer.aggregation
        assert a is not None
        plan, tables = self._prover.begin()
        source = self._catalog.relations[a.source]
        rows = np.concatenate([source.delta.inserted, source.delta.deleted], axis=1)
        call = plan.groups[a.result]
        groups = np.unique(source.unpack(rows)[list(a.group)], axis=1)
        if not len(groups):
            groups = np.zeros((0, 1), np.int64)
        counts.rounds, counts.propagated = 1, groups.shape[1]
        found = []
        for version in (Version.OLD, Version.NEW):
            held = tables[version]
            asked = held.relation(call.asked)
            codes = groups if len(groups) else np.zeros((1, 1), np.int64)
            packed = distinct(asked.pack(np.ascontiguousarray(codes)))[0]
            counts.filtered += held.ask({call.asked: packed})[call.asked].shape[1]
            lookup = GroupLookup(held.catalog, call.answers, tuple(range(len(a.group))))
            _, ordinals = lookup.read(groups, Version.NEW)
            found.append(held.catalog.pack(call.answers, ordinals))
        before, after = found
        delta = Delta(without(after, before), without(before, after))
        return {a.result: delta} if delta else {}


def _united(rows: Words, others: Words) -> Words:
    return distinct(np.concatenate([rows, others], axis=1))[0]


class VirtualLayers:
    """Makes the strategies of the layers that are propagated and filtered, and their tables."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        layers = [layer for layer in catalog.lowered.layers if layer.virtual is not None]
        self._unstored = {name for layer in layers for name in layer.virtual or ()}
        self._unstored |= {n for la in catalog.lowered.layers if la.tree for n in la.relations}
        shared = [la for la in layers if la.virtual == frozenset(la.relations)]
        self._shared = Prover(catalog, shared, self._unstored)
        self.provers = [self._shared] if shared else []
        """Their tables are cleared when an epoch ends."""

    @property
    def names(self) -> frozenset[str]:
        """The relations that are virtual."""
        return frozenset(n for layer in self._catalog.lowered.layers for n in layer.virtual or ())

    def strategy(self, layer: Layer) -> Virtual:
        """Return the strategy of a layer."""
        if layer.virtual == frozenset(layer.relations):
            return Virtual(self._catalog, layer, self._shared)
        own = Prover(self._catalog, [layer], {*self._unstored, *layer.relations})
        self.provers.append(own)
        return Virtual(self._catalog, layer, own)
