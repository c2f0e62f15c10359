"""Views of a sharded pipeline as DataFrames: no row passes through the driver.

A view has one partition for each shard, which a task reads from the state of the shard. The changes
of an epoch are Parquet files that the tasks of the epoch have written (shard_task.py), or Spark in
the job of the epoch (shard_staging.py). Spark reads them. The driver knows their names and how many
rows they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.spark.frames import for_spark, frame_schema
from tidelog.spark.listing import spark_path
from tidelog.spark.shard_processes import of_shards
from tidelog.spark.shard_staging import BY_SPARK
from tidelog.spark.shard_task import Work, count_of, view_tables
from tidelog.spark.view_changes import ViewChange, changes_schema


@dataclass(frozen=True)
class ShardRows:
    """A task that returns the rows that a view takes from a shard."""

    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the shards of a partition."""
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                for table in view_tables(self.work, int(shard)):
                    yield from for_spark(table).to_batches()


def view_frame(spark: Any, work: Work, schema: pa.Schema) -> Any:
    """Return the rows of the view in `work`, with a partition for each shard."""
    count = count_of(work.sides)
    return of_shards(spark, ShardRows(work), count, frame_schema(spark, schema))


def change_in_files(
    spark: Any, epoch: int, rows: int, files: Sequence[Path], schema: pa.Schema
) -> ViewChange:
    """Return the changes of an epoch that are in files; `schema` is that of the view."""
    whole = changes_schema(schema)

    def frame() -> Any:
        paths = [spark_path(str(file)) for file in files]
        return spark.read.schema(frame_schema(spark, whole)).parquet(*paths)

    def table() -> pa.Table:
        tables = [pq.ParquetFile(file).read() for file in files]
        return pa.concat_tables(tables).cast(whole)

    by_spark = all(file.name.endswith(BY_SPARK) for file in files)
    return ViewChange(epoch, rows, frame, table, tuple(files) if by_spark else ())
