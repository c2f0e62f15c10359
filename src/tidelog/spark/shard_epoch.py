"""Do a stage of an epoch in a shard: what follows a shuffle of a sharded epoch, in Spark tasks.

Partition i of the shuffle has everything for shard i (shard_routing.py). A task takes the cell of
its stage and shard from the memory of its process or from its files, applies the rows, writes files
under unique names, and returns their names. The driver decides which of the files count. So a task
may run twice, or fail at any point. Nothing but names, counts and errors returns to the driver.

The task of an earlier stage returns what the next shuffle brings to the stages that follow
(shard_exchange.py).

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog import errors
from tidelog.errors import DataError, LimitError, StateError, TidelogError, UsageError
from tidelog.sharding.key_relations import is_hidden
from tidelog.spark.bisection import RULE_ERRORS
from tidelog.spark.shard_changes import encoded_changes
from tidelog.spark.shard_exchange import Arrived, arrived, rows_of_shuffle, sent_rows
from tidelog.spark.shard_retention import ShardRetention
from tidelog.spark.shard_routing import Sent, SourceCheck, batch_of
from tidelog.spark.shard_rule_errors import ShardSearch, write_failing
from tidelog.spark.shard_task import (
    Work,
    cells_of,
    changes_of_view,
    drop,
    keep,
    kept_shard,
    opened,
    program_of,
    write_changes,
)
from tidelog.spark.worker_process import begin_task

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.sharding.cells import Cells
    from tidelog.sharding.shard_state import Shard, ShardDone, ShardRef

SCHEMA = "shard int, head string"
_ROWS_AT_ONCE = 1 << 16  # that go to Spark


@dataclass(frozen=True)
class EpochWork:
    """A stage of an epoch, for all shards."""

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
    stage: int = 0
    """The stage to do."""
    answers: str = ""
    """The folder for the answers of tasks that return such rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do a stage of the epoch in the shard of a partition."""
        import pyarrow as pa
        from pyspark import TaskContext

        begin_task()
        context = TaskContext.get()
        assert context is not None
        shard = context.partitionId()
        came = arrived(rows_of_shuffle(batches), self.cells, self.checks, self.stage)
        found = done_in(self, shard, came)
        if self.stage < self.cells.stages - 1:
            yield from (batch_of([row]) for row in found.sent)
            return
        answer = found.answer
        try:
            if found.rows is not None:
                yield from found.rows.combine_chunks().to_batches(_ROWS_AT_ONCE)
        finally:
            answer = synced(self, shard, answer)
        if self.sent:
            write_answer(Path(self.answers), shard, answer)
            return
        yield pa.RecordBatch.from_pydict(
            {
                "shard": pa.array([shard], pa.int32()),
                "head": pa.array([json.dumps(answer)], pa.string()),
            }
        )

    @property
    def cells(self) -> Cells:
        """The cells of the program."""
        return cells_of(self.state.program, self.state.program_name, self.state.sides)


@dataclass(frozen=True)
class CellDone:
    """What a cell has done in an epoch."""

    answer: dict[str, Any]
    """The answer of this stage and those before. It is an error if the epoch cannot be done."""
    sent: Sequence[Sent] = ()
    """What later stages receive."""
    rows: pa.Table | None = None
    """The changes of a view for Spark to write."""


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


def done_in(work: EpochWork, shard: int, came: Arrived) -> CellDone:
    """Do a stage of the epoch in a shard."""
    cell = work.cells.cell(work.stage, shard)
    try:
        if came.is_done:
            return _passed_on(work, shard, came, came.answer)
        return _done_in(work, shard, came)
    except TidelogError as error:
        # Returned and not raised: another attempt would fail in the same way.
        drop((work.state.identity, cell))
        return _passed_on(work, shard, came, _error_answer(work, error))
    except BaseException:
        drop((work.state.identity, cell))
        raise


def _passed_on(
    work: EpochWork,
    number: int,
    came: Arrived,
    answer: dict[str, Any],
    done: tuple[Shard, ShardDone] | None = None,
    rows: pa.Table | None = None,
) -> CellDone:
    cells = work.cells
    if work.stage == cells.stages - 1:
        return CellDone(answer, rows=rows)
    sent = sent_rows(cells, work.checks, work.stage, number, came, answer, done)
    return CellDone(answer, tuple(sent))


def synced(work: EpochWork, shard: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer when what it names is on the disk, or an error.

    The disk works while the changes of the epoch go to Spark.
    """
    cell = work.cells.cell(work.stage, shard)
    kept = kept_shard(work.state, cell)
    if kept is None:
        return answer
    try:
        kept.sync()
    except TidelogError as error:
        drop((work.state.identity, cell))
        return _error_answer(work, error)
    return answer


