"""The placement `driver`: one durable database in this process holds the whole state.

The offsets of the sources are rows of the same database, in relations that are added to the
program. So one commit makes rows and offsets durable, or neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.database.core import Options
from tidelog.database.database import Database, kernel_of, open_database
from tidelog.durable.files import Files
from tidelog.engine.protocol import NoObserver, Requested
from tidelog.errors import DataError, EvaluationError, FunctionalConflict, UsageError
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.offsets import CommittedOffsets, RowCounts
from tidelog.io.tabular import CheckedRows, arrow_schema
from tidelog.logic.program import Program
from tidelog.persist.settings import Settings
from tidelog.sharding.key_relations import Upsert
from tidelog.spark.epoch_changes import Applied, EpochChanges, Given
from tidelog.spark.frames import to_frame
from tidelog.spark.upserting import settle
from tidelog.spark.view_changes import ViewChange, change_of
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.database.view import Change

# The declarations are part of the program that is stored with the state: do not change them.
OFFSETS, COUNTS = "tidelog_offsets", "tidelog_counts"
_DECLARATIONS = f"""
// What the pipeline remembers of its sources.
.decl {OFFSETS}(source: symbol, item: symbol, mark: symbol)
.decl {COUNTS}(source: symbol, received: number, accepted: number, quarantined: number)
"""


def with_offsets(program: Program) -> Program:
    """Return the program with the relations that hold the offsets of a pipeline."""
    for name in (OFFSETS, COUNTS):
        if name in program.relations:
            raise UsageError(f"{program.name}: `{name}` is a name reserved for pipelines")
    return Program.parse(program.text + _DECLARATIONS, program.name)


class _Computed(Exception):
    """Ends an epoch that can be computed, before it is committed."""


class _Undoing(NoObserver):
    """Undoes each epoch."""

    def computed(self) -> None:
        """End the epoch."""
        raise _Computed


def _requested(rows: Mapping[str, Given]) -> dict[str, Requested]:
    return {n: r if isinstance(r, CheckedTable) else set(r) for n, r in rows.items()}


class DriverPlacement(CommittedOffsets):
    """The state of a pipeline as a durable database in a folder."""

    name = "driver"

    def __init__(
        self,
        program: Program,
        folder: Path,
        on_program_change: str,
        retain_epochs: int,
        first_epoch: int = 0,
        upserts: Sequence[Upsert] = (),
    ) -> None:
        super().__init__()
        self._program, self._upserts = program, upserts
        self._folder = folder
        self._options = Options(
            files=Files(folder),
            settings=Settings(on_program_change=on_program_change, retain_epochs=retain_epochs),
            first_epoch=first_epoch,
        )
        self._database: Database | None = None
        if (folder / "MANIFEST").exists():
            self._database = open_database(program, self._options)
            self._read_offsets(self._database)

    def _read_offsets(self, database: Database) -> None:
        for source, item, offset in database.view(OFFSETS):
            self._committed.add({source: {item: offset}}, {})
        for source, *numbers in database.view(COUNTS):
            self._committed.add({}, {source: RowCounts(*numbers)})

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
        """Return the given rows of a relation, in columns if possible."""
        declared = self._program.relations[relation]
        if self._database is None:
            schema = arrow_schema(declared, self._program.records)
            return CheckedTable(schema.empty_table()) if is_columnar(declared) else CheckedRows()
        state = kernel_of(self._database).state
        if is_columnar(declared):
            return state.given_table(relation)
        return CheckedRows(state.given_rows(relation))

    def apply(self, changes: EpochChanges) -> Applied:
        """Commit an epoch: the rows together with the offsets."""
        engine = None if self._database is None else kernel_of(self._database)
        sequences = settle(changes, self._upserts, self._program, engine)
        bookkeeping = self._offset_rows(changes)
        inserted: dict[str, Given] = dict(changes.inserted)
        deleted: dict[str, Given] = dict(changes.deleted)
        for name, (new, old) in bookkeeping.items():
            inserted[name], deleted[name] = CheckedRows(new - old), CheckedRows(old - new)
        if self._database is None:
            # The first rows are facts of a new database: rules never run on empty relations.
            facts = {name: rows for name, rows in inserted.items() if len(rows)}
            self._database = open_database(self._program, self._options, facts)
            how = "bootstrap"
        else:
            with self._database.transaction() as tx:
                for name, rows in inserted.items():
                    tx.insert(name, rows)
                for name, rows in deleted.items():
                    tx.delete(name, rows)
            again = any(layer.choice == "bootstrap" for layer in self._database.last_epoch.layers)
            how = "bootstrap" if again else "update"
        # Rows of offsets, counts and sequences always change something, so the report counts all.
        report = self._database.last_epoch
        own = [*bookkeeping, *sequences]
        more = report.given_inserted - sum(len(inserted[name]) for name in own)
        less = report.given_deleted - sum(len(deleted[name]) for name in own)
        self._committed.add(changes.offsets, changes.counts)
        return Applied(self._database.epoch, how, more, less)

    def probe(self, changes: EpochChanges) -> DataError | None:
        """Compute an epoch and undo it; return the error of a rule, if there is one."""
        if self._database is None:
            facts = {name: rows for name, rows in changes.inserted.items() if len(rows)}
            try:
                open_database(self._program, Options(expects_updates=False), facts)
            except (EvaluationError, FunctionalConflict) as error:
                return error
            return None
        kernel = kernel_of(self._database)
        observer, kernel.observer = kernel.observer, _Undoing()
        try:
            kernel.apply(_requested(changes.inserted), _requested(changes.deleted))
        except _Computed:
            return None
        except (EvaluationError, FunctionalConflict) as error:
            return error
        finally:
            kernel.observer = observer
        raise AssertionError("a probe was committed")

    def _offset_rows(self, changes: EpochChanges) -> dict[str, tuple[set[Row], set[Row]]]:
        """Return the new and the old rows of the relations of offsets and counts."""
        new: set[Row] = set()
        old: set[Row] = set()
        for source, offsets in changes.offsets.items():
            before = self.offsets(source)
            new |= {(source, item, offset) for item, offset in offsets.items()}
            old |= {(source, item, before[item]) for item in offsets if item in before}
        sums: tuple[set[Row], set[Row]] = (set(), set())
        for source, count in changes.counts.items():
            known = self.counts().get(source)
            sums[0].add((source, *astuple(count if known is None else known + count)))
            if known is not None:
                sums[1].add((source, *astuple(known)))
        return {OFFSETS: (new, old), COUNTS: sums}

    def start(self, spark: Any) -> None:
        """Do nothing: the database is in this process."""

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
        """Return the net changes of a view in each epoch after `since`."""
        return self.database.changes(view, since)

    def frame(self, spark: Any, view: str, *, together: bool = False) -> Any:
        """Return a view as a DataFrame, in one partition if `together`."""
        if not self._program.relations[view].columns:
            return spark.range(self.size(view)).select()
        frame = to_frame(spark, self.table(view))
        return frame.coalesce(1) if together else frame

    def change_frames(self, spark: Any, view: str, since: int) -> Iterator[ViewChange]:
        """Return the changes of a view in each epoch after `since`, for sinks."""
        for epoch, change in self.changes(view, since):
            yield change_of(spark, epoch, change)

    def retains(self, view: str, since: int) -> bool:
        """Return whether the changes of a view after an epoch can be read."""
        state = self.database.state
        return state is not None and state.oldest_epoch <= since <= self.epoch

    def unchanged(self, view: str, since: int) -> bool:
        """Return whether a view is known not to have changed since an epoch."""
        if not self.retains(view, since):
            return False
        return not any(change for _, change in self.changes(view, since))

    def close(self) -> None:
        """Sync everything to disk, and release the lock."""
        if self._database is not None:
            self._database.close()
