"""Do work in all shards with Spark: one job for an epoch, and one for reading a view."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tidelog.errors import DataError
from tidelog.io.tabular import arrow_schema
from tidelog.sharding.cells import Cells
from tidelog.spark import (
    shard_epoch,
    shard_processes,
    shard_routing,
    shard_staging,
    shard_task,
)
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.frames import frame_schema
from tidelog.spark.jobs import reason, settings
from tidelog.spark.retries import outage
from tidelog.spark.shard_epoch import EpochWork, checked_answers
from tidelog.spark.shard_processes import by_shard, of_shards
from tidelog.spark.shard_routing import RouteRows
from tidelog.spark.shard_staging import Staged, without_nulls
from tidelog.spark.shard_task import Work, cells_of, count_of
from tidelog.spark.view_changes import changes_schema

_SETTINGS = {
    # The shards say how many partitions there are, so both stages can be planned at once. An
    # adaptive plan is a job for each stage, which takes tens of milliseconds more.
    "spark.sql.adaptive.enabled": "false",
    # For a limit in bytes, Spark adds up the size of all columns after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 15),
    **shard_processes.SETTINGS,
}
"""Settings of the session during the job of an epoch."""
_LARGEST_PLAN = 16
ShardAnswer = tuple[int, dict[str, Any], bytes]
"""A part of a view from a shard: its number, a JSON object, and data."""
Runner = Callable[[Work], list[ShardAnswer]]
"""Reads a view in all shards."""


class BySpark:
    """Does work with Spark, one job at a time."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._kept: tuple[Any, Mapping[str, str]] | None = None
        """The session of a streaming query, and the settings that it keeps."""

    def __call__(self, work: Work) -> list[ShardAnswer]:
        """Read a view in one job; raise the error that a shard has reported."""
        count = count_of(work.sides)
        frame = of_shards(self._spark, work, count, _parsed(shard_task.SCHEMA))
        table = _run(frame.toArrow, "a read of a view")
        shards, heads, parts = (table[name].to_pylist() for name in ("shard", "head", "data"))
        found = list(zip(shards, map(json.loads, heads), parts, strict=True))
        checked_answers([(shard, head) for shard, head, _ in found])
        return found

    def task(self, work: EpochWork) -> Any:
        """Return the function that a task calls with the rows of its shard."""
        return work

    def epoch(self, epoch: EpochInput, work: EpochWork) -> list[tuple[int, dict[str, Any]]]:
        """Read, route and apply the rows of an epoch in one job; return what the shards say."""
        from pyspark.sql import functions as F

        state = work.state
        count = count_of(state.sides)
        frame = epoch.frame(with_tables=True, numbered=False)
        if frame is None:
            shards = self._spark.range(0, count, 1, count)
            routed = shards.mapInArrow(_nothing, _parsed(shard_routing.SCHEMA))
        else:
            route = RouteRows(
                state.program, state.program_name, state.sides, work.checks, epoch.files(),
                frame.columns, epoch.is_ordered, state.folder, work.failing,
            )  # fmt: skip
            sent = frame.frame.mapInArrow(route, _parsed(shard_routing.SCHEMA))
            routed = sent.repartitionById(count, F.col("shard"))
        cells = work.cells
        for stage in range(cells.stages - 1):
            # One more shuffle of the same job brings what a stage sends to the next one.
            task = self.task(replace(work, stage=stage, sent=""))
            sent = self._by_shard(routed, task, cells, _parsed(shard_routing.SCHEMA))
            routed = sent.repartitionById(count, F.col("shard"))
        work = replace(work, stage=cells.stages - 1)
        session = routed.sparkSession
        if work.sent:
            with self._set(session, {**_SETTINGS, **shard_staging.SETTINGS}, epoch):
                return self._staged(routed, work, count)
        schema = _parsed(shard_epoch.SCHEMA)
        applied = self._by_shard(routed, self.task(work), cells, schema)
        with self._set(session, _SETTINGS, epoch):
            table = _run(applied.toArrow, "an epoch")
        shards, heads = (table[name].to_pylist() for name in ("shard", "head"))
        return checked_answers(list(zip(shards, map(json.loads, heads), strict=True)))

    def _by_shard(self, routed: Any, task: Any, cells: Cells, schema: Any) -> Any:
        """Return what a task makes of each partition of a frame.

        A plan with a part for each shard is as large as that number to the power of the stages.
        """
        if cells.shards**cells.stages > _LARGEST_PLAN:
            return routed.mapInArrow(task, schema)
        return by_shard(self._spark, routed, task, cells.shards, schema)

    @contextmanager
    def _set(self, session: Any, values: Mapping[str, str], epoch: EpochInput) -> Iterator[None]:
        """Set settings for a job. The session of the streaming query keeps them.

        Each setting is a call to the JVM, and a micro-batch of few rows takes 0.2 s.
        """
        if not epoch.is_micro_batch:
            with settings(session, values):
                yield
            return
        now = session._jsparkSession, values
        if self._kept != now:
            for name, value in values.items():
                session.conf.set(name, value)
            self._kept = now
        yield

    def _staged(self, routed: Any, work: EpochWork, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Apply rows, and have Spark write the changes of a view, in one job."""
        staged = Staged(Path(work.state.folder))
        try:
            task = self.task(replace(work, answers=str(staged.answers)))
            state = work.state
            cells = cells_of(state.program, state.program_name, state.sides)
            program = cells.program
            view = arrow_schema(program.relations[work.sent], program.records)
            schema = frame_schema(self._spark, without_nulls(changes_schema(view)))
            applied = self._by_shard(routed, task, cells, schema)
            _run(lambda: staged.write(applied), "an epoch")
            answers = checked_answers(staged.read(count))
            staged.keep(work.epoch, work.sent, answers)
            return answers
        finally:
            staged.remove()


@cache
def _parsed(schema: str) -> Any:
    """Return a schema as Spark has it; of a text, Spark would ask the JVM every time."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema)


def _nothing(batches: Any) -> Any:
    """Yield nothing: a partition without rows."""
    for _ in batches:
        pass
    return iter(())


def here(work: Work) -> list[ShardAnswer]:
    """Read a view in this process; raise the error that a shard has reported."""
    found = shard_task.in_this_process(work)
    checked_answers([(shard, head) for shard, head, _ in found])
    return found


def _run(job: Callable[[], Any], what: str) -> Any:
    try:
        return job()
    except Exception as error:  # Spark's own, of either kind of session
        text = f"Spark failed in {what}: {_cause(error)}"
        # Our own code in a worker fails again; whatever Spark reads from may come back.
        of_worker = "PythonException" in str(error) or type(error).__name__ == "PythonException"
        raise (DataError(text) if of_worker else outage(text, error)) from error


def _cause(error: Exception) -> str:
    """Return the essential line of a Spark error: that of the worker's error, if there is one."""
    lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exit)\b", line)]
    return lines[0] if lines else reason(error)
