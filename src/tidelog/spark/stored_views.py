"""Reading the views of a stored pipeline, or of a durable database, from any process.

Nothing here opens a session, takes a lock or writes. `open_state` finds the state in a folder. It
says which parts a view has at an epoch, and which parts its changes have; a part is small, and any
process that sees the folder can read it, as Arrow batches with types that Spark has.

    placement   rows of a view                          changes of a view
    driver      shares by a hash of the row             the log, in one part
    sharded     one part a shard                        files of the shards that changed

A row of a scattered view can be in several shards. So such a view is one part.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.errors import StateError, UsageError
from tidelog.io.tabular import arrow_schema, to_arrow
from tidelog.logic.program import Program, Relation
from tidelog.sharding.key_relations import without_upserts
from tidelog.spark.arrow_types import EPOCH, OP, spark_schema

if TYPE_CHECKING:
    from tidelog.database.reader import DatabaseReader
    from tidelog.sharding.cells import Cells
    from tidelog.sharding.manifest import Committed
    from tidelog.sharding.shard_state import Shard

_PART_ROWS = 1 << 18
_MOST_PARTS = 64
_SMALL = 8 << 20  # bytes of changes that one task reads
_CHUNK = 1 << 16  # rows
_ALL = -1
_MOST_KEPT = 4  # databases and shards that a process keeps open

_readers: dict[str, DatabaseReader] = {}
_shards: dict[tuple[str, int], Shard] = {}


@dataclass(frozen=True)
class ViewPart:
    """Some rows of a view at an epoch, or of its changes after `since` up to that epoch."""

    folder: str
    placement: str
    view: str
    epoch: int
    since: int | None = None
    number: int = 0
    """Which share, or which shard; -1 for all shards."""
    of: int = 1
    """The number of shares."""
    with_epoch: bool = False
    """Whether rows of the view are given as changes that insert them."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        state = (
            DriverState(self.folder) if self.placement == "driver" else ShardedState(self.folder)
        )
        relation = state.relation(self.view)
        is_change = self.with_epoch or self.since is not None
        schema = spark_schema(relation, state.program.records, changes=is_change)
        for rows in state.read(self):
            table = signed(rows, "+", self.epoch) if self.with_epoch else rows
            yield from table.cast(schema).to_batches(max_chunksize=_CHUNK)


def signed(rows: pa.Table, op: str, epoch: int) -> pa.Table:
    """Return rows as changes of an epoch."""
    count = rows.num_rows
    rows = rows.append_column(OP, pa.repeat(op, count))
    return rows.append_column(EPOCH, pa.array(np.full(count, epoch, np.int64)))


class StoredState(ABC):
    """The committed state of a pipeline, or a durable database."""

    placement: str

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)

    @property
    @abstractmethod
    def program(self) -> Program:
        """The stored program."""

    @abstractmethod
    def last_epoch(self) -> int:
        """Return the last committed epoch."""

    @abstractmethod
    def parts(self, view: str, epoch: int) -> list[ViewPart]:
        """Return the parts of a view at an epoch; raise UsageError if that is not retained."""

    @abstractmethod
    def change_parts(self, view: str, since: int, epoch: int) -> list[ViewPart]:
        """Return the parts of the changes after an epoch, up to another one."""

    @abstractmethod
    def read(self, part: ViewPart) -> Iterator[pa.Table]:
        """Yield the rows of a part, with Tidelog's types."""

    def relation(self, view: str) -> Relation:
        """Return the relation of a view; raise UsageError if Spark cannot read it as a table."""
        relation = without_upserts(self.program).relation(view)
        if not relation.columns:
            raise UsageError(f"`{view}` has no columns, so it is not a table for Spark")
        return relation

    def _part(self, view: str, epoch: int, **keys: Any) -> ViewPart:
        return ViewPart(self.folder, self.placement, view, epoch, **keys)


