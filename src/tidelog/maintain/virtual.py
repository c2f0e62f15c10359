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

In an epoch that changes the rules, the old version has the old ones, and the new version the new
ones. An added rule is evaluated as a whole in the new version, and its rows are filtered in the old
one; a dropped rule the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidelog.join.gather import distinct
from tidelog.join.group_lookup import GroupLookup
from tidelog.maintain.prover import Asking, Prover
from tidelog.maintain.relevance import Relevance
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, Choice, Deltas, Strategy
from tidelog.maintain.tables import Tables
from tidelog.plan.lowered import Layer
from tidelog.plan.propagation import approximation, changed, opposite, rules_changed
from tidelog.store.catalog import Catalog
from tidelog.store.relation import without
from tidelog.store.run import Words
from tidelog.store.versions import Delta, Version

_SIGNS = ((1, Version.NEW, Version.OLD), (-1, Version.OLD, Version.NEW))
"""For insertions and deletions: the version to propagate in, and that to filter in."""
_Signed = dict[tuple[str, int], Words]
"""Rows by relation and sign: 1 for insertions, -1 for deletions."""
_IRRELEVANT = Choice("nothing to do", "no row that has changed has the constants of its rules")
_ONE_ROW = np.zeros((1, 1), np.int64)


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

    def __init__(
        self, catalog: Catalog, layer: Layer, prover: Prover, *, has_changed: bool = False
    ) -> None:
        """Prepare; with `has_changed` the rules of the layer change in the only epoch of this."""
        assert layer.virtual is not None
        self._catalog, self._layer, self._prover = catalog, layer, prover
        self._has_changed = has_changed
        self._stored = [n for n in layer.relations if n not in layer.virtual]
        self._reads = {atom.relation for rule in layer.rules for atom in rule.atoms}
        if layer.aggregation is not None:
            self._reads.add(layer.aggregation.source)
        self._relevance = Relevance(catalog, layer.rules)

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
        if not (
            self._has_changed
            or any(relations[n].delta for n in self._reads)
            or any(given[n].delta for n in layer.relations)
        ):
            self.choice = NOTHING
            return {}
        counts = _Counts()
        if layer.aggregation is not None:
            deltas = self._compared(counts)
        else:
            new, potential = self._changes_below(), self._given_changes()
            if not (self._has_changed or new or potential):
                self.choice = _IRRELEVANT
                return {}
            deltas = self._propagated(new, potential, counts)
        for name in layer.relations:
            relation = relations[name]
            if name not in self._stored:
                if relation.stored and self._has_changed:  # it was stored before
                    relation.replace_at_commit(relation.empty_copy(), shown=False)
            elif name in deltas:
                deltas[name] = relation.change(deltas[name].inserted, deltas[name].deleted)
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

    def _given_changes(self) -> _Signed:
        """Return the given rows that have changed, by relation and sign."""
        given = self._catalog.given
        return _signed((name, given[name].delta) for name in self._layer.relations)

    def _changes_below(self) -> _Signed:
        """Return the changes of the relations below that some rule can match."""
        relations, relevant = self._catalog.relations, self._relevance.relevant
        reads = self._reads.difference(self._layer.relations)
        found = _signed((name, relations[name].delta) for name in reads)
        kept = {(name, sign): relevant(name, rows) for (name, sign), rows in found.items()}
        return {key: rows for key, rows in kept.items() if rows.shape[1]}

    def _propagated(self, new: _Signed, potential: _Signed, counts: _Counts) -> dict[str, Delta]:
        asking, names = self._prover.begin(), self._layer.relations
        relations = self._catalog.relations
        found: _Signed = {}
        rules_have_changed = self._has_changed
        while new or potential or rules_have_changed:
            counts.rounds += 1
            for sign, version, _ in _SIGNS:
                tables = asking[version].tables
                self._propagate(tables, sign, new, potential, with_rules=rules_have_changed)
            rules_have_changed = False
            new = {}
            for sign, _, other in _SIGNS:
                for name in names:
                    if (name, sign) not in potential:
                        continue
                    rows = potential.pop((name, sign))
                    counts.propagated += rows.shape[1]
                    actual = self._filtered(name, rows, asking[other], counts)
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
        new: _Signed,
        potential: _Signed,
        *,
        with_rules: bool,
    ) -> None:
        """Propagate changes of both signs in the tables of one version."""
        layer = self._layer
        seeds: dict[str, Words] = {}
        if with_rules and tables.has(rules_changed(layer)):
            seeds[rules_changed(layer)] = _ONE_ROW
        for (name, of), rows in new.items():
            seed = (changed if of == sign else opposite)(name, layer)
            if tables.has(seed):
                seeds[seed] = rows
        # Given rows that change are potential changes like those that rules derive.
        for name in layer.relations:
            if (name, sign) in potential and tables.has(approximation(name)):
                seeds[approximation(name)] = potential.pop((name, sign))
        if seeds:
            tables.ask(seeds)
        for name in layer.relations:
            taken = tables.taken(approximation(name))
            if taken is not None:
                potential[name, sign] = taken

    def _filtered(self, name: str, rows: Words, other: Asking, counts: _Counts) -> Words:
        """Return the rows that do not hold in the other version."""
        proof = other.plan.proofs.get(name)
        if proof is None:
            return rows  # the other version has no such relation
        # What may have changed with the other sign holds there.
        unknown = rows
        if other.tables.has(approximation(name)):
            unknown, known = other.tables.relation(approximation(name)).split(rows)
            counts.disqualified += known.shape[1]
        if not unknown.shape[1]:
            return unknown
        counts.filtered += unknown.shape[1]
        other.tables.ask({proof.asked: unknown})
        actual, proven = other.tables.relation(proof.answers).split(unknown)
        counts.disqualified += proven.shape[1]
        return actual

    # --- aggregates ---

    def _compared(self, counts: _Counts) -> dict[str, Delta]:
        """Compare the groups that may have changed in both versions."""
        a = self._layer.aggregation
        assert a is not None
        asking = self._prover.begin()
        source = self._catalog.relations[a.source]
        rows = np.concatenate([source.delta.inserted, source.delta.deleted], axis=1)
        groups = np.unique(source.unpack(rows)[list(a.group)], axis=1)
        if not len(groups):
            groups = np.zeros((0, 1), np.int64)
        counts.rounds, counts.propagated = 1, groups.shape[1]
        found = []
        for version in (Version.OLD, Version.NEW):
            held, call = asking[version].tables, asking[version].plan.groups[a.result]
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


def _signed(deltas: Iterable[tuple[str, Delta]]) -> _Signed:
    """Return the rows of deltas by relation and sign, without those that are empty."""
    found: _Signed = {}
    for name, delta in deltas:
        for rows, sign in ((delta.inserted, 1), (delta.deleted, -1)):
            if rows.shape[1]:
                found[name, sign] = rows
    return found


def _united(rows: Words, others: Words) -> Words:
    return distinct(np.concatenate([rows, others], axis=1))[0]
