"""What a proof needs to know about the state of a database, found in the plain way.

`StateRows` answers from the readers of an engine. `StoredRows` (proof/stored.py) adds what only the
kernel has: levels, and joins that start from one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from tidelog.engine.reads import Reader
from tidelog.logic.program import Program
from tidelog.proof.rules import ProofRule
from tidelog.reference.solve import Assignment, Solver
from tidelog.source import Span
from tidelog.values.types import Row


class ReadableState(Protocol):
    """What an engine offers to proofs: its committed rows."""

    def reader(self, relation: str) -> Reader:
        """Return a reader for the committed rows of a relation."""

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted a row."""


class StateRows:
    """The committed rows of a database, looked up one relation at a time."""

    def __init__(self, program: Program, engine: ReadableState) -> None:
        self.program = program
        self._engine = engine
        self._facts = {(fact.relation, fact.row): fact for fact in program.facts}
        self._readers: dict[str, Reader] = {}
        self.relations: Mapping[str, _Rows] = {
            name: _Rows(self, name) for name in program.relations
        }
        self.solver = Solver(self.relations, program.records)
        """Finds the solutions of literals in these rows."""

    def has(self, relation: str, row: Row) -> bool:
        """Return whether a row is in a relation."""
        return row in self._reader(relation)

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted the row."""
        return self._engine.is_given(relation, row)

    def fact_span(self, relation: str, row: Row) -> Span | None:
        """Return where the program states a row; None if it does not."""
        found = self._facts.get((relation, row))
        return None if found is None else found.span

    def lookup(self, relation: str, positions: tuple[int, ...], key: Row) -> Iterable[Row]:
        """Return the rows whose columns at `positions` hold `key`, in the order of values."""
        reader = self._reader(relation)
        if len(positions) == len(self.program.relations[relation].columns):
            return (key,) if key in reader else ()
        return reader.where(dict(zip(positions, key, strict=True)))

    def _reader(self, relation: str) -> Reader:
        found = self._readers.get(relation)
        if found is None:
            found = self._readers[relation] = self._engine.reader(relation)
        return found

    # --- what an engine may know better ---

    def level(self, relation: str, row: Row) -> int | None:
        """Return the level of a row of a recursion; None if levels are not kept."""
        return None

    def derivations(
        self, rule: ProofRule, row: Row, level: int | None = None
    ) -> Iterator[Assignment]:
        """Yield the values of the rule's variables with which it derives a row.

        With a level, only derivations from rows of the recursion that are below it.
        """
        assert level is None, "there are no levels here"
        for start in self.solver.matched(rule.pattern, row, {}):
            for found, failure in self.solver.solutions(rule.goals, start):
                if failure is None:
                    yield found


class _Rows:
    """The rows of one relation, as a `Solver` reads them."""

    def __init__(self, state: StateRows, name: str) -> None:
        self._state, self._name = state, name

    def lookup(self, positions: tuple[int, ...], key: Row) -> Iterable[Row]:
        """Return the rows whose columns at `positions` hold `key`."""
        return self._state.lookup(self._name, positions, key)
