"""DataFrames in and out, on a session and on Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import DataError, UsageError
from tidelog.spark import Source, batch_writer, view

EDGES = [(1, 2), (2, 3), (3, 1)]


def test_views_of_frames(spark: Any) -> None:
    edge = spark.createDataFrame(EDGES, "x int, y int")
    label = spark.createDataFrame([("one", 1), ("two", 7)], "name string, x long")
    views = view(spark, PROGRAM, {"edge": edge, "label": label})
    assert set(views) == {"reach", "reaches"}
    facts = {"edge": EDGES, "label": [(1, "one"), (7, "two")]}
    for name, frame in views.items():
        assert {tuple(row) for row in frame.collect()} == expected(PROGRAM, facts, name)
    assert views["reaches"].columns == ["name", "n"]


def test_a_large_view_goes_through_a_file(spark: Any) -> None:
    program = '.decl n(x: unsigned)\n.decl m(x: unsigned, s: symbol)\nm(x, "s") :- n(x).\n'
    frames = view(spark, program, {"n": spark.range(150_000).withColumnRenamed("id", "x")})
    assert frames["m"].selectExpr("count(*)", "sum(x)").collect()[0][:] == (
        150_000, 150_000 * 149_999 // 2,
    )  # fmt: skip


def test_rows_that_do_not_fit_are_an_error(spark: Any) -> None:
    edge = spark.createDataFrame([(1, 2), (None, 3)], "x int, y int")
    with pytest.raises(DataError, match="1 of 2 rows do not fit") as error:
        view(spark, PROGRAM, {"edge": edge})
    assert "column `x`: no value" in str(error.value)
    with pytest.raises(DataError, match="column `y` missing"):
        view(spark, PROGRAM, {"edge": edge.select("x")})
    with pytest.raises(UsageError, match="did you mean `edge`"):
        view(spark, PROGRAM, {"edges": edge})


def test_each_batch_is_taken_once(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    source = Source("edge", "batches", name="stream")
    first = spark.createDataFrame(EDGES[:2], "x int, y int")
    second = spark.createDataFrame(EDGES[2:], "x int, y int")
    with folder.pipeline(source) as pipeline:
        write = batch_writer(pipeline, "stream")
        write(first, 0)
        write(first, 0)
        write(second, 1)
        assert pipeline.totals().received == 3
    with folder.pipeline(source) as pipeline:  # Spark hands over the last one again
        batch_writer(pipeline, "stream")(second, 1)
        assert pipeline.totals().received == 3
    assert folder.rows("reach") == expected(PROGRAM, {"edge": EDGES}, "reach")


def test_a_streaming_query(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for i, (x, y) in enumerate(EDGES):
        folder.write(f"edge/{i}.csv", f"{x},{y}\n")
    stream = spark.readStream.schema("x int, y int").option("maxFilesPerTrigger", 1)
    with folder.pipeline(Source("edge", "batches")) as pipeline:
        query = (
            stream.csv(str(tmp_path / "in" / "edge"))
            .writeStream.foreachBatch(batch_writer(pipeline, "edge"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert pipeline.epoch == 2
    assert folder.rows("reach") == expected(PROGRAM, {"edge": EDGES}, "reach")
