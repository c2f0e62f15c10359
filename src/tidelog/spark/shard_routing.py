"""Send rows to their shards: the first half of a sharded epoch, in Spark tasks.

A task takes some of the rows that Spark reads, checks them, and finds the shards that need each
row. Upserts go to every shard, and so does the newest time of a source with `retain`. What goes to
one shard is one Arrow stream: Spark's shuffle moves a few large values instead of many rows.
`repartitionById` then brings everything for shard i to partition i, where a second task takes it
(shard_epoch.py).

    read ──► check ──► route ──► shuffle ──► apply
    Spark    ▼         shard, data           one engine a shard
             bad rows go along, to the shard that writes them to the quarantine
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidelog.io.conversion import ConversionOptions
from tidelog.spark.envelopes import ORDERED, Shape
from tidelog.spark.ordering import SourceFile, order_keys, sorted_places
from tidelog.spark.retained_time import RetainedTime
from tidelog.spark.shard_task import as_bytes, cells_of, count_of
from tidelog.spark.worker_process import begin_task

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tidelog.sharding.router import Router
    from tidelog.spark.checking import Checked, Checker
    from tidelog.spark.failing_rows import FailingRows
    from tidelog.spark.union import Columns

SCHEMA = "shard int, source int, received long, bad string, newest long, data binary"
SIGN, AT, KEY = "tidelog +", "tidelog at", "tidelog key"
"""Columns beside those of the relation: whether a row is inserted, its sequence, its order."""
_ROWS_AT_ONCE = 1 << 17
Sent = tuple[int, int, int, str | None, int | None, bytes]
"""A row of the shuffle: shard, source, received rows, bad rows, newest time, data."""


@dataclass(frozen=True)
class SourceCheck:
    """What a task must know of a source to check its rows: no options, and so no secrets."""

    tag: int
    name: str
    relation: str
    mode: str
    shape: Shape
    conversion: ConversionOptions
    drift: str = ""
    retained: RetainedTime | None = None


@dataclass(frozen=True)
class RouteRows:
    """The task that checks rows and routes them."""

    program: str
    program_name: str
    sides: tuple[int, ...]
    checks: tuple[SourceCheck, ...]
    files: Mapping[int, SourceFile]
    columns: Columns
    is_ordered: bool
    """Whether the order of rows matters."""
    folder: str = ""
    """The folder of the state."""
    failing: tuple[tuple[str, str], ...] = ()
    """Relations, and files with their rows on which rules fail (shard_rule_errors.py)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what goes to each shard."""
        from pyspark import TaskContext

        from tidelog.spark.union import first_number, split, with_numbers

        begin_task()
        context = TaskContext.get()
        assert context is not None
        number = first_number(context.partitionId())
        routing = _Routing(self)
        for found in _collected(batches):
            table = with_numbers(found, number) if self.is_ordered else found
            number += table.num_rows
            for tag, rows in split(table, self.columns).items():
                yield batch_of(list(routing.parts(tag, rows)))


def batch_of(rows: Sequence[Sent]) -> pa.RecordBatch:
    """Return rows of the shuffle as a batch."""
    import pyarrow as pa

    kinds = {
        "shard": pa.int32(), "source": pa.int32(), "received": pa.int64(),
        "bad": pa.string(), "newest": pa.int64(), "data": pa.binary(),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(
        {
            name: pa.array([row[i] for row in rows], kind)
            for i, (name, kind) in enumerate(kinds.items())
        }
    )


def _collected(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of many rows, out of Spark's small batches."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


class _Routing:
    def __init__(self, task: RouteRows) -> None:
        self._task = task
        self._cells = cells_of(task.program, task.program_name, task.sides)
        self._program = self._cells.program
        self._checks = {check.tag: (i, check) for i, check in enumerate(task.checks)}
        self._checkers: dict[int, Checker] = {}
        self._shards = count_of(task.sides)
        self._failing: FailingRows | None = None
        if task.failing:
            from tidelog.spark.shard_rule_errors import read_failing

            self._failing = read_failing(task.folder, task.failing, self._program)

    def parts(self, tag: int, rows: pa.Table) -> Iterator[Sent]:
        """Yield what goes to each shard."""
        number, check = self._checks[tag]
        checker = self._checker(tag, check)
        checked = checker.check(rows, self._task.files, check.drift, self._failing)
        bad = json.dumps([asdict(row) for row in checked.bad], default=str) if checked.bad else None
        yield number % self._shards, number, checked.received, bad, None, b""
        table = self._accepted(check, checked, rows)
        if not table.num_rows:
            return
        if check.retained is not None:
            newest = int(check.retained.times(table).max())
            for shard in range(self._shards):
                yield shard, number, 0, None, newest, b""
        if check.shape.keys:
            # The row that is replaced may be in any shard, whatever the columns of the new one.
            data = as_bytes(table)
            for shard in range(self._shards):
                yield shard, number, 0, None, None, data
            return
        for shard, part in routed_table(
            self._cells.router_of(check.relation), check.relation, table
        ):
            yield shard, number, 0, None, None, as_bytes(part)

    def _checker(self, tag: int, check: SourceCheck) -> Checker:
        from tidelog.spark.checking import Checker

        if tag not in self._checkers:
            relation = self._program.relations[check.relation]
            self._checkers[tag] = Checker(
                relation, self._program.records, check.mode, check.shape, check.conversion
            )
        return self._checkers[tag]

    def _accepted(self, check: SourceCheck, checked: Checked, rows: pa.Table) -> pa.Table:
        """Return the accepted rows, with their signs and the keys of their order."""
        import pyarrow as pa

        from tidelog.spark.epoch_changes import table_of

        relation = self._program.relations[check.relation]
        table = table_of(checked.rows, relation, self._program.records)
        if checked.inserted is not None:
            table = table.append_column(SIGN, pa.array(checked.inserted))
        if checked.at is not None:
            table = table.append_column(AT, pa.array(checked.at))
        if check.mode in ORDERED:
            keys = order_keys(rows, self._task.files)
            if checked.places is not None:
                keys = [key[checked.places] for key in keys]
            table = with_order(table, keys)
        return table


def with_order(table: pa.Table, keys: Sequence[NDArray[np.int64]]) -> pa.Table:
    """Return rows with the keys of their order, as columns.

    Mostly all rows of a table come from one range of a file, and are in order. Then only the keys
    of the first row are added, to the metadata.
    """
    import pyarrow as pa

    if not keys or not len(keys[0]):
        return table
    same = all((key == key[0]).all() for key in keys[:-1])
    if same and (keys[-1][1:] >= keys[-1][:-1]).all():
        return table.replace_schema_metadata({KEY: json.dumps([int(key[0]) for key in keys])})
    for i, key in enumerate(keys):
        table = table.append_column(f"{KEY} {i}", pa.array(key))
    return table


def _with_columns(table: pa.Table, first: Sequence[int] | None) -> pa.Table:
    """Return rows with the keys of their order as columns; `first` has those of the first row.

    In the last column they are not the original ones, but no other row has keys between these.
    """
    import numpy as np
    import pyarrow as pa

    found = table.replace_schema_metadata(None)
    for i, key in enumerate(first or ()):
        is_last = first is not None and i == len(first) - 1
        own = key + np.arange(len(table)) if is_last else np.full(len(table), key)
        found = found.append_column(f"{KEY} {i}", pa.array(own))
    return found


def in_order_of_keys(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables in the order in which they apply (`with_order`)."""
    import numpy as np
    import pyarrow as pa

    first = [json.loads((t.schema.metadata or {}).get(KEY.encode(), "null")) for t in tables]
    if None not in first:
        order = sorted(range(len(tables)), key=first.__getitem__)
        return pa.concat_tables([tables[i].replace_schema_metadata(None) for i in order])
    together = pa.concat_tables(map(_with_columns, tables, first))
    names = [name for name in together.column_names if name.startswith(KEY)]
    places = sorted_places(np.asarray(together[name]) for name in names)
    return together if places is None else together.take(pa.array(places))


def routed_table(router: Router, relation: str, table: pa.Table) -> Iterator[tuple[int, Any]]:
    """Yield each shard that needs some of the rows, and these rows."""
    import numpy as np

    needed = router.needed(relation, table)
    for shard in range(router.sharding.grid.shards):
        mine = np.flatnonzero(needed(shard))
        if len(mine) == table.num_rows:
            yield shard, table
        elif len(mine):
            yield shard, table.take(mine)
