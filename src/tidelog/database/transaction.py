"""A transaction: the inserts and deletes of one epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from tidelog.database.core import DatabaseCore
from tidelog.database.view import Change, Rows
from tidelog.engine.protocol import Ignored, NetChange, Requested
from tidelog.engine.reads import Reader
from tidelog.errors import UsageError
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import Records, RowReader
from tidelog.logic.program import Program, Relation
from tidelog.logic.rule_changes import RuleChange, changed_program
from tidelog.runtime.interrupts import Interrupts

T = TypeVar("T")


class Transaction:
    """Collects inserts and deletes; leaving its `with` block commits them as one epoch.

    The order of calls does not matter: a row that is both inserted and deleted stays as it was. An
    exception inside the block, or from the commit, leaves the database unchanged.
    """

    def __init__(self, core: DatabaseCore) -> None:
        self._core = core
        self._program: Program | None = None
        self._inserted: dict[str, Requested] = {}
        self._deleted: dict[str, Requested] = {}
        self._open = self._used = False
        self._changes: Mapping[str, Change] | None = None
        self._ignored: Mapping[str, Ignored] = {}
        self._late: Mapping[str, int] = {}

    # --- collecting ---

    def insert(self, relation: str, rows: Any) -> None:
        """Add rows to the given rows of a relation: tuples, Arrow, pandas or polars."""
        self._collect(self._inserted, relation, rows)

    def delete(self, relation: str, rows: Any) -> None:
        """Delete rows from the given rows of a relation. Derived rows are updated at the commit."""
        self._collect(self._deleted, relation, rows)

    def add_rules(self, text: str) -> None:
        """Add rules, facts, declarations and directives to the program, from this epoch on.

        Raises ProgramError, and adds nothing, if there is a mistake in them.
        """
        self.change_rules(RuleChange.of(added=text))

    def drop_rules(self, text: str) -> None:
        """Drop statements from the program, from this epoch on; their text says which.

        Raises ProgramError, and drops nothing, if the program does not have them.
        """
        self.change_rules(RuleChange.of(dropped=text))

    def change_rules(self, change: RuleChange) -> None:
        """Drop and add statements at once; only the result has to be a program."""
        self._check_open()
        self._program = changed_program(self.program, change)

    @property
    def program(self) -> Program:
        """The program with the changes that the transaction makes."""
        return self._program or self._core.program

    def _reader(self, relation: str) -> RowReader:
        """Return the reader of rows for a relation, which may be declared in this transaction."""
        program = self._program
        if program is None or relation in self._core.program.relations:
            return self._core.row_reader(relation)
        return RowReader(program.relation(relation), program.records)

    def _collect(self, into: dict[str, Requested], relation: str, rows: Any) -> None:
        if not self._open:
            self._check_open()
        checked = self._reader(relation).rows(rows)
        held = into.get(relation)
        if held is None and isinstance(checked, CheckedTable):
            into[relation] = checked  # it stays in columns, unless more rows follow
            return
        if isinstance(held, set):
            held.update(checked)
        else:
            into[relation] = {*held, *checked} if held else set(checked)

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("this transaction is not open: use it in a `with` statement, once")

    # --- the block ---

    def __enter__(self) -> Transaction:
        if self._used:
            raise UsageError("a transaction is used once: ask the database for another one")
        self._core.begin()
        self._open = self._used = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        epoch = 0
        try:
            if kind is None:
                with Interrupts() as interrupts:
                    effects = self._core.commit(*self._requested(), interrupts, self._program)
                    epoch = self._core.epoch
                    self._changes = _Changes(self._core.program, effects.changes)
                    self._ignored, self._late = effects.ignored, effects.late
        finally:
            self._core.end()
        if epoch:
            self._core.wait_until_durable(epoch)
            self._core.run_triggers(epoch)

    def _requested(self) -> tuple[dict[str, Requested], dict[str, Requested]]:
        """Return what to insert and what to delete, without the rows that are in both.

        If both are tables, the engine removes these rows, after sorting.
        """
        inserted, deleted = self._inserted, self._deleted
        if not inserted or not deleted:
            return inserted, deleted
        inserted, deleted = dict(inserted), dict(deleted)
        for name in inserted.keys() & deleted.keys():
            more, less = inserted[name], deleted[name]
            if not isinstance(more, set) and not isinstance(less, set):
                continue
            more, less = set(more), set(less)
            inserted[name], deleted[name] = more - less, less - more
        return inserted, deleted

    # --- afterwards ---

    @property
    def changes(self) -> Mapping[str, Change]:
        """What the commit changed, by relation; unchanged relations have empty changes."""
        if self._changes is None:
            raise UsageError("the changes are known after the transaction has committed")
        return self._changes

    @property
    def ignored(self) -> Mapping[str, Ignored]:
        """The rows that changed nothing, by relation."""
        return self._ignored

    @property
    def late(self) -> Mapping[str, int]:
        """How many rows were too old to be retained (`.retain`), and not inserted, by relation."""
        return self._late


class _Changes(Mapping[str, Change]):
    """The changes of an epoch; every declared relation has an entry."""

    def __init__(self, program: Program, effects: Mapping[str, NetChange]) -> None:
        self._program = program
        self._effects = effects

    def __getitem__(self, name: str) -> Change:
        net = self._effects.get(name, NetChange())
        return changes_of(self._program.relations[name], self._program.records, net)

    def __iter__(self) -> Iterator[str]:
        return iter(self._program.relations)

    def __len__(self) -> int:
        return len(self._program.relations)

    def __repr__(self) -> str:
        return repr({name: self[name] for name, net in self._effects.items() if net})


def changes_of(relation: Relation, records: Records, net: NetChange) -> Change:
    """Return the net change of a relation, to be read."""
    return Change(
        *(
            Rows(relation, records, partial(ask_reader, reader))
            for reader in net.readers(relation, records)
        )
    )


def ask_reader(reader: Reader, question: Callable[[Reader], T]) -> T:
    """Return the answer of a reader whose rows stay as they are."""
    return question(reader)
