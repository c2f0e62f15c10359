"""A pipeline for each format of files: what is read is what was written."""

from __future__ import annotations

import datetime as dt
import gzip
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import DataError, UsageError
from tidelog.spark import Sink, Source

pytestmark = pytest.mark.sampled(6)

EDGES = {(1, 2), (2, 3), (5, 6)}
MORE = {(3, 4), (6, 1)}
TYPED = """
.type Point = [x: number, y: number]
.decl row(n: number, u: unsigned, f: float, s: symbol, b: bool, d: date, t: timestamp,
          m: decimal(9, 2), p: Point, e: set(number))
.decl copy(n: number, u: unsigned, f: float, s: symbol, b: bool, d: date, t: timestamp,
           m: decimal(9, 2), p: Point, e: set(number))
copy(n, u, f, s, b, d, t, m, p, e) :- row(n, u, f, s, b, d, t, m, p, e).
"""
ROWS = {
    (
        -(2**63), 2**64 - 1, 1.5, 'a "b", ü\n', True, dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 23, 59, 59, 123456), Decimal("-1234567.89"), (1, -2),
        frozenset({1, 2}),
    ),
    (
        2**63 - 1, 0, 0.0, "", False, dt.date(1, 1, 1),
        dt.datetime(1970, 1, 1), Decimal("0.00"), None, frozenset(),
    ),
}  # fmt: skip


def text_of(rows: set[tuple[int, int]], format: str) -> str:
    if format == "csv":
        return "x,y\n" + "".join(f"{x},{y}\n" for x, y in sorted(rows))
    if format == "bare":
        return "".join(f"{x},{y}\n" for x, y in sorted(rows))
    return "".join(f'{{"y": {y}, "x": {x}, "other": [1]}}\n' for x, y in sorted(rows))


def write(folder: Folder, name: str, rows: set[tuple[int, int]], format: str) -> None:
    if format == "parquet":
        path = folder.write(name, "")
        x, y = zip(*sorted(rows), strict=True)
        pq.write_table(pa.table({"y": pa.array(y, pa.int32()), "x": x}), path)
    elif format == "gzip":
        folder.write(f"{name}.gz", "").write_bytes(gzip.compress(text_of(rows, "csv").encode()))
    else:
        folder.write(name, text_of(rows, format))


@pytest.mark.parametrize("format", ["csv", "bare", "gzip", "json", "parquet"])
def test_a_folder_is_a_stream_of_files(spark: Any, tmp_path: Path, format: str) -> None:
    folder = Folder(tmp_path)
    spark_format = {"bare": "csv", "gzip": "csv"}.get(format, format)
    options = {"header": "true"} if format in ("csv", "gzip") else {}
    source = folder.source("edge", spark_format, options=options)
    write(folder, "edge/first %41 [x] {ü}", EDGES, format)
    (done,) = folder.run(spark, source)
    assert (done.epoch, done.received, done.inserted, done.how) == (0, 3, 3, "bootstrap")
    assert folder.rows("reach") == expected(PROGRAM, {"edge": EDGES}, "reach")
    write(folder, "edge/second", MORE, format)
    folder.write("edge/_unfinished", "1,")
    (done,) = folder.run(spark, source)
    assert (done.epoch, done.received, done.inserted, done.deleted) == (1, 2, 2, 0)
    assert folder.rows("reach") == expected(PROGRAM, {"edge": EDGES | MORE}, "reach")
    assert folder.run(spark, source) == []


def test_every_type_goes_through_parquet(spark: Any, tmp_path: Path) -> None:
    from tidelog import Program
    from tidelog.io.tabular import to_arrow
    from tidelog.spark.frames import for_spark

    program = Program.parse(TYPED)
    folder = Folder(tmp_path, TYPED)
    table = for_spark(to_arrow(ROWS, program.relations["row"], program.records))
    pq.write_table(table, folder.write("row/a.parquet", ""))
    out = tmp_path / "out" / "copy"
    folder.run(spark, folder.source("row", "parquet"), sinks=[Sink("copy", path=str(out))])
    assert folder.quarantined() == []
    assert folder.rows("copy") == ROWS
    # What was written can be read again, by Spark as well.
    again = Folder(tmp_path / "again", TYPED)
    again.write("row/x", "").unlink()
    spark.read.parquet(str(out)).write.mode("overwrite").parquet(str(again.path / "in" / "row"))
    again.run(spark, again.source("row", "parquet"), sinks=[])
    assert again.quarantined() == []
    assert again.rows("copy") == ROWS


def test_every_type_goes_through_json(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path, TYPED)
    folder.write(
        "row/a.json",
        '{"n": -9223372036854775808, "u": 18446744073709551615, "f": 1.5, "s": "a \\"b\\", ü\\n",'
        ' "b": true, "d": "2024-02-29", "t": "2024-02-29T23:59:59.123456Z", "m": "-1234567.89",'
        ' "p": {"x": 1, "y": -2}, "e": [1, 2]}\n'
        '{"n": 9223372036854775807, "u": 0, "f": 0, "s": "", "b": false, "d": "0001-01-01",'
        ' "t": "1970-01-01 00:00:00", "m": 0.00, "p": null, "e": []}\n',
    )
    folder.run(spark, folder.source("row", "json"), sinks=[])
    assert folder.quarantined() == []
    assert folder.rows("copy") == ROWS


