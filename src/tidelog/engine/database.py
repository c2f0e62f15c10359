"""A program and its data, in this process.

db = tidelog.Database(program_text)
with db.transaction() as tx:
    tx.insert("edge", [("a", "b")])
tx.changes["reach"].inserted
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.engine.explain import explain
from tidelog.engine.oracle import ReferenceEngine
from tidelog.engine.protocol import Effects, Engine
from tidelog.engine.reads import Reader
from tidelog.engine.report import EpochReport
from tidelog.engine.transaction import Transaction
from tidelog.engine.view import View
from tidelog.errors import UsageError, did_you_mean
from tidelog.io.tabular import RowReader
from tidelog.logic.program import Program, Relation
from tidelog.maintain.interrupts import Interrupts
from tidelog.values.types import Row

if TYPE_CHECKING:
    from tidelog.maintain.progress import Progress

T = TypeVar("T")


class Database:
    """Keeps the views of a program fresh while its facts change.

    `program` is the text of a program, a Path to one, or a checked `Program`. `facts` gives rows to
    start with, by relation. Starting with them is not the same as inserting them: the rules are
    never evaluated on nothing, where an average would divide by 0. `engine` is "kernel", which
    follows the changes, or "reference", which evaluates the program anew in every epoch.
    `progress` is called with a `Progress` a few times a second while the kernel is at work; what it
    raises ends the transaction.
    """

    def __init__(
        self,
        program: str | Path | Program,
        *,
        facts: Mapping[str, Any] | None = None,
        engine: str = "kernel",
        progress: Callable[[Progress], object] | None = None,
        _expects_updates: bool = True,
    ) -> None:
        self._program = _program(program)
        self._row_readers: dict[str, RowReader] = {}
        given = {name: self._row_reader(name).rows(rows) for name, rows in (facts or {}).items()}
        self._engine = _engine(engine, self._program, given, progress, _expects_updates)
        self._epoch = 0
        self._current: Transaction | None = None
        self._lock = threading.Lock()
        self._reading = threading.RLock()
        self._committing = False

    @property
    def program(self) -> Program:
        """The checked program."""
        return self._program

    @property
    def epoch(self) -> int:
        """The number of committed transactions."""
        return self._epoch

    def transaction(self) -> Transaction:
        """Return a transaction, to be used in a `with` statement. One can be open at a time."""
        return Transaction(self)

    def view(self, name: str) -> View:
        """Return a relation to read from: the committed rows, given and derived."""
        relation = self.relation(name)
        return View(relation, self._program.records, partial(self._ask, name))

    def relation(self, name: str) -> Relation:
        """Return the declaration of a relation; raise UsageError if there is none."""
        try:
            return self._program.relations[name]
        except KeyError:
            hint = did_you_mean(name, self._program.relations)
            raise UsageError(
                f"relation `{name}` is not declared" + (f"; {hint}" if hint else "")
            ) from None

    @property
    def engine(self) -> str:
        """The name of the engine underneath."""
        return self._engine.name

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation transactions have inserted."""
        self.relation(relation)
        return self._engine.given_count(relation)

    @property
    def last_epoch(self) -> EpochReport:
        """What the last committed epoch did: strategies, rows and times, layer by layer."""
        return self._engine.last_epoch

    @property
    def memory(self) -> Mapping[str, int]:
        """The bytes that each relation takes, in all its orders; empty on the reference engine.

        Names with `@` are relations that the kernel has made for aggregates and negations.
        """
        return self._engine.memory

    def explain(self, view: str | None = None, *, plans: bool = False) -> str:
        """Return how the views, or one of them, are computed; with `plans` every join, too."""
        if view is not None:
            self.relation(view)
        details = self._engine.details()
        return explain(self._program, self._engine.name, view, details, plans=plans)

    def _row_reader(self, name: str) -> RowReader:
        """Return what takes rows for a relation; raise UsageError if there is none."""
        found = self._row_readers.get(name)
        if found is None:
            found = RowReader(self.relation(name), self._program.records)
            self._row_readers[name] = found
        return found

    def __repr__(self) -> str:
        relations = len(self._program.relations)
        return f"<Database {self._program.name}: {relations} relations, epoch {self._epoch}>"

    # --- called by Transaction ---

    def _begin(self, transaction: Transaction) -> None:
        with self._lock:
            if self._current is not None:
                raise UsageError("another transaction is open; a database has one writer at a time")
            self._current = transaction

    def _end(self, transaction: Transaction) -> None:
        with self._lock:
            self._current = None

    def _commit(
        self,
        inserted: Mapping[str, Set[Row]],
        deleted: Mapping[str, Set[Row]],
        interrupts: Interrupts,
    ) -> Effects:
        """Commit an epoch."""
        with self._reading:
            self._committing = True
            try:
                effects = self._engine.apply(inserted, deleted, interrupts)
                self._epoch += 1
            finally:
                self._committing = False
        return effects

    # --- called by View ---

    def _ask(self, relation: str, question: Callable[[Reader], T]) -> T:
        with self._reading:  # other threads wait for the end of an epoch
            if self._committing:
                raise UsageError("views cannot be read while a transaction commits")
            return question(self._engine.reader(relation))


def _engine(
    name: str,
    program: Program,
    given: Mapping[str, list[Row]],
    progress: Callable[[Progress], object] | None,
    expects_updates: bool,
) -> Engine:
    if name == "reference":
        return ReferenceEngine(program, given)
    if name == "kernel":
        from tidelog.engine.kernel import KernelEngine

        return KernelEngine(program, given, progress, expects_updates=expects_updates)
    raise UsageError(f"there is no engine `{name}`; there are reference and kernel")


def _program(program: str | Path | Program) -> Program:
    match program:
        case Program():
            return program
        case Path():
            return Program.load(program)
        case str():
            return Program.parse(program)
    raise UsageError(f"a program is text, a Path or a Program, not {type(program).__name__}")
