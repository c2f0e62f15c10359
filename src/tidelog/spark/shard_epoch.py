"""Do an epoch in a shard: the second half of a sharded epoch, in Spark tasks.

Partition i of the shuffle has everything for shard i (shard_routing.py). A task takes the shard
from the memory of its process or from its files, applies the rows, writes files under unique names,
and returns their names. The driver decides which of the files count. So a task may run twice, or
fail at any point. Nothing but names, counts and errors returns to the driver.

If a sink takes the changes of a view as Parquet files, the tasks return these changes as rows, and
Spark writes them in the same job. The answers with names and counts are then files. Both are
*staged*: they count when the driver has committed the epoch that names them (shard_job.py). An
epoch has one result, whichever attempt of a task computes it. So rows and answer may come from
different attempts.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.last_write_wins import last_write_wins
from tidelog.errors import DataError, TidelogError
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.sharding.key_relations import Upsert, is_hidden
from tidelog.sharding.sharding import Variant
from tidelog.spark.bisection import RULE_ERRORS
from tidelog.spark.shard_retention import ShardRetention
from tidelog.spark.shard_routing import AT, KEY, SIGN, SourceCheck, in_order_of_keys
from tidelog.spark.shard_rule_errors import ShardSearch, write_failing
from tidelog.spark.shard_task import (
    Work,
    changes_of_view,
    drop,
    keep,
    kept_shard,
    opened,
    program_of,
    router_of,
    write_changes,
)
from tidelog.spark.upserting import key_ordinals, newest, other_rows, replace_in
from tidelog.spark.worker_process import begin_task

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.engine.kernel import KernelEngine
    from tidelog.logic.program import Program
    from tidelog.sharding.router import Router
    from tidelog.sharding.shard_state import Shard, ShardDone
    from tidelog.store.codec import Codec

SCHEMA = "shard int, head string"
_ROWS_AT_ONCE = 1 << 16  # that go to Spark
Array = NDArray[np.int64]
Pieces = list[tuple[Array, NDArray[np.bool_] | None]]


@dataclass
class Arrived:
    """What the shuffle has brought to a shard."""

    tables: dict[int, list[pa.Table]] = field(default_factory=dict)
    """Accepted rows by number of the source."""
    received: dict[str, int] = field(default_factory=dict)
    bad: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """The newest time of sources that forget old rows, by number of the source."""


@dataclass(frozen=True)
class EpochWork:
    """An epoch, for all shards."""

    state: Work
    epoch: int
    watched: tuple[str, ...]
    checks: tuple[SourceCheck, ...]
    quarantine: str
    """The folder of the quarantine."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """The newest times before the epoch, of sources that forget old rows."""
    finds_failing: bool = False
    """Whether to look for the rows on which rules fail."""
    failing: tuple[tuple[str, str], ...] = ()
    """Relations, and files with their rows on which rules fail: these are left out."""
    sent: str = ""
    """The view whose changes the tasks return as rows, for Spark to write; empty if none."""
    answers: str = ""
    """The folder for the answers of tasks that return such rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the epoch in the shard of a partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        begin_task()
        context = TaskContext.get()
        assert context is not None
        shard = context.partitionId()
        head, rows = done_in(self, shard, arrived(batches, self.checks))
        try:
            if rows is not None:
                yield from rows.combine_chunks().to_batches(_ROWS_AT_ONCE)
        finally:
            head = synced(self, shard, head)
        if self.sent:
            write_answer(Path(self.answers), shard, head)
            return
        yield pa.RecordBatch.from_pydict(
            {
                "shard": pa.array([shard], pa.int32()),
                "head": pa.array([json.dumps(head)], pa.string()),
            }
        )


def arrived(batches: Iterator[pa.RecordBatch], checks: Sequence[SourceCheck]) -> Arrived:
    """Return what the rows of the shuffle say."""
    import pyarrow as pa

    found = Arrived()
    for batch in batches:
        numbers, received, bad, newest = (batch.column(i).to_pylist() for i in (1, 2, 3, 4))
        for i, number in enumerate(numbers):
            name = checks[number].name
            found.received[name] = found.received.get(name, 0) + received[i]
            if bad[i]:
                found.bad.setdefault(name, []).extend(json.loads(bad[i]))
            if newest[i] is not None:
                found.newest[number] = max(newest[i], found.newest.get(number, newest[i]))
            data = batch.column(5)[i].as_buffer()
            if data is not None and data.size:
                found.tables.setdefault(number, []).append(pa.ipc.open_stream(data).read_all())
    return found


