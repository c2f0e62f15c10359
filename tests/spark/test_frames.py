"""DataFrames in and out, on a session and on Spark Connect."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import DataError, UsageError
from tidelog.spark import Sink, Source, batch_writer, view
from tidelog.spark.views import opened

pytestmark = pytest.mark.sampled(3)

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


ON_CONNECT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.piping import Folder
from tidelog.spark import Source, batch_writer, open_session
remote, path = sys.argv[1:]
spark = open_session("batches", remote=remote)
folder = Folder(Path(path))
pipeline = folder.pipeline(Source("edge", "batches"))
writing = (
    spark.readStream.schema("x int, y int").option("maxFilesPerTrigger", 1)
    .csv(path + "/in/edge")
    .writeStream.foreachBatch(batch_writer(pipeline, "edge"))
    .option("checkpointLocation", path + "/checkpoint").trigger(availableNow=True)
)
for attempt in range(10):
    try:
        query = writing.start()
        break
    except Exception as error:  # Spark gives its worker ten seconds, whatever else runs here
        if "failed to connect back" not in str(error) or attempt == 9:
            raise
query.awaitTermination()
assert query.exception() is None, query.exception()
"""


def test_a_streaming_query_on_connect(remote: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for i, (x, y) in enumerate(EDGES):
        folder.write(f"edge/{i}.csv", f"{x},{y}\n")
    paths = [str(Path(tidelog.__file__).parents[1]), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", ON_CONNECT, remote, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert folder.rows("reach") == expected(PROGRAM, {"edge": EDGES}, "reach")


def test_a_batch_writer_is_pickled_as_a_declaration(tmp_path: Path) -> None:
    sinks = [Sink("reach", path=str(tmp_path / "out"))]
    with Folder(tmp_path).pipeline(Source("edge", "batches"), sinks=sinks) as pipeline:
        writer = batch_writer(pipeline, "edge")
        copied = pickle.loads(pickle.dumps(writer))
        assert copied is not writer
        again = opened(pipeline.declaration)
        assert again is opened(pipeline.declaration)
        assert again.declaration == pipeline.declaration
    pipeline = Folder(tmp_path).pipeline(Source("edge", frame=object()))
    with pytest.raises(UsageError, match="another one"):
        pickle.dumps(batch_writer(pipeline, "edge"))
