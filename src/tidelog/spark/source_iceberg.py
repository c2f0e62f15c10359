"""Iceberg tables as rows: added rows as a stream, changes or the whole table as a batch.

    append     first the rows of the table, then added rows; other snapshots are an error
    changes    a batch with the changes between two snapshots; the first one is a whole table
    snapshot   a batch with all rows of a table

Iceberg has no stream of changes. The caller remembers the id of the last snapshot it took and asks
for what came later. Changes can only be read from tables that are written copy-on-write: from one
with delete files (merge-on-read), Iceberg refuses to read them. Such a table is read in mode
`snapshot`. An overwrite gives rows that stay as deleted and inserted; since deletions of a snapshot
come first, they stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import DataError
from tidelog.spark.envelopes import CHANGE_TYPE
from tidelog.spark.source_order import is_path, ordered

_ORDINAL, _SNAPSHOT = "_change_ordinal", "_commit_snapshot_id"


def stream(spark: Any, options: Mapping[str, str], path_or_table: str) -> Any:
    """Return the rows of a table, and then those that are added, as a streaming frame.

    Snapshots that delete or overwrite are an error, unless the options
    `streaming-skip-delete-snapshots` and `streaming-skip-overwrite-snapshots` skip them.
    """
    from pyspark.sql import functions as F

    # The columns `_file` and `_pos` are there, but fail when a micro-batch reads them.
    frame = spark.readStream.format("iceberg").options(**options).load(path_or_table)
    return ordered(frame, file=F.lit(path_or_table), start=F.lit(0))


def batch(
    spark: Any, options: Mapping[str, str], path_or_table: str, *, snapshot: int | None = None
) -> Any:
    """Return all rows of a table, as of a snapshot if one is given."""
    from pyspark.sql import functions as F

    reader = spark.read.format("iceberg").options(**options)
    if snapshot is not None:
        reader = reader.option("versionAsOf", str(snapshot))
    return ordered(reader.load(path_or_table), file=F.lit(path_or_table), start=F.lit(0))


def changes(
    spark: Any,
    options: Mapping[str, str],
    path_or_table: str,
    *,
    after: int | None,
    until: int,
) -> Any:
    """Return the changes after one snapshot until another, with `_change_type` as in Delta.

    Without a snapshot to begin after, these are the rows of the table, as inserts.
    """
    from pyspark.sql import functions as F

    if after is None:
        frame = batch(spark, options, path_or_table, snapshot=until)
        return frame.withColumn(CHANGE_TYPE, F.lit("insert"))
    reader = spark.read.format("iceberg").options(**options)
    reader = reader.option("start-snapshot-id", str(after)).option("end-snapshot-id", str(until))
    suffix = "#changes" if is_path(path_or_table) else ".changes"
    frame = reader.load(f"{path_or_table}{suffix}")
    frame = frame.withColumn(CHANGE_TYPE, F.lower(CHANGE_TYPE))
    inserted = F.col(CHANGE_TYPE).isin("insert", "update_after").cast("long")
    start = F.col(_ORDINAL).cast("long") * 2 + inserted
    return ordered(frame, file=F.lit(path_or_table), start=start).drop(_ORDINAL, _SNAPSHOT)


def current_snapshot(spark: Any, path_or_table: str) -> int | None:
    """Return the id of a table's current snapshot; None if it has none yet."""
    ids = _history(spark, path_or_table).select("snapshot_id").toArrow()["snapshot_id"]
    return int(ids[-1].as_py()) if len(ids) else None


def require_follows(spark: Any, path_or_table: str, after: int) -> None:
    """Raise DataError if changes after a snapshot cannot be read: it is no ancestor, or expired."""
    if _history(spark, path_or_table).where(f"snapshot_id = {after}").isEmpty():
        raise DataError(
            f"the changes of `{path_or_table}` since its snapshot {after} cannot be read: the"
            " snapshot has expired, or the table was rolled back"
            "\n  help: keep snapshots longer than a pipeline may stand still; `pipeline refresh`"
            " reads the whole table again"
        )


def _history(spark: Any, path_or_table: str) -> Any:
    suffix = "#history" if is_path(path_or_table) else ".history"
    """Return the snapshots of which the current one is made, the oldest first."""
    history = spark.read.format("iceberg").load(f"{path_or_table}{suffix}")
    return history.where("is_current_ancestor").orderBy("made_current_at")
