"""Proofs in the committed state of an engine: what a database calls.

Joins are compiled once, and reused by later proofs; what a proof finds is not, because an epoch may
change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import Engine
from tidelog.errors import UsageError
from tidelog.logic.program import Program
from tidelog.proof.facts import StateRows
from tidelog.proof.gaps import WhyNot
from tidelog.proof.missing import GapSearch
from tidelog.proof.search import ProofSearch
from tidelog.proof.stored import JoinCache, StoredRows
from tidelog.proof.tree import Proof
from tidelog.proof.words import Words
from tidelog.values.types import Row


class Proofs:
    """Finds proofs for one program on one engine."""

    def __init__(self, program: Program, engine: Engine) -> None:
        self._program, self._engine = program, engine
        self._joins = JoinCache(program, engine) if isinstance(engine, KernelEngine) else None

    def is_of(self, program: Program, engine: Engine) -> bool:
        """Return whether these are the proofs of a program on an engine."""
        return self._program is program and self._engine is engine

    def why(self, relation: str, row: Row) -> Proof:
        """Return the proof of a row; raise UsageError if the row is not there."""
        with self._state() as state:
            if not state.has(relation, row):
                text = Words(self._program).row(relation, row)
                raise UsageError(
                    f"{text} is not in `{relation}`"
                    "\n  help: `why_not`, or `tidelog why --not`, says what is missing"
                )
            return ProofSearch(state).prove(relation, row)

    def why_not(self, relation: str, row: Row, depth: int) -> WhyNot:
        """Return what is missing for a row, down to a depth."""
        with self._state() as state:
            return GapSearch(ProofSearch(state)).explain(relation, row, depth)

    @contextmanager
    def _state(self) -> Iterator[StateRows]:
        if self._joins is None:
            yield StateRows(self._program, self._engine)
            return
        with StoredRows(self._joins) as rows:
            yield rows