def test_columns_can_have_other_names(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a.csv", "to.node,from node\n2,1\n")
    names = {"x": "from node", "y": "to.node"}
    source = folder.source("edge", "csv", options={"header": "true"}, columns=names)
    folder.run(spark, source)
    assert folder.rows("reach") == {(1, 2)}


def test_files_are_taken_in_portions(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for i in range(5):
        folder.write(f"edge/{i}.csv", f"{i},{i + 1}\n")
    done = folder.run(spark, folder.source("edge", "csv", files_per_epoch=2))
    assert [d.received for d in done] == [2, 2, 1]
    assert folder.rows("reach") == {(i, j) for i in range(6) for j in range(6) if i < j}


def test_no_files_give_the_views_of_no_rows(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.run(spark, folder.source("edge", "csv")) == []
    assert folder.rows("reach") == set()


@pytest.mark.parametrize(
    ("format", "problem"),
    [
        ("csv", "column `y` missing; there are `x`, `z`"),
        ("parquet", "column `y` is of type double, which cannot be number"),
    ],
)
def test_a_schema_that_does_not_fit_is_an_error_before_the_first_row(
    spark: Any, tmp_path: Path, format: str, problem: str
) -> None:
    folder = Folder(tmp_path)
    path = folder.write("edge/a", "x,z\n1,2\n")
    if format == "parquet":
        pq.write_table(pa.table({"x": [1], "y": [1.5]}), path)
    source = folder.source("edge", format, options={"header": "true"} if format == "csv" else {})
    with pytest.raises(DataError, match="source `edge`: ") as error:
        folder.run(spark, source)
    assert problem in str(error.value)
    assert str(path) in str(error.value)
    assert not (tmp_path / "state" / "database").exists()


def test_a_file_that_spark_cannot_read_is_an_error_of_ours(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a.parquet", "not parquet")
    with pytest.raises(DataError, match="source `edge`: Spark cannot read"):
        folder.run(spark, folder.source("edge", "parquet"))


def test_a_format_that_spark_does_not_have(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for keys in ({}, {"mode": "snapshot"}):
        with pytest.raises(UsageError, match=r"Spark has no format `cvs`\n  help: .* `csv`"):
            folder.run(spark, folder.source("edge", "cvs", **keys))
        (tmp_path / "state").rename(tmp_path / f"before {keys}")


def test_a_folder_without_files_is_told(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with folder.pipeline(folder.source("edge", "csv")) as pipeline:
        pipeline.run(spark)
        assert pipeline.overlooked() == [
            f"source `edge`: there are no files in `{tmp_path}/in/edge`"
        ]
    folder.write("edge/a", "1,2\n")
    with folder.pipeline(folder.source("edge", "csv")) as pipeline:
        pipeline.run(spark)
        assert pipeline.overlooked() == []


def test_nulls_are_refused_or_replaced(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number, m: decimal(9, 2), s: symbol)\n"
    folder = Folder(tmp_path, program)
    folder.write("p/a", '{"x": 1}\n{"x": 2, "m": "2.50", "s": null}\n{"m": "1.00", "s": "z"}\n')
    source = folder.source("p", "json", nulls={"m": "0.10", "s": "none"})
    (done,) = folder.run(spark, source, sinks=[])
    assert (done.received, done.quarantined) == (3, 1)
    assert folder.rows("p") == {(1, Decimal("0.10"), "none"), (2, Decimal("2.50"), "none")}
    with pytest.raises(UsageError, match=r"`nulls` .* names `t`, which"):
        folder.pipeline(folder.source("p", "json", nulls={"t": "0"}))


def test_columns_are_made_by_expressions(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number, s: symbol)\n"
    folder = Folder(tmp_path, program)
    folder.write("p/a", "n,name\n20,ann\n30,bo\n")
    source = folder.source(
        "p", "csv", options={"header": "true"}, select=["n / 10 AS x", "upper(name) AS s"],
        schema="n int, name string",
    )  # fmt: skip
    with pytest.raises(DataError, match="column `x` is of type double"):
        folder.run(spark, source, sinks=[])
    source = replace(source, select=["cast(n / 10 AS int) AS x", "upper(name) AS s"])
    folder = Folder(tmp_path / "again", program)
    folder.write("p/a", "n,name\n20,ann\n30,bo\n")
    folder.run(spark, replace(source, path=str(folder.path / "in" / "p")), sinks=[])
    assert folder.rows("p") == {(2, "ANN"), (3, "BO")}


def test_folders_are_nested_and_state_columns(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(day: symbol, x: number)\n"
    folder = Folder(tmp_path, program)
    source = folder.source("p", "csv", options={"header": "true"})
    folder.write("p/day=007/a.csv", "x\n1\n")
    folder.write("p/day=008/a.csv", "x\n1\n2\n")
    assert sum(d.received for d in folder.run(spark, source, sinks=[])) == 3
    folder.write("p/day=009/a.csv", "x\n3\n")
    assert [d.received for d in folder.run(spark, source, sinks=[])] == [1]
    assert folder.rows("p") == {("007", 1), ("008", 1), ("008", 2), ("009", 3)}
    other = Folder(tmp_path / "nested", ".decl p(x: number)\n")
    for at, name in enumerate(("one/a.json", "two/a.json", "two/three/a.json")):
        other.write(f"p/{name}", f'{{"x": {at}}}\n')
    other.run(spark, other.source("p", "json"), sinks=[])
    assert other.rows("p") == {(0,), (1,), (2,)}


def test_a_streaming_frame_is_a_source(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a.csv", "1,2\n2,3\n")
    frame = spark.readStream.schema("x int, y int").csv(str(tmp_path / "in" / "edge"))
    (done,) = folder.run(spark, Source("edge", frame=frame))
    assert done.received == 2
    folder.write("edge/b.csv", "3,4\n")
    assert [d.received for d in folder.run(spark, Source("edge", frame=frame))] == [1]
    assert (1, 4) in folder.rows("reach")
