"""A Python process for each shard, in a local session.

A process keeps in memory the shards that it has worked on. Spark gives a task any process that is
free. So a shard would wander between processes, and each would first have to do the epochs that it
has missed. But Spark has a pool of processes for each set of environment variables. Here the
function for each shard has a variable of its own, and with it a pool, which has one process.

In a cluster a shard wanders between machines anyway, so there this is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

from tidelog.spark.jobs import context_of

_SHARD = "TIDELOG_SHARD"
_MOST = 8
"""Up to how many shards have a process of their own."""


def by_shard(spark: Any, shards: Any, task: Any, count: int, schema: Any) -> Any:
    """Return what a task makes of each partition of a frame; partition i belongs to shard i."""
    context = context_of(spark)
    if count > _MOST or context is None or not str(context.master).startswith("local"):
        return shards.mapInArrow(task, schema)

    def part(shard: int) -> Any:
        # Spark computes a shuffle before this once for all parts, as their plans are the same up to
        # here. A condition on a column would be moved before the shuffle, and then they differ.
        own = shards.where(f"spark_partition_id() = {shard}").coalesce(1)
        with _variable(context, shard):
            return own.mapInArrow(task, schema)

    return _united(part, count)


def of_shards(spark: Any, task: Any, count: int, schema: Any) -> Any:
    """Return what a task makes of the number of each shard, in a partition for each."""
    context = context_of(spark)
    if count > _MOST or context is None or not str(context.master).startswith("local"):
        return spark.range(0, count, 1, count).mapInArrow(task, schema)

    def part(shard: int) -> Any:
        # Of ranges with one partition each, Spark would make one partition together.
        number = spark.sql(f"VALUES ({shard}L) AS shards(id)")
        with _variable(context, shard):
            return number.mapInArrow(task, schema)

    return _united(part, count)


SETTINGS = {
    # A union of frames with a partition each has as many partitions, and not one.
    "spark.sql.unionOutputPartitioning": "false",
}
"""Settings of the session for jobs with frames of `by_shard`."""


def _united(part: Callable[[int], Any], count: int) -> Any:
    return reduce(lambda a, b: a.union(b), [part(shard) for shard in range(count)])


@contextmanager
def _variable(context: Any, shard: int) -> Iterator[None]:
    """Set the variable for functions that are given to Spark in a block."""
    context.environment[_SHARD] = str(shard)
    try:
        yield
    finally:
        del context.environment[_SHARD]
