"""Functional relations: one value for each key, checked when an epoch is about to commit."""

from __future__ import annotations

import numpy as np

from tidelog.errors import FunctionalConflict
from tidelog.logic.program import Program, Relation
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.failures import HEAD, Attempt, match_atoms
from tidelog.maintain.group_lookup import GroupLookup
from tidelog.maintain.joins import Reading, reading
from tidelog.plan.body import AtomUse, Rule
from tidelog.store.run import Run, Words
from tidelog.store.versions import Version
from tidelog.values.text import format_value
from tidelog.values.types import Row


class FunctionalCheck:
    """Finds keys with two values, and tells where both come from."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        self._program = program
        self._catalog = catalog
        self._lookups = {
            relation.name: GroupLookup(catalog, relation.name, tuple(range(relation.arity - 1)))
            for relation in program.relations.values()
            if relation.functional
        }

    def check(self, *, new_only: bool) -> None:
        """Raise FunctionalConflict for a key with two values, among new rows or all."""
        for name, lookup in self._lookups.items():
            stored = self._catalog.relations[name]
            rows = stored.delta.inserted if new_only else stored.rows(Version.NEW)
            if rows.shape[1] == 0:
                continue
            keys = stored.unpack(rows)[:-1]
            keys = np.unique(keys, axis=1) if len(keys) else np.empty((0, 1), np.int64)
            number, columns = lookup.read(keys, Version.NEW)
            twice = np.flatnonzero(np.bincount(number, minlength=keys.shape[1]) > 1)
            if len(twice):
                which = number == twice[0]
                types = self._catalog.types(name)
                found = self._catalog.codec.decode_rows(columns[:, which], types)
                words = self._catalog.pack(name, columns[:, which])
                raise self._conflict(self._program.relations[name], found[:2], words)

    def _conflict(self, relation: Relation, rows: list[Row], words: Words) -> FunctionalConflict:
        def shown(row: Row, start: int, stop: int | None) -> str:
            columns = relation.columns[start:stop]
            values = zip(row[start:stop], columns, strict=True)
            return ", ".join(format_value(v, c.type, self._program.records) for v, c in values)

        lines = [f"`{relation.name}[{shown(rows[0], 0, -1)}]` has two values"]
        for row in self._catalog.decode(relation.name, words)[:2]:
            lines.append(f"  = {shown(row, -1, None)}: {self._origin(relation.name, row)}")
        lines.append("  help: a functional relation has one value for each key")
        return FunctionalConflict("\n".join(lines))

    def _origin(self, name: str, row: Row) -> str:
        """Return in words where a row comes from."""
        for fact in self._program.facts:
            if fact.relation == name and fact.row == row:
                return f"a fact of the program, {fact.span}"
        words = self._catalog.pack(name, self._catalog.encode(name, [row]))
        if self._catalog.given[name].find(words).present[0]:
            return "a given fact"
        for layer in self._catalog.lowered.layers:
            for rule in layer.rules:
                if rule.head.relation == name:
                    values = self._derivation(rule, words)
                    if values is not None:
                        told = ", ".join(f"{n} = {v!r}" for n, v in values.items())
                        return f"derived by {rule.text}  ({rule.span})" + (
                            f" with {told}" if told else ""
                        )
        raise AssertionError(f"{name}{row} comes from nowhere")

    def _derivation(self, rule: Rule, words: Words) -> dict[str, object] | None:
        """Return the values of the variables with which the rule derives a row."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            index = self._catalog.relations[atom.relation].index(order)
            return reading(index, Version.NEW)

        slots, bindings = match_atoms(self._catalog, rule, HEAD, read, [Run(words)])
        attempt = Attempt(self._catalog, rule, read)
        for binding in bindings.T.tolist():
            values = dict(zip(slots, binding, strict=True))
            if attempt.holds(values):
                return attempt.shown(values)
        return None
