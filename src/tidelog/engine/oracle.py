"""The reference engine as the engine under a database: evaluate again, compare, keep the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tidelog.engine.protocol import NetChange
from tidelog.logic.program import Program
from tidelog.reference import evaluate
from tidelog.values.types import Row


class ReferenceEngine:
    """Evaluates the program from scratch in every epoch. Right, and as slow as that sounds."""

    name = "reference"

    def __init__(self, program: Program, given: Mapping[str, Iterable[Row]]) -> None:
        self._program = program
        self._given = {name: frozenset(given.get(name, ())) for name in program.relations}
        self._rows = evaluate(program, self._given)

    def given(self, relation: str) -> Set[Row]:
        """Return the given rows of a relation."""
        return self._given[relation]

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation."""
        return self._rows[relation]

    def apply(self, changes: Mapping[str, NetChange]) -> Mapping[str, NetChange]:
        """Commit one epoch and return the net change of every relation that changed."""
        given = dict(self._given)
        for name, change in changes.items():
            given[name] = (given[name] - change.deleted) | change.inserted
        rows = evaluate(self._program, given)  # raises before anything is kept
        effects = {
            name: NetChange(after - self._rows[name], self._rows[name] - after)
            for name, after in rows.items()
            if after != self._rows[name]
        }
        self._given, self._rows = given, rows
        return effects
