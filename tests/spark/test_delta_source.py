"""Delta tables as sources: the change feed from a snapshot on, added rows, and the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.streaming import rows, tuples
from tidelog.errors import UsageError
from tidelog.spark import source_delta
from tidelog.spark.source_order import START

pytestmark = pytest.mark.sampled(1)

FEED = "'delta.enableChangeDataFeed' = 'true'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"


def _make(spark: Any, path: Path, *properties: str) -> str:
    name = f"delta.`{path}`"
    more = f"tblproperties ({', '.join(properties)})" if properties else ""
    spark.sql(f"create table {name} (id bigint, v string) using delta {more}")
    return name


def _feed(spark: Any, path: Path, **options: str) -> Any:
    frame = source_delta.stream(spark, options, str(path))
    return frame.select("id", "v", "_change_type", f"`{START}`")


def test_a_feed_begins_with_the_table(spark: Any, tmp_path: Path) -> None:
    table = _make(spark, tmp_path / "t", FEED, VECTORS)
    spark.sql(f"insert into {table} values (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql(f"delete from {table} where id = 3")
    frame = _feed(spark, tmp_path / "t")
    checkpoint = tmp_path / "checkpoint"
    assert sorted(rows(frame, checkpoint)) == [(1, "a", "insert", 5), (2, "b", "insert", 5)]
    spark.sql(f"update {table} set v = 'B' where id = 2")
    spark.sql(f"delete from {table} where id = 1")
    assert rows(frame, checkpoint) == [
        (2, "b", "update_preimage", 6),
        (2, "B", "update_postimage", 7),
        (1, "a", "delete", 8),
    ]
    # An overwrite deletes and inserts the row that stays: the deletion comes first.
    same = spark.sql("select 2L as id, 'B' as v")
    same.write.format("delta").mode("overwrite").save(str(tmp_path / "t"))
    assert rows(frame, checkpoint) == [(2, "B", "delete", 10), (2, "B", "insert", 11)]


def test_a_feed_that_is_switched_on_late(spark: Any, tmp_path: Path) -> None:
    table = _make(spark, tmp_path / "t")
    spark.sql(f"insert into {table} values (1, 'a')")
    with pytest.raises(Exception, match="DELTA_MISSING_CHANGE_DATA"):
        rows(_feed(spark, tmp_path / "t"), tmp_path / "off")
    spark.sql(f"alter table {table} set tblproperties ({FEED})")
    spark.sql(f"insert into {table} values (2, 'b')")
    found = sorted(rows(_feed(spark, tmp_path / "t"), tmp_path / "on"))
    assert found == [(1, "a", "insert", 7), (2, "b", "insert", 7)]


def test_a_feed_is_not_split(spark: Any) -> None:
    with pytest.raises(UsageError, match="would lose rows"):
        source_delta.stream(spark, {"maxBytesPerTrigger": "1g"}, "/t")


def test_added_rows_and_the_whole_table(spark: Any, tmp_path: Path) -> None:
    path, checkpoint = str(tmp_path / "t"), tmp_path / "checkpoint"
    table = _make(spark, tmp_path / "t")
    spark.sql(f"insert into {table} values (1, 'a')")
    added = source_delta.stream(spark, {}, path, mode="append").select("id", "v")
    assert rows(added, checkpoint) == [(1, "a")]
    assert source_delta.version(spark, path) == 1
    spark.sql(f"update {table} set v = 'A'")
    spark.sql(f"insert into {table} values (2, 'b')")
    with pytest.raises(Exception, match="skipChangeCommits"):
        rows(added, checkpoint)
    skipping = source_delta.stream(spark, {"skipChangeCommits": "true"}, path, mode="append")
    assert rows(skipping.select("id", "v"), checkpoint) == [(2, "b")]
    whole = source_delta.batch(spark, {}, path).select("id", "v")
    assert sorted(tuples(whole)) == [(1, "A"), (2, "b")]
    assert source_delta.version(spark, path) == 3
