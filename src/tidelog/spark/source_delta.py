"""Delta tables as rows: the change feed or the added rows as a stream, or the table as a batch.

    delta-changes   first the rows of the table, as inserts, then each change
    append          first the rows of the table, then added rows; an update or delete is an error
    snapshot        a batch with all rows of the table

A change feed may be enabled after rows were written, because the stream begins with the table as it
is. Do not set `startingVersion` to a version without a feed. Within a version deletions come first:
a row that is both deleted and inserted exists afterwards.

A version must not be split between micro-batches, because its insertions may come first. An
overwritten table would lose the rows that are in it before and after. Delta splits versions without
recorded changes as soon as they exceed a limit, and there is a limit by default. So the change feed
is read without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.envelopes import CHANGE_TYPE, DELETES
from tidelog.spark.source_order import is_path, ordered

MODES = ("delta-changes", "append", "snapshot")
_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
_ALL_FILES = str(2**31 - 1)


def stream(
    spark: Any, options: Mapping[str, str], path_or_table: str, *, mode: str = "delta-changes"
) -> Any:
    """Return the changes or the added rows of a table as a streaming frame."""
    from pyspark.sql import functions as F

    if mode == "append":
        frame = _load(spark.readStream.format("delta").options(**options), path_or_table)
        return ordered(frame, file=F.lit(path_or_table), start=F.lit(0))
    if mode != "delta-changes":
        raise UsageError(f"a Delta table is a stream in the modes {', '.join(MODES[:2])} only")
    limited = [name for name in options if name.lower() in {limit.lower() for limit in _LIMITS}]
    if limited:
        raise UsageError(
            f"`{limited[0]}` cannot be used with the change feed of a Delta table: a version that"
            " is split would lose rows\n  help: leave it out; an epoch then has all new versions"
        )
    reader = spark.readStream.format("delta").options(**options)
    reader = reader.option("readChangeFeed", "true").option("maxFilesPerTrigger", _ALL_FILES)
    frame = _load(reader, path_or_table)
    inserted = (~F.col(CHANGE_TYPE).isin(*sorted(DELETES))).cast("long")
    return ordered(frame, file=F.lit(path_or_table), start=F.col("_commit_version") * 2 + inserted)


def batch(spark: Any, options: Mapping[str, str], path_or_table: str) -> Any:
    """Return all rows of a table; the option `versionAsOf` asks for an older version."""
    from pyspark.sql import functions as F

    frame = _load(spark.read.format("delta").options(**options), path_or_table)
    return ordered(frame, file=F.lit(path_or_table), start=F.lit(0))


def version(spark: Any, path_or_table: str) -> int:
    """Return the current version of a table: a snapshot is read again only if it has changed."""
    name = f"delta.{_quoted(path_or_table)}" if is_path(path_or_table) else path_or_table
    history = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version")
    return int(history.toArrow()["version"][0].as_py())


def _load(reader: Any, path_or_table: str) -> Any:
    return reader.load(path_or_table) if is_path(path_or_table) else reader.table(path_or_table)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
