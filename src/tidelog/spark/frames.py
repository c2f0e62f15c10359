"""Arrow tables as DataFrames.

Spark has no unsigned integers: they become decimals without a fraction. A large table that is
handed over directly is planned again with every query, which costs half a second each time; so
large ones go through a file, where Spark and this process share a file system.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

_LARGE = 100_000  # rows
_UNSIGNED = pa.decimal128(20, 0)


def for_spark(table: pa.Table) -> pa.Table:
    """Return a table with the types that Spark has."""
    for i, column in enumerate(table.schema):
        if pa.types.is_uint64(column.type):
            table = table.set_column(i, column.name, table[i].cast(_UNSIGNED))
    return table


def to_frame(spark: Any, table: pa.Table) -> Any:
    """Return a table as a DataFrame."""
    table = for_spark(table)
    if table.num_rows < _LARGE or is_remote(spark):
        return spark.createDataFrame(table)
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="tidelog-frame-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pq.write_table(table, folder / "rows.parquet")
    return spark.read.schema(spark.createDataFrame(table.slice(0, 0)).schema).parquet(str(folder))


def is_remote(spark: Any) -> bool:
    """Return whether a session is one of Spark Connect, whose server may be anywhere."""
    return "connect" in type(spark).__module__
