"""The inside of a `Database`: an engine, its files, and the locks around both.

`Database`, `Transaction` and `View` are the Python API on top of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.engine.protocol import Answer, Effects, Engine, Requested
from tidelog.engine.reads import Reader
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.errors import UsageError
from tidelog.io.facts import FactsFile
from tidelog.io.tabular import RowReader
from tidelog.logic.program import Program
from tidelog.persist.settings import Settings
from tidelog.runtime.interrupts import Interrupts
from tidelog.runtime.limits import Limits
from tidelog.values.types import Row

if TYPE_CHECKING:
    from tidelog.database.triggers import Triggers
    from tidelog.durable.files import Files
    from tidelog.engine.kernel import KernelEngine
    from tidelog.persist.state_writer import StateWriter
    from tidelog.proof.gaps import WhyNot
    from tidelog.proof.proofs import Proofs
    from tidelog.proof.tree import Proof
    from tidelog.runtime.progress import Progress
from tidelog.runtime.workers import threads_wanted

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """The options of a database; `Database` offers most of them as parameters."""

    engine: str = "kernel"
    progress: Callable[[Progress], object] | None = None
    limits: Limits = field(default_factory=Limits)
    expects_updates: bool = True
    """Whether the first evaluation also prepares for small updates."""
    files: Files | None = None
    """The files of a durable database; None for one in memory only."""
    settings: Settings = field(default_factory=Settings)
    strategies: Mapping[str, str] = field(default_factory=dict)
    """Strategies that are forced, by relation."""
    on_demand: bool = False
    """Whether the first evaluation is left out: what is read is computed then. For one reading."""
    threads: int | None = None
    """How many run large joins; None: what the environment says, or all cores."""
    first_epoch: int = 0
    """The epoch at which a new durable database starts."""


class DatabaseCore:
    """An engine with its files: one transaction at a time, and views read between commits."""

    def __init__(self, program: Program, facts: Mapping[str, Any], options: Options) -> None:
        self.program = program
        self._row_readers: dict[str, RowReader] = {}
        given = {name: self.row_reader(name).loaded(rows) for name, rows in facts.items()}
        self.engine: Engine
        self.state_writer: StateWriter | None = None
        if options.files is not None:
            from tidelog.persist.opening import open_state

            if options.engine != "kernel":
                raise UsageError("a durable database needs the kernel")
            self.engine = kernel = _empty_kernel(program, options)
            read = {
                n: rows.read() if isinstance(rows, FactsFile) else rows for n, rows in given.items()
            }
            self.state_writer = open_state(
                options.files, options.settings, kernel, read, options.first_epoch
            )
            self.program = kernel.program  # that of the files, if it is the same
        else:
            self.engine = _engine(program, given, options)
        self.epoch = 0 if self.state_writer is None else self.state_writer.epoch
        """The number of committed transactions."""
        self._writing = threading.Lock()  # held while a transaction is open
        self._owner = 0
        self._shares_syncs = (
            self.state_writer is not None and options.settings.durability == "group"
        )
        self.reading = threading.RLock()
        """Held while an epoch commits, and while a view is read."""
        self._committing = False
        self.triggers: Triggers | None = None
        """The triggers, once there is one."""
        self._proofs: Proofs | None = None

    @property
    def kernel(self) -> KernelEngine:
        """The engine, which must be the kernel."""
        from tidelog.engine.kernel import KernelEngine

        assert isinstance(self.engine, KernelEngine)
        return self.engine

    def row_reader(self, name: str) -> RowReader:
        """Return the reader that checks rows of a relation; raise UsageError for an unknown one."""
        found = self._row_readers.get(name)
        if found is None:
            found = RowReader(self.program.relation(name), self.program.records)
            self._row_readers[name] = found
        return found

    # --- transactions ---

    def begin(self) -> None:
        """Open a transaction; wait for that of another thread if commits share syncs."""
        if not self._writing.acquire(blocking=False):
            if not self._shares_syncs or self._owner == threading.get_ident():
                raise UsageError("another transaction is open; a database has one writer at a time")
            self._writing.acquire()
        self._owner = threading.get_ident()

    def end(self) -> None:
        """Close the transaction."""
        self._owner = 0
        self._writing.release()

    def commit(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts,
        program: Program | None = None,
    ) -> Effects:
        """Commit an epoch, which can change the program."""
        if program is not None and self.triggers is not None:
            self.triggers.check(program)
        writer = self.state_writer
        with self.reading:
            self._committing = True
            try:
                effects = self.engine.apply(inserted, deleted, interrupts, program)
                self.epoch += 1
                if program is not None:
                    self.program = program
                    self._row_readers.clear()
                    self._proofs = None
            except BaseException as error:
                if writer is not None and writer.epoch != self.epoch:
                    writer.lost(error)
                raise
            finally:
                self._committing = False
        if writer is not None:
            writer.committed()
        if self.triggers is not None:
            self.triggers.committed(self.epoch, effects.changes)
        return effects

    def wait_until_durable(self, epoch: int) -> None:
        """Return when an epoch is on the disk, if commits of several threads share syncs."""
        if self._shares_syncs and self.state_writer is not None:
            self.state_writer.make_durable(epoch)

    def run_triggers(self, epoch: int) -> None:
        """Deliver the events of all epochs up to this one. No transaction is open."""
        if self.triggers is not None:
            self.triggers.run(epoch)

    # --- reads ---

    def ask(self, relation: str, question: Callable[[Reader], T]) -> T:
        """Return the answer to a question about the committed rows of a relation."""
        with self.reading:  # other threads wait until the epoch ends
            if self._committing:
                raise UsageError("views cannot be read while a transaction commits")
            return question(self.engine.reader(relation))

    def query(self, text: str) -> Answer:
        """Return the answers to a query about the committed rows."""
        with self.reading:
            if self._committing:
                raise UsageError("a query cannot be asked while a transaction commits")
            return self.engine.query(text)

    # --- proofs ---

    def why(self, relation: str, row: Sequence[Any]) -> Proof:
        """Return the proof of a row; raise UsageError if the row is not there."""
        checked = self._checked(relation, row)
        with self._proving() as proofs:
            return proofs.why(relation, checked)

    def why_not(self, relation: str, row: Sequence[Any], depth: int) -> WhyNot:
        """Return what is missing for a row."""
        if depth < 1:
            raise UsageError(f"`depth` is at least 1, not {depth}")
        checked = self._checked(relation, row)
        with self._proving() as proofs:
            return proofs.why_not(relation, checked, depth)

    def _checked(self, relation: str, row: Sequence[Any]) -> Row:
        (checked,) = self.row_reader(relation).rows([tuple(row)])
        return checked

    @contextmanager
    def _proving(self) -> Iterator[Proofs]:
        """Return what finds proofs in the committed state; no epoch commits meanwhile."""
        from tidelog.proof.proofs import Proofs

        with self.reading:
            if self._committing:
                raise UsageError("there are no proofs while a transaction commits")
            if self._proofs is None or not self._proofs.is_of(self.program, self.engine):
                self._proofs = Proofs(self.program, self.engine)
            yield self._proofs


def _engine(program: Program, given: Mapping[str, Iterable[Row]], options: Options) -> Engine:
    if options.engine == "reference":
        if options.strategies:
            from tidelog.plan.planned import planned

            planned(program, options.strategies)  # refuses what the kernel would refuse
        return ReferenceEngine(program, given)
    if options.engine == "kernel":
        engine = _empty_kernel(program, options)
        if options.on_demand:
            engine.load_facts(given)
        else:
            engine.load(given)
        return engine
    raise UsageError(f"there is no engine `{options.engine}`; the engines are reference and kernel")


def _empty_kernel(program: Program, options: Options) -> KernelEngine:
    from tidelog.engine.kernel import KernelEngine

    return KernelEngine.empty(
        program,
        options.progress,
        expects_updates=options.expects_updates,
        limits=options.limits or None,
        strategies=options.strategies,
        threads=threads_wanted(options.threads),
    )