def open_state(path: str) -> StoredState:
    """Return the state in a folder: that of a pipeline, or a durable database."""
    if path.startswith("file:/"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    folder = Path(path).resolve()
    if (folder / "MANIFEST").exists():
        return DriverState(folder)
    from tidelog.spark.placements import existing

    found = existing(folder) if folder.is_dir() else None
    if found is None or not found.folder.exists():
        raise UsageError(
            f"there is no state in `{path}`"
            "\n  help: `path` is the folder that `state` names in the pipeline file; it must have"
            " an epoch, and be reachable from where Spark runs"
        )
    return DriverState(found.folder) if found.name == "driver" else ShardedState(found.folder)


def not_retained(view: str, since: int) -> UsageError:
    """Return the error for changes that are no longer retained, with a remedy."""
    return UsageError(
        f"the changes of `{view}` since epoch {since} are no longer retained"
        "\n  help: begin again with a new checkpoint, which starts with all rows of the view; a"
        " larger `retain_epochs` in the pipeline file keeps changes for longer"
    )


# --- one database -----------------------------------------------------------------------------


class DriverState(StoredState):
    """A durable database."""

    placement = "driver"

    @property
    def program(self) -> Program:
        """The stored program. Its rows are not read for this."""
        from tidelog.durable import manifest
        from tidelog.durable.files import Files

        if self.folder in _readers:
            return self._reader().program
        found = manifest.read(Files(self.folder))
        return Program.parse(found.program, found.program_name)

    def last_epoch(self) -> int:
        """Return the last committed epoch."""
        return self._reader().refresh()

    def parts(self, view: str, epoch: int) -> list[ViewPart]:
        """Return shares of the rows."""
        reader = self._reader(epoch)
        reader.at(epoch)  # is it retained?
        count = min(_MOST_PARTS, 1 + len(reader.view(view)) // _PART_ROWS)
        return [self._part(view, epoch, number=number, of=count) for number in range(count)]

    def change_parts(self, view: str, since: int, epoch: int) -> list[ViewPart]:
        """Return one part: the log is read once."""
        reader = self._reader(epoch)
        try:
            reader.changes(view, since)
        except UsageError:
            raise not_retained(view, since) from None
        return [self._part(view, epoch, since=since)]

    def read(self, part: ViewPart) -> Iterator[pa.Table]:
        """Yield a share of the rows, or the changes of all epochs."""
        reader = self._reader(part.epoch)
        if part.since is None:
            there = reader if reader.epoch == part.epoch else reader.at(part.epoch)
            for batch in there.batches(part.view, part.number, part.of):
                yield pa.Table.from_batches([batch])
            return
        for epoch, change in reader.changes(part.view, part.since):
            if epoch > part.epoch:
                return
            for rows, op in ((change.deleted, "-"), (change.inserted, "+")):
                yield signed(rows.to_arrow(), op, epoch)

    def _reader(self, epoch: int = -1) -> DatabaseReader:
        from tidelog.database.reader import DatabaseReader

        reader = _readers.get(self.folder)
        if reader is None:
            while len(_readers) >= _MOST_KEPT:
                del _readers[next(iter(_readers))]
            reader = _readers[self.folder] = DatabaseReader(self.folder, verify=False)
        if reader.epoch < epoch:
            reader.refresh()
        return reader


# --- shards -----------------------------------------------------------------------------------


class ShardedState(StoredState):
    """Shards, and a file for each committed epoch."""

    placement = "sharded"

    def __init__(self, folder: str | Path) -> None:
        from tidelog.sharding.manifest import Epochs

        super().__init__(folder)
        self._epochs = Epochs(Path(folder))
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The stored program."""
        if self._program is None:
            last = self._epochs.read(self.last_epoch())
            self._program = Program.parse(last.program, last.program_name)
        return self._program

    def last_epoch(self) -> int:
        """Return the last committed epoch."""
        return self._epochs.numbers()[-1]

    def parts(self, view: str, epoch: int) -> list[ViewPart]:
        """Return a part for each shard that counts; one part for a scattered view."""
        cells = self._cells(self._committed(epoch))
        if cells.is_scattered(view):
            return [self._part(view, epoch, number=_ALL)]
        return [
            self._part(view, epoch, number=shard)
            for shard in range(cells.shards)
            if cells.is_shown_in(view, shard)
        ]

    def change_parts(self, view: str, since: int, epoch: int) -> list[ViewPart]:
        """Return a part for each shard with changes; one part if there are few."""
        files = [file for e in self._after(view, since, epoch) for file in e.views.get(view, ())]
        if not files:
            return []
        one = self._part(view, epoch, since=since, number=_ALL)
        if self._cells(self._committed(epoch)).is_scattered(view):
            return [one]
        if sum(os.path.getsize(os.path.join(self.folder, file)) for file in files) < _SMALL:
            return [one]
        return [
            self._part(view, epoch, since=since, number=shard)
            for shard in sorted(set(map(_shard_of, files)))
        ]

    def read(self, part: ViewPart) -> Iterator[pa.Table]:
        """Yield the rows of shards, or their changes."""
        if part.since is not None:
            yield from self._changes(part, part.since)
        elif part.number != _ALL:
            yield from self._rows(self._committed(part.epoch), part.view, part.number)
        else:
            yield self._distinct(part.view, self._everywhere(part.view, part.epoch))

    def _rows(self, committed: Committed, view: str, number: int) -> Iterator[pa.Table]:
        cell = self._cells(committed).cell_of(view, number)
        for batch in self._shard(committed, cell).engine.reader(view).batches():
            yield pa.Table.from_batches([batch])

    def _everywhere(self, view: str, epoch: int) -> list[pa.Table]:
        committed = self._committed(epoch)
        shards = range(self._cells(committed).shards)
        return [table for number in shards for table in self._rows(committed, view, number)]

    def _distinct(self, view: str, tables: Sequence[pa.Table]) -> pa.Table:
        from tidelog.io.columns import is_columnar
        from tidelog.io.conversion import rows_of

        relation, records = self.relation(view), self.program.records
        if tables and is_columnar(relation):
            together = pa.concat_tables(tables)
            return together.group_by(together.column_names).aggregate([])
        rows = {row for table in tables for row in rows_of(table, relation, records)}
        return to_arrow(rows, relation, records)

    def _changes(self, part: ViewPart, since: int) -> Iterator[pa.Table]:
        view = part.view
        if self._is_scattered(part):
            yield from self._net(part, since)
            return
        for committed in self._after(view, since, part.epoch):
            for file in committed.views.get(view, ()):
                if part.number in (_ALL, _shard_of(file)):
                    table = pq.ParquetFile(Path(self.folder, file)).read()
                    came = pc.equal(table["op"], "+")
                    rows = table.drop_columns(["op", "epoch"])
                    rows = rows.cast(arrow_schema(self.relation(view), self.program.records))
                    yield signed(rows.filter(pc.invert(came)), "-", committed.epoch)
                    yield signed(rows.filter(came), "+", committed.epoch)

    def _net(self, part: ViewPart, since: int) -> Iterator[pa.Table]:
        """Yield the changes of a scattered view, in which a row counts once for all its copies."""
        from tidelog.sharding.views import ShardViews

        last = self.last_epoch()
        epochs = self._after(part.view, since, last)
        cells = self._cells(epochs[-1])
        views = ShardViews(
            self.program, cells, Path(self.folder), lambda v: self._everywhere(v, last)
        )
        relation, records = self.relation(part.view), self.program.records
        for epoch, net in views.net(part.view, epochs):
            if epoch > part.epoch:
                return
            for rows, op in ((net.deleted, "-"), (net.inserted, "+")):
                yield signed(to_arrow(rows, relation, records), op, epoch)

    def _is_scattered(self, part: ViewPart) -> bool:
        return self._cells(self._committed(part.epoch)).is_scattered(part.view)

    def _after(self, view: str, since: int, epoch: int) -> list[Committed]:
        kept = set(self._epochs.numbers())
        numbers = range(since + 1, epoch + 1)
        if since < 0 or not kept.issuperset(numbers):
            raise not_retained(view, since)
        epochs = [self._epochs.read(number) for number in numbers]
        if not all(view in committed.watched for committed in epochs):
            raise UsageError(
                f"the changes of `{view}` are not stored, because no sink writes it"
                "\n  help: shards store the changes of views with a sink: add one"
            )
        return epochs

    def _committed(self, epoch: int) -> Committed:
        numbers = self._epochs.numbers()
        if epoch > numbers[-1]:
            raise UsageError(f"there is no epoch {epoch} yet: the last one is {numbers[-1]}")
        if epoch not in numbers:
            raise UsageError(f"epoch {epoch} is not retained any more: the first is {numbers[0]}")
        return self._epochs.read(epoch)

    def _cells(self, committed: Committed) -> Cells:
        from tidelog.spark.shard_task import cells_of

        return cells_of(committed.program, committed.program_name, committed.sides)

    def _shard(self, committed: Committed, number: int) -> Shard:
        """Return a cell in the state of an epoch: one that this process has, or from its files."""
        from tidelog.durable.files import Files
        from tidelog.sharding.shard_state import Shard

        ref, key = committed.shards[number], (committed.identity, number)
        kept = _shards.pop(key, None)
        try:
            if kept is None or not kept.catch_up(ref):
                files = Files(Path(self.folder) / "shards" / str(number))
                program = self._cells(committed).program_of(number)
                kept = Shard.open(files, committed.identity, program, ref)
        except StateError as error:
            if self._epochs.numbers()[-1] == committed.epoch:
                raise
            raise UsageError(
                f"epoch {committed.epoch} of shard {number} is no longer retained: {error}"
                "\n  help: read again, without `epoch`"
            ) from None
        while len(_shards) >= _MOST_KEPT:
            del _shards[next(iter(_shards))]
        _shards[key] = kept
        return kept


def _shard_of(file: str) -> int:
    """Return the shard that has written a file of changes.

    >>> _shard_of("changes/000000000017-3-5f2a.arrow")
    3
    """
    return int(Path(file).name.split("-")[1])
