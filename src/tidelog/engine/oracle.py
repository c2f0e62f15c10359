"""The reference engine as the engine under a database: evaluate again, compare, keep the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tidelog.engine.protocol import Effects, Ignored, NetChange
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

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given."""
        return len(self._given[relation])

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation."""
        return self._rows[relation]

    def apply(self, inserted: Mapping[str, Set[Row]], deleted: Mapping[str, Set[Row]]) -> Effects:
        """Commit one epoch: change the given rows, evaluate, and compare."""
        given = dict(self._given)
        ignored = {}
        for name in dict.fromkeys([*inserted, *deleted]):
            adds, removes = inserted.get(name, frozenset()), deleted.get(name, frozenset())
            unused = Ignored(frozenset(adds & given[name]), frozenset(removes - given[name]))
            if unused:
                ignored[name] = unused
            given[name] = (given[name] - removes) | adds
        rows = evaluate(self._program, given)  # raises before anything is kept
        changes = {
            name: NetChange(after - self._rows[name], self._rows[name] - after)
            for name, after in rows.items()
            if after != self._rows[name]
        }
        self._given, self._rows = given, rows
        return Effects(changes, ignored)
