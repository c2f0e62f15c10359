"""A program and its data, in this process.

db = tidelog.Database(program_text)
with db.transaction() as tx:
    tx.insert("edge", [("a", "b")])
tx.changes["reach"].inserted
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.database.core import DatabaseCore, Options
from tidelog.database.explain import explain
from tidelog.database.transaction import Transaction, ask_reader
from tidelog.database.view import Rows, View
from tidelog.engine.report import EpochReport
from tidelog.errors import UsageError
from tidelog.logic.program import Program, Relation
from tidelog.persist.settings import Settings
from tidelog.runtime.limits import Limits, size_in_bytes
from tidelog.runtime.retry import Retry
from tidelog.runtime.workers import threads_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.database.explain_kernel import KernelDetails
    from tidelog.database.past import Past
    from tidelog.database.reader import DatabaseReader
    from tidelog.database.trigger_event import TriggerFailure
    from tidelog.database.triggers import TriggerHandle, TriggerStatus
    from tidelog.database.view import Change
    from tidelog.engine.kernel import KernelEngine
    from tidelog.persist.state_report import Opened, StateReport
    from tidelog.persist.state_writer import StateWriter
    from tidelog.proof.gaps import WhyNot
    from tidelog.proof.tree import Proof
    from tidelog.runtime.progress import Progress
    from tidelog.values.types import Row


class Database:
    """Maintains the views of a program while its facts change.

    `program` is the text of a program, a Path to one, or a checked `Program`. `facts` has the first
    given rows, by relation. This is not the same as inserting them later: the rules are never
    evaluated on empty relations, where an average would divide by 0. `engine` is "kernel", which
    maintains views incrementally, or "reference", which re-evaluates the program in every epoch.
    `progress` is called with a `Progress` a few times a second while the kernel works; an exception
    from it ends the transaction.

    With a `path` the database is durable: its state is in the files of that folder, and the next
    `Database` with this path opens it again. `durability` says when a commit returns
    (persist/settings.py), `retain_epochs` and `retain_seconds` how far `at` and `changes` can go
    back, `on_program_change` what happens if the files are of another program: "refuse",
    "migrate" or "rebuild". `strategy` forces strategies, by relation, as `.view` directives do; one
    that cannot maintain its relation is a UsageError. `memory_limit` (such as "2GB", of the whole
    process), `time_limit` (seconds) and `level_limit` (of a recursion) end an epoch with a
    LimitError. Large joins run on `threads`; by default on as many as the environment variable
    TIDELOG_THREADS says, or on all cores.
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
        threads: int | None = None,
        strategy: Mapping[str, str] | None = None,
    ) -> None:
        files = None
        if path is not None:
            from tidelog.durable.files import Files

            files = Files(str(path))
        options = Options(
            engine=engine,
            progress=progress,
            limits=Limits(size_in_bytes(memory_limit), time_limit, level_limit),
            files=files,
            settings=Settings(
                durability, sync_seconds, retain_epochs, retain_seconds, on_program_change, verify
            ),
            strategies=dict(strategy or {}),
            threads=None if threads is None else threads_wanted(threads),
        )
        self._core = DatabaseCore(Program.of(program), facts or {}, options)

    @property
    def program(self) -> Program:
        """The checked program."""
        return self._core.program

    @property
    def epoch(self) -> int:
        """The number of committed transactions."""
        return self._core.epoch

    def transaction(self) -> Transaction:
        """Return a transaction, to be used in a `with` statement. One can be open at a time."""
        return Transaction(self._core)

    def add_rules(self, text: str) -> Transaction:
        """Add rules, facts, declarations and directives, as an epoch; return its transaction.

        Raises ProgramError, and leaves everything as it was, if there is a mistake in them.
        """
        with self.transaction() as transaction:
            transaction.add_rules(text)
        return transaction

    def drop_rules(self, text: str) -> Transaction:
        """Drop statements of the program, as an epoch; return its transaction.

        The text of a statement says which one it is; spaces, line ends and comments do not matter.
        """
        with self.transaction() as transaction:
            transaction.drop_rules(text)
        return transaction

    def view(self, name: str) -> View:
        """Return a relation to read from: the committed rows, given and derived."""
        core = self._core
        return View(self.relation(name), core.program.records, partial(core.ask, name))

    def query(self, body: str) -> Rows:
        """Return the answers to a query: a rule body such as `reach("a", x), !edge("a", x)`.

        A row has the variables of the body in the order in which they appear, without `_` and those
        inside of aggregates. Only what the question needs is computed: relations that are stored
        are looked up, the others are evaluated for the values that the question binds. The answers
        stay as they are when the database changes.
        """
        relation, reader = self._core.query(body)
        return Rows(relation, self._core.program.records, partial(ask_reader, reader))

    def on(
        self,
        event: str,
        action: Any,
        *,
        where: str | Callable[[Row], object] | None = None,
        name: str | None = None,
        retry: int | None = None,
        retry_seconds: float | None = None,
        on_error: Callable[[TriggerFailure], object] | None = None,
        queue: int = 1000,
    ) -> TriggerHandle:
        """Do something with the changes of a view, after each commit; return a handle.

        `event` is "+view" for inserted rows, "-view" for deleted ones, "view" for both. `action` is
        a function that takes an `Event`, a `queue.Queue`, a `Webhook` or a `JsonLines`. `where`
        selects rows: a condition in the language on the columns, or a function of a row. In a
        durable database, a trigger with a `name` is remembered: if a process ends before it has
        delivered an event, the next one delivers it when the name is registered again.

        An action that raises an exception is tried again `retry` times, with waits that double
        from `retry_seconds`, and then becomes a dead letter. `on_error` is called with each
        `TriggerFailure`. `queue` is how many events of an action on its own thread can wait.
        """
        from tidelog.database.triggers import Triggers

        policy = None
        if retry is not None or retry_seconds is not None:
            default = Retry()
            policy = Retry(
                default.times if retry is None else retry,
                default.seconds if retry_seconds is None else retry_seconds,
            )
        core = self._core
        if core.triggers is None:
            core.triggers = Triggers(core)
        return core.triggers.on(event, action, where, name, policy, on_error, queue)

    @property
    def triggers(self) -> tuple[TriggerStatus, ...]:
        """How each trigger is doing, in the order in which they were registered."""
        return tuple(handle.status for handle in self._core.triggers or ())

    def relation(self, name: str) -> Relation:
        """Return the declaration of a relation; raise UsageError if there is none."""
        return self._core.program.relation(name)

    @property
    def engine(self) -> str:
        """The name of the engine."""
        return self._core.engine.name

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation transactions have inserted."""
        self.relation(relation)
        return self._core.engine.given_count(relation)

    @property
    def last_epoch(self) -> EpochReport:
        """What the last committed epoch did: strategies, rows and times, layer by layer."""
        return self._core.engine.last_epoch

    @property
    def memory(self) -> Mapping[str, int]:
        """The bytes that each relation takes, in all its orders; empty on the reference engine.

        Names with `@` are relations that the kernel has made for aggregates and negations.
        """
        return self._core.engine.memory

    def explain(self, view: str | None = None, *, plans: bool = False) -> str:
        """Return how the views, or one of them, are computed; with `plans` every join, too."""
        if view is not None:
            self.relation(view)
        return explain(self.program, self.engine, view, self._details(), plans=plans)

    def why(self, view: str, row: Sequence[Any]) -> Proof:
        """Return why a row is in a view: its proof from facts, of the least depth.

        A row that is not there is a UsageError; `why_not` says what it lacks.
        """
        return self._core.why(view, row)

    def why_not(self, view: str, row: Sequence[Any], *, depth: int = 1) -> WhyNot:
        """Return why a row is not in a view: how near each rule comes to deriving it.

        With a `depth` of more than 1 also why the derived rows are missing that it lacks.
        """
        return self._core.why_not(view, row, depth)

    def _details(self) -> KernelDetails | None:
        """Return what the engine can explain beyond the program."""
        if self.engine != "kernel":
            return None
        from tidelog.database.explain_kernel import KernelDetails

        kernel = self._core.kernel
        return KernelDetails(self.program, kernel.catalog, kernel.last_epoch)

    # --- durable databases ---

    @staticmethod
    def reader(path: str | Path, *, verify: bool = True) -> DatabaseReader:
        """Return the views of a durable database, to be read while another process writes to it."""
        from tidelog.database.reader import DatabaseReader

        return DatabaseReader(path, verify=verify)

    @property
    def opened(self) -> Opened | None:
        """How the database was opened: what was mapped, replayed or rebuilt."""
        writer = self._core.state_writer
        return None if writer is None else writer.opened

    @property
    def state(self) -> StateReport | None:
        """What the files of the database contain; None for one that is in memory only."""
        writer = self._core.state_writer
        return None if writer is None else writer.report()

    def at(self, epoch: int) -> Past:
        """Return the database as it was at an epoch, for reading, while that is retained."""
        from tidelog.database.past import Past
        from tidelog.persist.history import check_retained

        writer, core = self._durable(), self._core
        check_retained(epoch, writer.oldest_epoch, core.epoch)
        return Past(epoch, core.program, core.kernel.catalog, writer.records, core.reading)

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return (epoch, change) for each epoch after `since` that changed a view, in order."""
        from tidelog.database.past import changes_since
        from tidelog.persist.history import check_retained

        self.relation(view)
        writer, core = self._durable(), self._core
        check_retained(since, writer.oldest_epoch, core.epoch)
        return changes_since(view, core.program, core.kernel.state.codec, writer.records(since))

    def snapshot(self) -> None:
        """Write a snapshot now, so that opening has nothing to replay."""
        writer = self._durable()
        with self._core.reading:
            writer.snapshot()

    def close(self) -> None:
        """Sync everything to disk, and release the folder. A closed database can still be read.

        Triggers end. Events that wait are delivered within some seconds, or by the next process.
        """
        if self._core.triggers is not None:
            self._core.triggers.close()
        if self._core.state_writer is not None:
            self._core.state_writer.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _durable(self) -> StateWriter:
        writer = self._core.state_writer
        if writer is None:
            raise UsageError("this database is in memory only; a durable one has a `path`")
        return writer

    def __repr__(self) -> str:
        relations = len(self.program.relations)
        return f"<Database {self.program.name}: {relations} relations, epoch {self.epoch}>"


def open_database(
    program: str | Path | Program, options: Options, facts: Mapping[str, Any] | None = None
) -> Database:
    """Return a database with options that `Database` does not offer to its callers."""
    database = Database.__new__(Database)
    database._core = DatabaseCore(Program.of(program), facts or {}, options)
    return database


def kernel_of(database: Database) -> KernelEngine:
    """Return the kernel engine of a database: for pipelines, measurements and tests."""
    return database._core.kernel
