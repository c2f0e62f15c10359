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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidelog.io.conversion import ConversionOptions
from tidelog.spark.envelopes import ORDERED, Shape
from tidelog.spark.ordering import SourceFile, order_keys
from tidelog.spark.retained_time import RetainedTime
from tidelog.spark.shard_task import as_bytes, count_of, router_of
from tidelog.spark.worker_process import begin_task

if TYPE_CHECKING:
    import pyarrow as pa

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
    folder: str = ""
    """The folder of the state."""
    failing: tuple[tuple[str, str], ...] = ()
    """Relations, and files with their rows on which rules fail (shard_rule_errors.py)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what goes to each shard."""
        import pyarrow as pa

        from tidelog.spark.union import split

        begin_task()
        kinds = {
            "shard": pa.int32(), "source": pa.int32(), "received": pa.int64(),
            "bad": pa.string(), "newest": pa.int64(), "data": pa.binary(),
        }  # fmt: skip
        routing = _Routing(self)
        for table in _collected(batches):
            for tag, rows in split(table, self.columns).items():
                found = list(routing.parts(tag, rows))
                yield pa.RecordBatch.from_pydict(
                    {
                        name: pa.array([part[i] for part in found], kind)
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
        self._program, self._router = router_of(task.program, task.program_name, task.sides)
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
        for shard, part in routed_table(self._router, check.relation, table):
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
            for i, key in enumerate(order_keys(rows, self._task.files)):
                own = key if checked.places is None else key[checked.places]
                table = table.append_column(f"{KEY} {i}", pa.array(own))
        return table


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