def write_answer(folder: Path, shard: int, head: Mapping[str, Any]) -> None:
    """Write the answer of a task. If the task runs again, either answer will do."""
    hidden = folder / f".{shard}.{secrets.token_hex(8)}"
    hidden.write_text(json.dumps(head), encoding="utf-8")
    os.replace(hidden, folder / f"{shard}.json")


def read_answers(folder: Path, shards: int) -> list[tuple[int, dict[str, Any]]]:
    """Return what tasks have answered."""
    found = ((shard, folder / f"{shard}.json") for shard in range(shards))
    return [
        (shard, json.loads(file.read_text(encoding="utf-8")))
        for shard, file in found
        if file.exists()
    ]


def done_in(work: EpochWork, shard: int, came: Arrived) -> tuple[dict[str, Any], pa.Table | None]:
    """Do the epoch in a shard; return the answer, and the rows that Spark is to write.

    The answer is an error if the epoch cannot be done.
    """
    try:
        return _done_in(work, shard, came)
    except TidelogError as error:
        # Returned and not raised: another attempt would fail in the same way.
        drop((work.state.identity, shard))
        return _error_head(error), None
    except BaseException:
        drop((work.state.identity, shard))
        raise


def synced(work: EpochWork, shard: int, head: dict[str, Any]) -> dict[str, Any]:
    """Return the answer when what it names is on the disk, or an error.

    The disk works while the changes of the epoch go to Spark.
    """
    kept = kept_shard(work.state, shard)
    if kept is None:
        return head
    try:
        kept.sync()
    except TidelogError as error:
        drop((work.state.identity, shard))
        return _error_head(error)
    return head


