"""Tables: the answers of a demand program (plan/demand.py), computed when they are asked for.

Rows that are asked for are inserted, and rules are evaluated semi-naively until nothing new is
found: each rule is joined from the rows that are new in one of its atoms. There are neither levels
nor counts. A row that was found stays, so asking again costs nothing, and asking for more costs
what is missing. That is how the memo tables of an epoch work: there is one set of tables for each
version of the stored relations, filled by all questions of the epoch.

Units run in order: a unit that has new rows to read runs before those behind it. When a unit runs,
those before it are at rest. So all that was asked of them is answered, and `done` relations and
aggregates of the unit can take what they were waiting for.

Stored relations are read as they are, in one version; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tidelog.join.gather import distinct
from tidelog.join.joins import AtomReading, reading
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.aggregate import Aggregate
from tidelog.maintain.aggregations import class_of
from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.plan.demand import DemandProgram, DemandUnit
from tidelog.store.catalog import Catalog
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.versions import Version
from tidelog.values.types import Type


class Tables:
    """The relations of a demand program, over the stored relations of a catalog."""

    def __init__(
        self,
        catalog: Catalog,
        program: DemandProgram,
        version: Version,
        stored: Mapping[str, tuple[Type, ...]] | None = None,
    ) -> None:
        """Make the tables; `stored` has the stored relations, if not those of the catalog."""
        self._catalog, self._version = catalog, version
        stored = catalog.lowered.relations if stored is None else stored
        lowered = program.lowered(stored)
        domains = _domains(catalog, program, stored)
        self._private = catalog.overlaid(lowered, domains, program.relations)
        self._own = {name: self._private.relations[name] for name in program.relations}
        self._units = [_Unit(self, unit) for unit in program.units]
        self._readers: dict[str, list[_Unit]] = {}
        for unit in self._units:
            for name in unit.reads:
                self._readers.setdefault(name, []).append(unit)
        self._watched: dict[str, list[Words]] = {}
        self._stamp: object = None
        self._is_empty = True

    @property
    def catalog(self) -> Catalog:
        """The relations of the program, and the stored ones that it reads."""
        return self._private

    def relation(self, name: str) -> StoredRelation:
        """Return one of the program's relations."""
        return self._own[name]

    def has(self, name: str) -> bool:
        """Return whether the program has a relation."""
        return name in self._own

    def rules_of(self, name: str) -> list[LoweredRule]:
        """Return the rules that derive one of the program's relations."""
        rules = (rule for unit in self._units for rule in unit.rules)
        return [rule for rule in rules if rule.head.relation == name]

    def watch(self, name: str) -> None:
        """Collect the new rows of a relation from now on, to be `taken`."""
        if name in self._own:
            self._watched[name] = []

    def taken(self, name: str) -> Words | None:
        """Return the new rows of a relation since they were last taken; None if there are none."""
        parts = self._watched.get(name)
        if not parts:
            return None
        self._watched[name] = []
        return _united(parts)

    def begin(self) -> None:
        """Follow changes of the stored relations since the tables were last used."""
        catalog, private = self._catalog, self._private
        private.meter = catalog.meter
        if self._stamp is not catalog.stamp:
            self._stamp = catalog.stamp
            private.relayout()
            private.stamp = object()

    def clear(self) -> None:
        """Forget everything, also after a failure."""
        if self._is_empty:
            return
        for relation in self._own.values():
            relation.abort()
            if relation.stored:
                relation.replace_runs([])
        for unit in self._units:
            unit.clear()
        for parts in self._watched.values():
            parts.clear()
        self._is_empty = True

    def ask(self, asked: Mapping[str, Words]) -> dict[str, Words]:
        """Insert rows into relations, and compute all that follows.

        Returns the rows that are new in those relations.
        """
        self._is_empty = False
        new = {name: self.insert(name, rows) for name, rows in asked.items()}
        while True:
            unit = next((unit for unit in self._units if unit.has_work()), None)
            if unit is None:
                return new
            unit.run()
            self._catalog.meter.found(0)

    def insert(self, name: str, rows: Words) -> Words:
        """Insert sorted rows, and tell the units that read them; return those that are new."""
        relation = self._own[name]
        new, _ = relation.split(rows)
        if new.shape[1]:
            relation.change(new, relation.no_rows())
            relation.commit()
            self._private.note_size(relation)
            if name in self._watched:
                self._watched[name].append(new)
            for unit in self._readers.get(name, ()):
                unit.notify(name, new)
        return new

    def aggregated(self, name: str, rows: Words) -> None:
        """Commit what an aggregate has inserted into a relation, and tell the units."""
        relation = self._own[name]
        relation.commit()
        if rows.shape[1]:
            for unit in self._readers.get(name, ()):
                unit.notify(name, rows)

    def read(self, place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
        """Return what an atom reads: all of a table, or one version of a stored relation."""
        index = self._private.relations[atom.relation].index(order)
        is_own = atom.relation in self._own
        return reading(index, Version.NEW if is_own else self._version)


class _Unit:
    """Rules and aggregates that are evaluated together."""

    def __init__(self, tables: Tables, unit: DemandUnit) -> None:
        self._tables = tables
        self._joins = [RuleJoins(tables.catalog, rule) for rule in unit.rules]
        self._drivers: dict[str, list[tuple[RuleJoins, int]]] = {}
        catalog = tables.catalog
        own = catalog.relations
        for joins in self._joins:
            for place, atom in joins.rule.positive:
                self._drivers.setdefault(atom.relation, []).append((joins, place))
        self._done = {asked: done for done, asked in unit.done.items()}
        self._aggregates = [
            _Aggregated(tables, unit.staged[a.source], own[a.source], class_of(a)(catalog, a))
            for a in unit.aggregations
        ]
        self._new: dict[str, list[Words]] = {}
        self._asked: dict[str, list[Words]] = {}

    @property
    def rules(self) -> list[LoweredRule]:
        """Its rules."""
        return [joins.rule for joins in self._joins]

    @property
    def reads(self) -> set[str]:
        """The relations whose new rows make it run."""
        staged = {aggregate.answers for aggregate in self._aggregates}
        return {*self._drivers, *self._done, *staged}

    def notify(self, name: str, rows: Words) -> None:
        """Note rows that are new in a relation."""
        if name in self._drivers:
            self._new.setdefault(name, []).append(rows)
        if name in self._done:
            self._asked.setdefault(name, []).append(rows)
        for aggregate in self._aggregates:
            if aggregate.answers == name:
                aggregate.waiting.append(rows)

    def has_work(self) -> bool:
        """Return whether there is something new to read."""
        return bool(self._new or self._asked or any(a.waiting for a in self._aggregates))

    def clear(self) -> None:
        """Forget what is new."""
        self._new.clear()
        self._asked.clear()
        for aggregate in self._aggregates:
            aggregate.clear()

    def run(self) -> None:
        """Evaluate once what is new. All units before this one are at rest."""
        tables = self._tables
        asked, self._asked = self._asked, {}
        for name, parts in asked.items():
            tables.insert(self._done[name], _united(parts))
        for aggregate in self._aggregates:
            aggregate.run()
        new, self._new = self._new, {}
        found: dict[str, list[Words]] = {}
        for name, parts in new.items():
            driver = [Run(_united(parts))]
            for joins, place in self._drivers[name]:
                for instances in joins.run(place, PLAIN, tables.read, driver, after=tables.read):
                    rows = instances.rows
                    if rows.shape[1]:
                        kept = found.setdefault(joins.rule.head.relation, [])
                        kept.append(distinct(rows)[0])
        for name, parts in found.items():
            tables.insert(name, _united(parts))


class _Aggregated:
    """An aggregate over the answers of a unit before: it takes the rows of whole groups."""

    def __init__(
        self, tables: Tables, answers: str, source: StoredRelation, strategy: Aggregate
    ) -> None:
        self.answers = answers
        self.waiting: list[Words] = []
        self._tables, self._strategy, self._source = tables, strategy, source
        self._is_new = True

    def clear(self) -> None:
        self.waiting.clear()
        self._is_new = True

    def run(self) -> None:
        """Aggregate the groups that have become complete."""
        if not self.waiting:
            return
        rows, self.waiting = _united(self.waiting), []
        source, strategy = self._source, self._strategy
        if self._is_new:
            self._is_new = False
            strategy.bootstrap()  # of no rows
        source.record(source.change(rows, source.no_rows()))
        for name, delta in strategy.update().items():
            self._tables.aggregated(name, delta.inserted)
            assert not delta.deleted.shape[1], "a group was not complete"
        source.commit()


def _united(parts: Sequence[Words]) -> Words:
    """Return sorted sets of rows as one."""
    if len(parts) == 1:
        return parts[0]
    return distinct(np.concatenate(parts, axis=1))[0]


def _domains(
    catalog: Catalog, program: DemandProgram, stored: Collection[str]
) -> dict[str, tuple[Domain, ...]]:
    """Return the domains of the program's relations: mostly those of stored columns."""
    raw, unit = Domain(), Domain()
    raw.bits = RAW_BITS
    found: dict[str, tuple[Domain, ...]] = {}

    def domain(origin: tuple[str, int] | None) -> Domain:
        if origin is None:
            return raw
        name, column = origin
        if name not in found and name in program.origins and name not in stored:
            add(name)
        return (found[name] if name in found else catalog.domains(name))[column]

    def add(name: str) -> None:
        found[name] = tuple(map(domain, program.origins[name])) or (unit,)

    for name in program.relations:
        if name not in found:
            add(name)
    return found