def _error_answer(work: EpochWork, error: TidelogError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": str(error), "stage": work.stage}


class _CellInput:
    """The rows of an epoch for a cell, on top of the state that they change."""

    def __init__(self, work: EpochWork, number: int, came: Arrived) -> None:
        from tidelog.engine.kernel import KernelEngine

        state, cells, stage = work.state, work.cells, work.stage
        self.cell = cells.cell(stage, number)
        self.router = cells.routers[stage]
        self.program = cells.layout.programs[stage]
        self.own_program = program_of(state.program, state.program_name, state.sides, self.cell)
        own = _own_checks(work)
        self.retention = ShardRetention(own, work.newest, came.newest)
        self.shard = None if state.refs is None else opened(state, self.cell)
        """The shard; None if it has no state yet."""
        before = None if self.shard is None else self.shard.engine
        self.engine = KernelEngine.empty(self.own_program) if before is None else before
        codec = self.engine.state.codec
        encoded = encoded_changes(
            came, own, self._exchanged(work, came), self.program, self.router, number, codec, before
        )
        stored = None if before is None else before.catalog.given.__getitem__
        self.changes = self.retention.apply(encoded, self.router, number, stored)
        """The inserted and deleted rows of each variant, as columns of ordinals."""

    @staticmethod
    def _exchanged(work: EpochWork, came: Arrived) -> dict[str, list[pa.Table]]:
        """Return what earlier stages have sent, by name of the relation that receives it."""
        exchanges = work.cells.layout.exchanges
        first = len(work.checks)
        return {
            exchanges[at - first].received: tables
            for at, tables in came.tables.items()
            if at >= first
        }

    @property
    def search(self) -> ShardSearch:
        """Looks for the rows on which rules fail."""
        before = None if self.shard is None else self.engine
        return ShardSearch(
            self.program, self.router, self.engine.state.codec, self.changes, before,
            self.own_program,
        )  # fmt: skip

    def applied(self, work: EpochWork) -> tuple[Shard, ShardDone]:
        """Apply the rows, and write the files of the cell."""
        from tidelog.durable.files import Files
        from tidelog.sharding.shard_state import Shard

        if self.shard is not None:
            exchanged = [exchange.relation for _, exchange in work.cells.sent_from(work.stage)]
            self.shard.watched = frozenset([*work.watched, *exchanged])
            return self.shard, self.shard.apply(work.epoch, self.changes)
        self.engine.load_ordinals({name: new for name, (new, _) in self.changes.items()})
        files = Files(Path(work.state.folder) / "shards" / str(self.cell))
        return Shard.create(files, work.state.identity, self.engine, work.epoch)


def error_in(work: EpochWork, shard: int, came: Arrived) -> DataError | None:
    """Compute the only stage in a shard, and undo it; return the error of a rule, if any."""
    try:
        return _CellInput(work, shard, came).search.whole()
    finally:
        drop((work.state.identity, work.cells.cell(work.stage, shard)))


def _own_checks(work: EpochWork) -> dict[int, SourceCheck]:
    """Return the sources whose relations are given in the stage, by number."""
    home = work.cells.layout.home
    checks = enumerate(work.checks)
    return {number: check for number, check in checks if home[check.relation] == work.stage}


def _is_untouched(work: EpochWork, came: Arrived) -> bool:
    """Return whether nothing can change in a cell. Then it is not even opened."""
    if work.state.refs is None or came.tables or came.newest:
        return False
    return all(check.mode != "snapshot" for check in _own_checks(work).values())


def _done_in(work: EpochWork, number: int, came: Arrived) -> CellDone:
    cell = work.cells.cell(work.stage, number)
    if _is_untouched(work, came):
        assert work.state.refs is not None
        retention = ShardRetention(_own_checks(work), work.newest, {})
        return _finished(work, number, came, retention, work.state.refs[cell])
    epoch = _CellInput(work, number, came)
    try:
        shard, done = epoch.applied(work)
    except RULE_ERRORS as error:
        # Later stages have no rows of sources that could be left out.
        if not work.finds_failing or work.stage:
            raise
        found = epoch.search.find(error)
        drop((work.state.identity, cell))
        folder = Path(work.state.folder)
        failing = write_failing(folder, work.epoch, number, epoch.program, found)
        return _passed_on(work, number, came, {"failing": failing})
    keep(work.state, cell, shard)
    return _finished(work, number, came, epoch.retention, done.ref, (shard, done))


def _finished(
    work: EpochWork,
    number: int,
    came: Arrived,
    retention: ShardRetention,
    ref: ShardRef,
    done: tuple[Shard, ShardDone] | None = None,
) -> CellDone:
    """Return what a cell has done: its answer, with the files that it has written."""
    before = came.answer
    given, views, rows = _seen(work, number, came, done)
    if came.bad:
        from tidelog.spark.checking import BadRow
        from tidelog.spark.quarantine import Quarantine

        bad = {name: [BadRow(**row) for row in rows] for name, rows in came.bad.items()}
        cell = work.cells.cell(work.stage, number)
        Quarantine(Path(work.quarantine)).write_part(work.epoch, cell, bad)
    is_new = done is not None and done[1].bootstrapped
    answer = {
        "refs": [*before.get("refs", ()), ref.as_data()],
        "given": given,
        "bootstrapped": before.get("bootstrapped", False) or is_new,
        "views": views,
        "received": {**before.get("received", {}), **came.received},
        "bad": {**before.get("bad", {}), **{name: len(bad) for name, bad in came.bad.items()}},
        "newest": {**before.get("newest", {}), **retention.newest},
        "late": {**before.get("late", {}), **retention.late},
    }
    if done is not None and work.stage < work.cells.stages - 1:
        done[0].sync()  # later stages have the answer
    return _passed_on(work, number, came, answer, done, rows)


def _seen(
    work: EpochWork, number: int, came: Arrived, did: tuple[Shard, ShardDone] | None
) -> tuple[list[int], dict[str, Any], pa.Table | None]:
    """Return the numbers of given rows, the changes of views, and those that Spark is to write."""
    cells, home = work.cells, work.cells.layout.home
    given = list(came.answer.get("given", (0, 0)))
    views: dict[str, Any] = dict(came.answer.get("views", {}))
    rows = None
    if did is None:
        return given, views, rows
    shard, done = did
    for name, (inserted, deleted) in done.given.items():
        own = home.get(name) == work.stage and not is_hidden(name)
        if own and cells.is_shown_in(name, number):
            given = [given[0] + inserted, given[1] + deleted]
    for name in work.watched:
        own = home[name] == work.stage and name in done.changes
        if own and cells.is_shown_in(name, number):
            table = changes_of_view(work.epoch, shard, name, done)
            if name == work.sent:
                rows = table
                views[name] = "", table.num_rows  # the driver will know the file
            else:
                file = write_changes(work.state, work.epoch, number, table)
                views[name] = file, table.num_rows
    return given, views, rows


Tables = Mapping[int, Sequence[tuple[int, "pa.Table"]]]
"""Rows by number of the source: shards, and what each of them needs."""


def in_this_process(work: EpochWork, tables: Tables) -> list[tuple[int, dict[str, Any]]]:
    """Do the epoch in all cells, one after the other."""
    cells = work.cells
    sent: list[list[Sent]] = [[] for _ in range(cells.shards)]
    answers: list[tuple[int, dict[str, Any]]] = []
    for stage in range(cells.stages):
        part = replace(work, stage=stage)
        done = [
            done_in(part, shard, _came(part, tables, sent[shard], shard))
            for shard in range(cells.shards)
        ]
        answers = [(shard, synced(part, shard, found.answer)) for shard, found in enumerate(done)]
        sent = [[] for _ in range(cells.shards)]
        for row in (row for found in done for row in found.sent):
            sent[row[0]].append(row)
    return answers


def error_in_this_process(work: EpochWork, tables: Tables) -> DataError | None:
    """Compute the epoch in all shards, and undo it; return the first error of a rule, if any."""
    cells = work.cells
    if cells.stages == 1:
        found = (error_in(work, i, _came(work, tables, (), i)) for i in range(cells.shards))
        return next((error for error in found if error is not None), None)
    try:
        # The files that are written are not named by any epoch.
        checked_answers(in_this_process(work, tables))
    except RULE_ERRORS as error:
        return error
    finally:
        for cell in range(cells.count):
            drop((work.state.identity, cell))
    return None


def _came(work: EpochWork, tables: Tables, sent: Sequence[Sent], shard: int) -> Arrived:
    found = arrived(sent, work.cells, work.checks, work.stage)
    for source, parts in tables.items():
        own = [table for number, table in parts if number == shard]
        if own and work.cells.layout.home[work.checks[source].relation] == work.stage:
            found.tables[source] = own
    return found


def checked_answers(
    answers: Sequence[tuple[int, dict[str, Any]]],
) -> list[tuple[int, dict[str, Any]]]:
    """Return the answers; raise the error that a cell has reported, the first by its stage."""
    failed = [head for _, head in answers if "error" in head]
    if failed:
        head = min(failed, key=lambda head: int(head.get("stage", 0)))
        kind = getattr(errors, head["error"])
        bases = (DataError, LimitError, StateError, UsageError)
        raise next(base for base in bases if issubclass(kind, base))(head["message"])
    return list(answers)
