"""The placement `driver`: one durable database in this process holds all of the state.

The offsets of the sources are rows of the same database, in relations that are added to the
program. So one commit makes both durable, rows and offsets, or neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.engine.database import Database
from tidelog.errors import UsageError
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import CheckedRows, arrow_schema
from tidelog.logic.program import Program
from tidelog.spark.remembered import Applied, Changes, Count, Given, Remembering
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.engine.view import Change

OFFSETS, COUNTS = "tidelog_offsets", "tidelog_counts"
_DECLARATIONS = f"""
// What the pipeline remembers of its sources.
.decl {OFFSETS}(source: symbol, item: symbol, mark: symbol)
.decl {COUNTS}(source: symbol, received: number, accepted: number, quarantined: number)
"""


def with_memory(program: Program) -> Program:
    """Return the program with the relations in which a pipeline keeps its offsets."""
    for name in (OFFSETS, COUNTS):
        if name in program.relations:
            raise UsageError(f"{program.name}: `{name}` is a name that pipelines use themselves")
    return Program.parse(program.text + _DECLARATIONS, program.name)


class DriverPlacement(Remembering):
    """The state of a pipeline as a database in a folder, opened when there is one."""

    name = "driver"

    def __init__(
        self,
        program: Program,
        folder: Path,
        on_program_change: str,
        retain_epochs: int,
        first_epoch: int = 0,
    ) -> None:
        super().__init__()
        self._program = program
        self._folder = folder
        self._settings: dict[str, Any] = {
            "path": folder,
            "on_program_change": on_program_change,
            "retain_epochs": retain_epochs,
            "_first_epoch": first_epoch,
        }
        self._database: Database | None = None
        if (folder / "MANIFEST").exists():
            self._database = Database(program, **self._settings)
            self._remember(self._database)

    def _remember(self, database: Database) -> None:
        for source, item, mark in database.view(OFFSETS):
            self._memory.add({source: {item: mark}}, {})
        for source, *numbers in database.view(COUNTS):
            self._memory.add({}, {source: Count(*numbers)})

    @property
    def epoch(self) -> int:
        """The last committed epoch; -1 before the first one."""
        return -1 if self._database is None else self._database.epoch

    @property
    def database(self) -> Database:
        """The database; there is one after the first epoch."""
        assert self._database is not None
        return self._database

    def given(self, relation: str) -> Given:
        """Return the rows that sources have given a relation, in columns if that is possible."""
        from tidelog.engine.kernel import KernelEngine
        from tidelog.engine.saving import given_rows, given_table

        declared = self._program.relations[relation]
        if self._database is None:
            schema = arrow_schema(declared, self._program.records)
            return CheckedTable(schema.empty_table()) if is_columnar(declared) else CheckedRows()
        engine = self._database._engine
        assert isinstance(engine, KernelEngine)
        table = given_table(engine, declared) if is_columnar(declared) else None
        return CheckedRows(given_rows(engine, relation)) if table is None else table

    def apply(self, changes: Changes) -> Applied:
        """Commit an epoch: the rows together with the offsets."""
        memory = self._memory_rows(changes)
        inserted: dict[str, Given] = dict(changes.inserted)
        deleted: dict[str, Given] = dict(changes.deleted)
        for name, (more, less) in memory.items():
            inserted[name], deleted[name] = CheckedRows(more - less), CheckedRows(less - more)
        if self._database is None:
            # The first epoch is no insertion: the rules are never evaluated on nothing.
            facts = {name: rows for name, rows in inserted.items() if len(rows)}
            self._database = Database(self._program, facts=facts, **self._settings)
            how = "bootstrap"
        else:
            with self._database.transaction() as tx:
                for name, rows in inserted.items():
                    tx.insert(name, rows)
                for name, rows in deleted.items():
                    tx.delete(name, rows)
            again = any(layer.choice == "bootstrap" for layer in self._database.last_epoch.layers)
            how = "bootstrap" if again else "update"
        # The rows of the memory are always new, so all of them are in the counts.
        report = self._database.last_epoch
        came = report.given_inserted - sum(len(inserted[name]) for name in memory)
        went = report.given_deleted - sum(len(deleted[name]) for name in memory)
        self._memory.add(changes.marks, changes.counts)
        return Applied(self._database.epoch, how, came, went)

    def _memory_rows(self, changes: Changes) -> dict[str, tuple[set[Row], set[Row]]]:
        """Return what comes to the relations of the memory, and what goes from them."""
        more: set[Row] = set()
        less: set[Row] = set()
        for source, marks in changes.marks.items():
            before = self.offsets(source)
            more |= {(source, item, mark) for item, mark in marks.items()}
            less |= {(source, item, before[item]) for item in marks if item in before}
        sums: tuple[set[Row], set[Row]] = (set(), set())
        for source, count in changes.counts.items():
            known = self.counts().get(source)
            sums[0].add((source, *astuple(count if known is None else known + count)))
            if known is not None:
                sums[1].add((source, *astuple(known)))
        return {OFFSETS: (more, less), COUNTS: sums}

    def start(self, spark: Any) -> None:
        """Do without Spark: the database is here."""

    def rows(self, view: str) -> Iterable[Row]:
        """Return the rows of a view."""
        return self.database.view(view)

    def table(self, view: str) -> pa.Table:
        """Return the rows of a view."""
        return self.database.view(view).to_arrow()

    def size(self, view: str) -> int:
        """Return how many rows a view has."""
        return len(self.database.view(view))

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return what each epoch after `since` changed in a view."""
        return self.database.changes(view, since)

    def unchanged(self, view: str, since: int) -> bool:
        """Return whether a view is as it was at an epoch, as far as the log still tells."""
        state = self.database.state
        if state is None or since < state.oldest_epoch:
            return False
        return not any(change for _, change in self.changes(view, since))

    def close(self) -> None:
        """Have everything on the disk, and let others write."""
        if self._database is not None:
            self._database.close()