def _error_head(error: TidelogError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": str(error)}


class _ShardInput:
    """The rows of an epoch for a shard, on top of the state that they change."""

    def __init__(self, work: EpochWork, number: int, came: Arrived) -> None:
        from tidelog.engine.kernel import KernelEngine

        state = work.state
        self.program, self.router = router_of(state.program, state.program_name, state.sides)
        self.own_program = program_of(state.program, state.program_name, state.sides, number)
        self.retention = ShardRetention(work.checks, work.newest, came.newest)
        self.shard = None if state.refs is None else opened(state, number)
        """The shard; None if it has no state yet."""
        before = None if self.shard is None else self.shard.engine
        self.engine = KernelEngine.empty(self.own_program) if before is None else before
        codec = self.engine.state.codec
        encoded = _encoded(came, work.checks, self.program, self.router, number, codec, before)
        stored = None if before is None else before.catalog.given.__getitem__
        self.changes = self.retention.apply(encoded, self.router, number, stored)
        """The inserted and deleted rows of each variant, as columns of ordinals."""

    @property
    def search(self) -> ShardSearch:
        """Looks for the rows on which rules fail."""
        before = None if self.shard is None else self.engine
        return ShardSearch(
            self.program, self.router, self.engine.state.codec, self.changes, before,
            self.own_program,
        )  # fmt: skip

    def applied(self, work: EpochWork, number: int) -> tuple[Shard, ShardDone]:
        """Apply the rows, and write the files of the shard."""
        from tidelog.durable.files import Files
        from tidelog.sharding.shard_state import Shard

        if self.shard is not None:
            self.shard.watched = frozenset(work.watched)
            return self.shard, self.shard.apply(work.epoch, self.changes)
        self.engine.load_ordinals({name: new for name, (new, _) in self.changes.items()})
        files = Files(Path(work.state.folder) / "shards" / str(number))
        return Shard.create(files, work.state.identity, self.engine, work.epoch)


def error_in(work: EpochWork, shard: int, came: Arrived) -> DataError | None:
    """Compute the epoch in a shard, and undo it; return the error of a rule, if there is one."""
    try:
        return _ShardInput(work, shard, came).search.whole()
    finally:
        drop((work.state.identity, shard))


def _done_in(work: EpochWork, number: int, came: Arrived) -> tuple[dict[str, Any], pa.Table | None]:
    state = work.state
    epoch = _ShardInput(work, number, came)
    try:
        shard, done = epoch.applied(work, number)
    except RULE_ERRORS as error:
        if not work.finds_failing:
            raise
        found = epoch.search.find(error)
        drop((state.identity, number))
        folder = Path(state.folder)
        failing = write_failing(folder, work.epoch, number, epoch.program, found)
        return {"failing": failing}, None
    router, retention = epoch.router, epoch.retention
    counting = router.sharding.grid.counts
    keep(state, number, shard)
    given = [0, 0]
    for name, variant in router.sharding.shown.items():
        if is_hidden(name):
            continue
        if name in done.given and counting(variant.partitioning, number):
            inserted, deleted = done.given[name]
            given = [given[0] + inserted, given[1] + deleted]
    answer: dict[str, Any] = {
        "ref": done.ref.as_data(),
        "given": given,
        "bootstrapped": done.bootstrapped,
        "views": {},
        "received": came.received,
        "bad": {name: len(rows) for name, rows in came.bad.items()},
        "newest": retention.newest,
        "late": retention.late,
    }
    sent = None
    for name in work.watched:
        variant = router.sharding.shown[name]
        if name in done.changes and counting(variant.partitioning, number):
            table = changes_of_view(work.epoch, shard, name, done)
            if name == work.sent:
                sent = table
                answer["views"][name] = "", table.num_rows  # the driver will know the file
            else:
                file = write_changes(state, work.epoch, number, table)
                answer["views"][name] = file, table.num_rows
    if came.bad:
        from tidelog.spark.checking import BadRow
        from tidelog.spark.quarantine import Quarantine

        bad = {name: [BadRow(**row) for row in rows] for name, rows in came.bad.items()}
        Quarantine(Path(work.quarantine)).write_part(work.epoch, number, bad)
    return answer, sent


def _encoded(
    came: Arrived,
    checks: Sequence[SourceCheck],
    program: Program,
    router: Router,
    number: int,
    codec: Codec,
    engine: KernelEngine | None,
) -> dict[str, tuple[Array, Array]]:
    """Return the inserted and deleted rows of each variant, as columns of ordinals.

    `engine` has the state before the epoch; None if there is none yet.
    """
    pieces = _pieces(came, checks, program, router, number, codec)
    encoded = {name: last_write_wins(found) for name, found in pieces.items()}
    snapshots = {check.relation for check in checks if check.mode == "snapshot" and not check.drift}
    sharding = router.sharding
    for relation in snapshots if engine is not None else ():  # the only source of its relation
        assert engine is not None
        for variant in sharding.variants_of(relation):
            name = sharding.name_of(variant)
            given = engine.catalog.given[name]
            before = given.ordinals(given.rows())
            now = encoded[name][0] if name in encoded else before[:, :0]
            encoded[name] = _difference(before, now)
    tables = {n: came.tables[n] for n in came.tables if checks[n].shape.keys}
    upserts = _Upserts(program, router, number, codec, engine)
    return encoded | upserts.changes(tables, checks)


class _Upserts:
    """Does upserts in a shard, which has all of them, but only its own rows of the relation."""

    def __init__(
        self,
        program: Program,
        router: Router,
        number: int,
        codec: Codec,
        engine: KernelEngine | None,
    ) -> None:
        self._program, self._router, self._number = program, router, number
        self._codec, self._engine = codec, engine

    def changes(
        self, tables: Mapping[int, Sequence[pa.Table]], checks: Sequence[SourceCheck]
    ) -> dict[str, tuple[Array, Array]]:
        """Return the inserted and deleted rows of each relation; `tables` has the sources' rows."""
        import pyarrow as pa

        by_relation: dict[str, list[pa.Table]] = {}
        for source in sorted(tables):
            ordered = in_order_of_keys(tables[source])
            by_relation.setdefault(checks[source].relation, []).append(ordered)
        shapes = {check.relation: check.shape for check in checks}
        found: dict[str, tuple[Array, Array]] = {}
        for name, parts in by_relation.items():
            shape = shapes[name]
            upsert = Upsert(name, shape.keys, bool(shape.sequence))
            found |= self._changes(upsert, pa.concat_tables(parts))
        return found

    def _changes(self, upsert: Upsert, table: pa.Table) -> dict[str, tuple[Array, Array]]:
        import pyarrow as pa

        sharding = self._router.sharding
        types = [column.type for column in self._program.relations[upsert.relation].columns]
        keys = key_ordinals(CheckedTable(table), upsert, types, self._codec)
        at = np.asarray(table[AT]) if AT in table.column_names else None
        found = newest(keys, _signs(table), at)
        asked = {
            variant: sharding.name_of(Variant(upsert.replaced, variant.partitioning))
            for variant in sharding.variants_of(upsert.relation)
        }
        done = replace_in(self._engine, upsert, found, list(asked.values()))
        rows = _own_columns(table).take(pa.array(done.newest.places[~done.newest.deletes]))
        ordinals = _ordinals(rows, self._program, upsert.relation, self._codec)
        changes = {}
        for variant, name in asked.items():
            new = ordinals[:, self._router.mask(variant, rows)(self._number)]
            old = done.rows.get(name, new[:, :0])
            changes[sharding.name_of(variant)] = new, other_rows(old, new)
        if done.sequences is not None:
            changes[upsert.sequence] = done.sequences
        return changes


def _difference(before: Array, now: Array) -> tuple[Array, Array]:
    """Return the rows that are only in `now`, and those that are only in `before`."""
    rows = np.concatenate([before, now], axis=1)
    order = np.lexsort(rows[::-1])
    is_new = (np.arange(rows.shape[1]) >= before.shape[1])[order]
    sorted_rows = rows[:, order]
    first = np.ones(rows.shape[1], np.bool_)
    first[1:] = (sorted_rows[:, 1:] != sorted_rows[:, :-1]).any(axis=0)
    group = np.cumsum(first) - 1
    groups = int(first.sum())
    has_new, has_old = np.zeros(groups, np.bool_), np.zeros(groups, np.bool_)
    has_new[group[is_new]] = True
    has_old[group[~is_new]] = True
    distinct = sorted_rows[:, first]
    return distinct[:, has_new & ~has_old], distinct[:, has_old & ~has_new]


def _pieces(
    came: Arrived,
    checks: Sequence[SourceCheck],
    program: Program,
    router: Router,
    number: int,
    codec: Codec,
) -> dict[str, Pieces]:
    """Return the rows of each variant, in the order in which they apply."""
    found: dict[str, Pieces] = {}
    for source in sorted(came.tables):
        if checks[source].shape.keys:
            continue
        table = in_order_of_keys(came.tables[source])
        signs = _signs(table) if SIGN in table.column_names else None
        relation = checks[source].relation
        rows = _own_columns(table)
        ordinals = _ordinals(rows, program, relation, codec)
        for variant in router.sharding.variants_of(relation):
            mine = router.mask(variant, rows)(number)
            own = ordinals if mine.all() else ordinals[:, mine]
            own_signs = None if signs is None else signs[mine]
            found.setdefault(router.sharding.name_of(variant), []).append((own, own_signs))
    return found


def _own_columns(table: pa.Table) -> pa.Table:
    """Return the columns of the relation."""
    return table.select([n for n in table.column_names if not n.startswith((SIGN, AT, KEY))])


def _signs(table: pa.Table) -> NDArray[np.bool_]:
    import pyarrow as pa

    return np.asarray(table[SIGN].combine_chunks().cast(pa.uint8())).astype(np.bool_)


def _ordinals(rows: pa.Table, program: Program, name: str, codec: Codec) -> Array:
    from tidelog.engine.arrow import ordinals_of
    from tidelog.io.conversion import rows_of

    relation = program.relations[name]
    types = [column.type for column in relation.columns]
    if not types:
        return np.zeros((1, rows.num_rows), np.int64)
    if is_columnar(relation):
        return ordinals_of(CheckedTable(rows), types, codec)
    return codec.encode_rows(list(rows_of(rows, relation, program.records)), types)


Tables = Mapping[int, Sequence[tuple[int, "pa.Table"]]]
"""Rows by number of the source: shards, and what each of them needs."""


def in_this_process(
    work: EpochWork, tables: Tables, shards: int
) -> list[tuple[int, dict[str, Any]]]:
    """Do the epoch in all shards, one after the other."""
    return [
        (shard, synced(work, shard, done_in(work, shard, _came(tables, shard))[0]))
        for shard in range(shards)
    ]


def error_in_this_process(work: EpochWork, tables: Tables, shards: int) -> DataError | None:
    """Compute the epoch in all shards, and undo it; return the first error of a rule, if any."""
    errors = (error_in(work, shard, _came(tables, shard)) for shard in range(shards))
    return next((error for error in errors if error is not None), None)


def _came(tables: Tables, shard: int) -> Arrived:
    found = Arrived()
    for source, parts in tables.items():
        own = [table for number, table in parts if number == shard]
        if own:
            found.tables[source] = own
    return found
