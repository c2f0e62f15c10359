"""Functional relations: one value for each key, checked when an epoch is about to commit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidelog.errors import FunctionalConflict
from tidelog.join.failures import Attempt, match_atoms
from tidelog.join.group_lookup import GroupLookup
from tidelog.join.joins import HEAD, AtomReading, reading
from tidelog.logic.program import Program, Relation
from tidelog.maintain.recompute import Recompute
from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words
from tidelog.store.versions import Version
from tidelog.values.text import format_value
from tidelog.values.types import Row


class FunctionalCheck:
    """Finds keys with two values, and says where both come from."""

    def __init__(
        self, program: Program, catalog: Catalog, recomputed: Callable[[str], Recompute | None]
    ) -> None:
        """Prepare lookups by key; `recomputed` returns what re-evaluates a relation, if any."""
        self._program = program
        self._catalog = catalog
        self._recomputed = recomputed
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
        """Return where a row comes from, as text for an error."""
        for fact in self._program.facts:
            if fact.relation == name and fact.row == row:
                return f"a fact of the program, {fact.span}"
        words = self._catalog.pack(name, self._catalog.encode(name, [row]))
        if self._catalog.given[name].find(words).present[0]:
            return "a given fact"
        recomputed = self._recomputed(name)
        if recomputed is None:
            return self._derived(self._catalog, name, row, words)
        with recomputed.evaluated() as private:  # what its rules read exists only here
            return self._derived(private, name, row, words)

    def _derived(self, catalog: Catalog, name: str, row: Row, words: Words) -> str:
        """Return in words which rule derives a row."""
        for layer in catalog.lowered.layers:
            for rule in layer.rules:
                if rule.head.relation == name:
                    values = _derivation(catalog, rule, words)
                    if values is not None:
                        shown = ", ".join(f"{n} = {v!r}" for n, v in values.items())
                        return f"derived by {rule.text}  ({rule.span})" + (
                            f" with {shown}" if shown else ""
                        )
        raise AssertionError(f"{name}{row} comes from nowhere")


def _derivation(catalog: Catalog, rule: LoweredRule, words: Words) -> dict[str, object] | None:
    """Return the values of the variables with which the rule derives a row."""

    def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
        return reading(catalog.relations[atom.relation].index(order), Version.NEW)

    slots, bindings = match_atoms(catalog, rule, HEAD, read, [Run(words)])
    attempt = Attempt(catalog, rule, read)
    for binding in bindings.T.tolist():
        values = dict(zip(slots, binding, strict=True))
        if attempt.holds(values):
            return attempt.shown(values)
    return None
