"""A program and its data, in this process.

db = tidelog.Database(program_text)
with db.transaction() as tx:
    tx.insert("edge", [("a", "b")])
tx.changes["reach"].inserted
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.engine.explain import explain
from tidelog.engine.oracle import ReferenceEngine
from tidelog.engine.protocol import Effects, Engine, Requested
from tidelog.engine.reads import Reader
from tidelog.engine.report import EpochReport
from tidelog.engine.settings import Settings
from tidelog.engine.transaction import Transaction
from tidelog.engine.view import View
from tidelog.errors import UsageError, did_you_mean
from tidelog.io.tabular import RowReader
from tidelog.logic.program import Program, Relation
from tidelog.maintain.interrupts import Interrupts
from tidelog.maintain.limits import Limits, size_in_bytes
from tidelog.values.types import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.durable.files import Files
    from tidelog.engine.history import Past
    from tidelog.engine.keeper import Keeper
    from tidelog.engine.kernel import KernelEngine
    from tidelog.engine.reader import DatabaseReader
    from tidelog.engine.state_report import Opened, StateReport
    from tidelog.engine.view import Change
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

    With a `path` the database is durable: it is kept in the files of that folder, and opened from
    them again. `durability` says when a commit returns (engine/settings.py), `retain_epochs` and
    `retain_seconds` how far `at` and `changes` can look back, `on_program_change` what happens to
    files of another program: "refuse" or "rebuild". `memory_limit` (such as "2GB", of the whole
    process), `time_limit` (seconds) and `level_limit` (of a recursion) end an epoch with a
    LimitError.
    """

    def __init__(
        self,
        program: str | Path | Program,
        *,
        facts: Mapping[str, Any] | None = None,
        engine: str = "kernel",
        progress: Callable[[Progress], object] | None = None,
        path: str | Path | None = None,
        durability: str = "commit",
        sync_seconds: float = 0.1,
        retain_epochs: int = 100,
        retain_seconds: float = 0.0,
        on_program_change: str = "refuse",
        verify: bool = True,
        memory_limit: int | str | None = None,
        time_limit: float | None = None,
        level_limit: int | None = None,
        _expects_updates: bool = True,
        _files: Files | None = None,
        _settings: Mapping[str, int] | None = None,
        _first_epoch: int = 0,
    ) -> None:
        self._program = _program(program)
        self._row_readers: dict[str, RowReader] = {}
        given = {name: self._row_reader(name).rows(rows) for name, rows in (facts or {}).items()}
        limits = Limits(size_in_bytes(memory_limit), time_limit, level_limit)
        settings = Settings(
            durability, sync_seconds, retain_epochs, retain_seconds, on_program_change, verify,
            **(_settings or {}),
        )  # fmt: skip
        make = partial(_engine, engine, self._program, progress, _expects_updates, limits)
        self._engine: Engine
        self._keeper: Keeper | None = None
        if path is None and _files is None:
            self._engine = make(given)
        else:
            from tidelog.durable.files import Files
            from tidelog.engine.opening import open_state

            if engine != "kernel":
                raise UsageError("a durable database needs the kernel")
            files = Files(str(path)) if _files is None else _files
            self._engine, self._keeper = open_state(
                files, settings, self._program, given, make, _first_epoch
            )
        self._epoch = 0 if self._keeper is None else self._keeper.epoch
        self._writing = threading.Lock()  # held while a transaction is open
        self._owner = 0
        self._waits = self._keeper is not None and durability == "group"
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

    # --- durable databases ---

    @staticmethod
    def reader(path: str | Path, *, verify: bool = True) -> DatabaseReader:
        """Return the views of the durable database in a folder, for reading beside its writer."""
        from tidelog.engine.reader import DatabaseReader

        return DatabaseReader(path, verify=verify)

    @property
    def opened(self) -> Opened | None:
        """How the database came to its state: what was mapped, replayed or rebuilt."""
        return None if self._keeper is None else self._keeper.opened

    @property
    def state(self) -> StateReport | None:
        """What the files of the database hold; None for one that is in memory only."""
        return None if self._keeper is None else self._keeper.report()

    def at(self, epoch: int) -> Past:
        """Return the database as it was at an epoch, for reading, while that is retained."""
        from tidelog.engine.history import Past, check_retained
        from tidelog.engine.kernel import KernelEngine

        keeper = self._durable()
        check_retained(epoch, keeper.oldest_epoch, self._epoch)
        assert isinstance(self._engine, KernelEngine)
        return Past(epoch, self._program, self._engine._catalog, keeper.records, self._reading)

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return (epoch, change) for each epoch after `since` that changed a view, in order."""
        from tidelog.engine.history import changes_since, check_retained
        from tidelog.engine.kernel import KernelEngine

        self.relation(view)
        keeper = self._durable()
        check_retained(since, keeper.oldest_epoch, self._epoch)
        assert isinstance(self._engine, KernelEngine)
        codec = self._engine._catalog.codec
        return changes_since(view, self._program, codec, keeper.records(since))

    def snapshot(self) -> None:
        """Write a snapshot now, so that opening has nothing to replay."""
        keeper = self._durable()
        with self._reading:
            keeper.snapshot()

    def close(self) -> None:
        """Have everything on the disk, and let others write. A closed database can be read."""
        if self._keeper is not None:
            self._keeper.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _durable(self) -> Keeper:
        if self._keeper is None:
            raise UsageError("this database is in memory only; a durable one has a `path`")
        return self._keeper

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

    def _begin(self) -> None:
        """Let a transaction be open from now on; wait for another one if commits are shared."""
        if not self._writing.acquire(blocking=False):
            if not self._waits or self._owner == threading.get_ident():
                raise UsageError("another transaction is open; a database has one writer at a time")
            self._writing.acquire()
        self._owner = threading.get_ident()

    def _end(self) -> None:
        self._owner = 0
        self._writing.release()

    def _wait_until_durable(self, epoch: int) -> None:
        """Return when an epoch is on the disk, if commits of several threads share the wait."""
        if self._waits and self._keeper is not None:
            self._keeper.make_durable(epoch)

    def _commit(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts,
    ) -> Effects:
        """Commit an epoch."""
        with self._reading:
            self._committing = True
            try:
                effects = self._engine.apply(inserted, deleted, interrupts)
                self._epoch += 1
            except BaseException as error:
                if self._keeper is not None and self._keeper.epoch != self._epoch:
                    self._keeper.lost(error)
                raise
            finally:
                self._committing = False
        if self._keeper is not None:
            self._keeper.committed()
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
    progress: Callable[[Progress], object] | None,
    expects_updates: bool,
    limits: Limits,
    given: Mapping[str, Collection[Row]],
    restore: Callable[[KernelEngine], None] | None = None,
) -> Any:
    if name == "reference":
        return ReferenceEngine(program, given)
    if name == "kernel":
        from tidelog.engine.kernel import KernelEngine

        return KernelEngine(
            program, given, progress, expects_updates=expects_updates, limits=limits or None,
            restore=restore,
        )  # fmt: skip
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
