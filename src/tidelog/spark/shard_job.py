"""Do work in all shards with Spark: one job for an epoch, and one for reading a view."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from tidelog import errors
from tidelog.errors import DataError, LimitError, StateError, UsageError
from tidelog.spark import shard_epoch, shard_routing, shard_task
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.jobs import reason, settings
from tidelog.spark.retries import outage
from tidelog.spark.shard_epoch import EpochWork
from tidelog.spark.shard_routing import RouteRows
from tidelog.spark.shard_task import Work, count_of

_SETTINGS = {
    # The shards say how many partitions there are, so both stages can be planned at once. An
    # adaptive plan is a job for each stage, which takes tens of milliseconds more.
    "spark.sql.adaptive.enabled": "false",
    # For a limit in bytes, Spark adds up the size of all columns after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 15),
    # A union of frames with a partition each has as many partitions, not one.
    "spark.sql.unionOutputPartitioning": "false",
}
"""Settings of the session during the job of an epoch."""
_SHARD = "TIDELOG_SHARD"
_MOST_OWN = 8
"""Up to how many shards have a process of their own. Each of its tasks reads what the shuffle has
for all shards, and drops the rest."""
ShardAnswer = tuple[int, dict[str, Any], bytes]
"""A part of a view from a shard: its number, a JSON object, and data."""
Runner = Callable[[Work], list[ShardAnswer]]
"""Reads a view in all shards."""


class BySpark:
    """Does work with Spark, one job at a time."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __call__(self, work: Work) -> list[ShardAnswer]:
        """Read a view in one job; raise the error that a shard has reported."""
        count = count_of(work.sides)
        shards = self._spark.range(0, count, 1, count)
        table = _run(shards.mapInArrow(work, shard_task.SCHEMA), "a read of a view")
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
        frame = epoch.frame(with_tables=True)
        if frame is None:
            shards = self._spark.range(0, count, 1, count)
            routed = shards.mapInArrow(_nothing, shard_routing.SCHEMA)
        else:
            route = RouteRows(
                state.program, state.program_name, state.sides, work.checks, epoch.files(),
                frame.columns, state.folder, work.failing,
            )  # fmt: skip
            sent = frame.frame.mapInArrow(route, shard_routing.SCHEMA)
            routed = sent.repartitionById(count, F.col("shard"))
        applied = self._applied(routed, self.task(work), count)
        with settings(applied.sparkSession, _SETTINGS):
            table = _run(applied, "an epoch")
        shards, heads = (table[name].to_pylist() for name in ("shard", "head"))
        answers = list(zip(shards, map(json.loads, heads), strict=True))
        return checked_answers(answers)


    def _applied(self, routed: Any, task: Any, count: int) -> Any:
        """Return the answers of the shards; partition i of `routed` has what shard i gets."""
        if count > _MOST_OWN or not str(self._spark.sparkContext.master).startswith("local"):
            return routed.mapInArrow(task, shard_epoch.SCHEMA)
        from pyspark.sql import functions as F

        parts = []
        for shard in range(count):
            # Spark computes the shuffle once for all of them: their plans are the same so far. It
            # would not be so with a filter by column, which Spark would move before the shuffle.
            own = routed.where(F.spark_partition_id() == shard).coalesce(1)
            with _own_process(self._spark.sparkContext, shard):
                parts.append(own.mapInArrow(task, shard_epoch.SCHEMA))
        return reduce(lambda a, b: a.union(b), parts)


@contextmanager
def _own_process(context: Any, shard: int) -> Iterator[None]:
    """Let the function of a frame run in a Python process of its own: that of a shard.

    Spark has a pool of processes for each set of environment variables.
    """
    context.environment[_SHARD] = str(shard)
    try:
        yield
    finally:
        del context.environment[_SHARD]


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


def _run(frame: Any, what: str) -> Any:
    try:
        return frame.toArrow()
    except Exception as error:  # Spark's own, of either kind of session
        text = f"Spark failed in {what}: {_cause(error)}"
        # Our own code in a worker fails again; whatever Spark reads from may come back.
        of_worker = "PythonException" in str(error) or type(error).__name__ == "PythonException"
        raise (DataError(text) if of_worker else outage(text, error)) from error


def _cause(error: Exception) -> str:
    """Return the essential line of a Spark error: that of the worker's error, if there is one."""
    lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exit)\b", line)]
    return lines[0] if lines else reason(error)


def checked_answers(
    answers: Sequence[tuple[int, dict[str, Any]]],
) -> list[tuple[int, dict[str, Any]]]:
    """Return the answers; raise the error that a shard has reported."""
    for _, head in answers:
        if "error" in head:
            kind = getattr(errors, head["error"])
            bases = (DataError, LimitError, StateError, UsageError)
            raise next(base for base in bases if issubclass(kind, base))(head["message"])
    return list(answers)
