"""Convert Arrow tables to DataFrames, and the DataFrames of an epoch to Arrow tables.

Their types become types that Spark has (arrow_types.py). Spark plans a large table that is passed
directly again with every query, which costs half a second each time. So large tables are passed as
files, if Spark and this process share a file system.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.spark.arrow_types import spark_type

_LARGE = 100_000  # rows
_passed: ContextVar[list[Path] | None] = ContextVar("tidelog passed files", default=None)


def for_spark(table: pa.Table) -> pa.Table:
    """Return a table with types that Spark has."""
    wanted = spark_schema(table.schema)
    return table if wanted == table.schema else table.cast(wanted)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `for_spark`."""
    return pa.schema([field.with_type(spark_type(field.type)) for field in schema])


def to_frame(spark: Any, table: pa.Table) -> Any:
    """Return a table as a DataFrame, with the rows in the same order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = for_spark(table)
    if table.num_rows < _LARGE or not _shares_files(spark):
        if not table.num_rows:  # Spark Connect does not take a table without rows
            return spark.createDataFrame([], from_arrow_schema(table.schema))
        return spark.createDataFrame(table)
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="tidelog-frame-"))
    if (passed := _passed.get()) is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    else:
        passed.append(folder)
    pq.write_table(table, folder / "rows.parquet")
    return spark.read.schema(frame_schema(spark, table.schema)).parquet(f"file://{folder}")


def frame_schema(spark: Any, schema: pa.Schema) -> Any:
    """Return Spark's schema for an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(spark_schema(schema))


@contextmanager
def passing() -> Iterator[None]:
    """Remove the files of frames that are made in a block at its end; they are used only there."""
    token = _passed.set([])
    try:
        yield
    finally:
        for folder in _passed.get() or ():
            shutil.rmtree(folder, ignore_errors=True)
        _passed.reset(token)


def _shares_files(spark: Any) -> bool:
    """Return whether Spark runs on this machine; otherwise its tasks may be anywhere."""
    return not is_remote(spark) and str(spark.sparkContext.master).startswith("local")


def is_remote(spark: Any) -> bool:
    """Return whether a session belongs to Spark Connect, whose server may be anywhere."""
    return "connect" in type(spark).__module__
