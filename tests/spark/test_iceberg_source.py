"""Iceberg tables as sources: added rows as a stream, changes between snapshots, the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.streaming import rows, tuples
from tidelog.errors import DataError
from tidelog.spark import source_iceberg
from tidelog.spark.source_order import START

pytestmark = pytest.mark.sampled(1)


def _make(spark: Any, name: str, properties: str = "") -> str:
    table = f"ice.db.{name}"
    more = f"tblproperties ({properties})" if properties else ""
    spark.sql(f"create table {table} (id bigint, v string) using iceberg {more}")
    return table


def test_added_rows(spark: Any, tmp_path: Path) -> None:
    table = _make(spark, "added")
    assert source_iceberg.current_snapshot(spark, table) is None
    spark.sql(f"insert into {table} values (1, 'a'), (2, 'b')")
    frame = source_iceberg.stream(spark, {}, table).select("id", "v")
    assert sorted(rows(frame, tmp_path)) == [(1, "a"), (2, "b")]
    spark.sql(f"insert into {table} values (3, 'c')")
    assert rows(frame, tmp_path) == [(3, "c")]
    spark.sql(f"delete from {table} where id = 1")
    spark.sql(f"insert into {table} values (4, 'd')")
    with pytest.raises(Exception, match="streaming-skip-"):
        rows(frame, tmp_path)
    skip = {f"streaming-skip-{kind}-snapshots": "true" for kind in ("delete", "overwrite")}
    frame = source_iceberg.stream(spark, skip, table).select("id", "v")
    assert rows(frame, tmp_path) == [(4, "d")]


def test_changes_between_snapshots(spark: Any) -> None:
    table = _make(spark, "changed")
    spark.sql(f"insert into {table} select id, 'a' from range(0, 3, 1, 1)")
    first = source_iceberg.current_snapshot(spark, table)
    assert first is not None
    spark.sql(f"update {table} set v = 'B' where id = 2")
    spark.sql(f"delete from {table} where id = 1")
    last = source_iceberg.current_snapshot(spark, table)
    assert last is not None

    def held(after: int | None, until: int) -> list[tuple[Any, ...]]:
        frame = source_iceberg.changes(spark, {}, table, after=after, until=until)
        return sorted(tuples(frame.select(f"`{START}`", "id", "v", "_change_type")))

    assert held(None, first) == [(0, i, "a", "insert") for i in range(3)]
    kept: set[tuple[int, str]] = {(i, "a") for i in range(3)}
    for _, key, value, kind in held(first, last):
        (kept.add if kind == "insert" else kept.discard)((key, value))
    whole = source_iceberg.batch(spark, {}, table).select("id", "v")
    assert kept == set(tuples(whole)) == {(0, "a"), (2, "B")}
    source_iceberg.require_follows(spark, table, first)
    with pytest.raises(DataError, match="has expired"):
        source_iceberg.require_follows(spark, table, 7)


def test_changes_of_a_table_with_delete_files_are_refused(spark: Any) -> None:
    table = _make(spark, "merged", "'write.delete.mode' = 'merge-on-read'")
    spark.sql(f"insert into {table} select id, 'a' from range(0, 3, 1, 1)")
    first = source_iceberg.current_snapshot(spark, table)
    spark.sql(f"delete from {table} where id = 1")
    last = source_iceberg.current_snapshot(spark, table)
    assert last is not None
    with pytest.raises(Exception, match="Delete files"):
        source_iceberg.changes(spark, {}, table, after=first, until=last).toArrow()
