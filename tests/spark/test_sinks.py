"""Sinks of each format hold the view, or its changes, whatever is written twice or lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.spark.piping import Folder
from tidelog.errors import DataError, UsageError
from tidelog.spark import Sink, Source

EPOCHS = ["+,1,2\n+,2,3\n", "-,2,3\n+,2,4\n", "+,9,9\n"]
CHANGES = [
    {"x": 1, "y": 2, "op": "+", "epoch": 0},
    {"x": 1, "y": 3, "op": "+", "epoch": 0},
    {"x": 2, "y": 3, "op": "+", "epoch": 0},
    {"x": 1, "y": 3, "op": "-", "epoch": 1},
    {"x": 2, "y": 3, "op": "-", "epoch": 1},
    {"x": 1, "y": 4, "op": "+", "epoch": 1},
    {"x": 2, "y": 4, "op": "+", "epoch": 1},
    {"x": 9, "y": 9, "op": "+", "epoch": 2},
]
TABLE = [{"x": 1, "y": 2}, {"x": 1, "y": 4}, {"x": 2, "y": 4}, {"x": 9, "y": 9}]


def read(path: str, format: str) -> list[dict[str, Any]]:
    """Return the rows of a sink as any reader of the format would, in order."""
    rows: list[dict[str, Any]]
    if format == "parquet":
        rows = pq.read_table(path).to_pylist()
    elif format == "delta":
        rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    elif format == "csv":
        rows = [row for f in sorted(Path(path).iterdir()) for row in csv.read_csv(f).to_pylist()]
    else:
        files = sorted(Path(path).iterdir())
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    first = ("epoch", "op") if rows and "epoch" in rows[0] else ()
    return sorted(
        rows, key=lambda r: ([r[f] != "-" if f == "op" else r[f] for f in first], r["x"], r["y"])
    )


def feed(folder: Folder, number: int) -> None:
    folder.write(f"edge/{number}.csv", EPOCHS[number])


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "delta"])
def test_a_table_and_its_changes(spark: Any, tmp_path: Path, format: str) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv", mode="changes")
    table = Sink("reach", format=format, path=str(tmp_path / "out" / "t"))
    changes = Sink("reach", "changes", format, str(tmp_path / "out" / "c"))
    for number in range(3):
        feed(folder, number)
        folder.run(spark, source, sinks=[table, changes])
    assert read(table.path, format) == TABLE
    assert read(changes.path, format) == CHANGES
    # As if the process had died before it could note what it has written.
    for memory in (tmp_path / "state" / "sinks").iterdir():
        known = json.loads(memory.read_text())
        memory.write_text(json.dumps({**known, "epoch": 0}))
    folder.run(spark, source, sinks=[table, changes])
    assert read(table.path, format) == TABLE
    assert read(changes.path, format) == CHANGES
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_a_table_that_was_removed_is_written_again(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    feed(folder, 0)
    sink = Sink("reach", path=str(tmp_path / "out" / "reach.parquet"))
    source = folder.source("edge", "csv", mode="changes")
    folder.run(spark, source, sinks=[sink])
    assert Path(sink.path).is_file()
    Path(sink.path).unlink()
    folder.run(spark, source, sinks=[sink])
    assert pq.read_table(sink.path).num_rows == 3


def test_a_table_that_did_not_change_is_left_alone(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    feed(folder, 0)
    sink = Sink("reach", path=str(tmp_path / "out" / "reach"))
    source = folder.source("edge", "csv", mode="changes")
    folder.run(spark, source, sinks=[sink])
    (file,) = Path(sink.path).iterdir()
    before = file.stat().st_ino
    folder.write("edge/again.csv", EPOCHS[0])
    (done,) = folder.run(spark, source, sinks=[sink])
    assert (done.received, done.inserted) == (2, 0)
    assert file.stat().st_ino == before


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_changes_of_another_run_are_not_mixed_in(spark: Any, tmp_path: Path, format: str) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv", mode="changes")
    sink = Sink("reach", "changes", format, str(tmp_path / "out" / "c"))
    for number in range(2):
        feed(folder, number)
        folder.run(spark, source, sinks=[sink])
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(UsageError, match="there are changes of epoch 1 already"):
        folder.run(spark, source, sinks=[sink])


def test_python_and_console(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path)
    called: list[tuple[int, list[Any]]] = []
    call = Sink("reach", "changes", "python", call=lambda e, t: called.append((e, t.to_pylist())))
    source = folder.source("edge", "csv", mode="changes")
    sinks = [call, Sink("reach", format="console")]
    for number in range(2):
        feed(folder, number)
        folder.run(spark, source, sinks=sinks)
    assert [epoch for epoch, _ in called] == [0, 1]
    assert called[1][1] == CHANGES[3:7]
    assert "-- reach at epoch 1: 3 rows\nx\ty\n1\t2\n1\t4\n2\t4\n" in capsys.readouterr().out


def test_jdbc_in_and_out(spark: Any, tmp_path: Path) -> None:
    """With Derby, which comes with Spark and runs in its process."""
    url = f"jdbc:derby:{tmp_path / 'derby'};create=true"
    options = {"url": url, "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    given = {**options, "dbtable": "edge"}
    folder = Folder(tmp_path)

    def put(rows: list[tuple[int, int]]) -> None:
        frame = spark.createDataFrame(rows, "x long, y long")
        frame.write.format("jdbc").options(**given).mode("overwrite").save()

    source = Source("edge", "jdbc", mode="snapshot", options=given)
    table = Sink("reach", format="jdbc", options={**options, "dbtable": "reach"})
    changes = Sink("reach", "changes", "jdbc", options={**options, "dbtable": "reach_changes"})
    for rows in ([(1, 2), (2, 3)], [(1, 2), (2, 4)], [(1, 2), (2, 4), (9, 9)]):
        put(rows)
        (done,) = folder.run(spark, source, sinks=[table, changes])
        assert done.received == len(rows)
    assert folder.run(spark, source, sinks=[table, changes]) == []

    def held(name: str) -> list[dict[str, Any]]:
        frame = spark.read.format("jdbc").options(**options, dbtable=name).load()
        return [{k.lower(): v for k, v in row.asDict().items()} for row in frame.collect()]

    for _ in range(2):
        assert sorted(held("reach"), key=lambda r: (r["x"], r["y"])) == TABLE
        assert sorted(map(str, held("reach_changes"))) == sorted(map(str, CHANGES))
        for memory in (tmp_path / "state" / "sinks").iterdir():
            known = json.loads(memory.read_text())
            memory.write_text(json.dumps({**known, "epoch": 0}))
        folder.run(spark, source, sinks=[table, changes])
    broken = Sink("reach", format="jdbc", options={"url": "jdbc:nothing:x", "dbtable": "t"})
    with pytest.raises(DataError, match="sink `reach`: Spark cannot write to `t`"):
        folder.run(spark, source, sinks=[broken])


def test_changes_need_the_names_of_their_columns(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ".decl p(op: symbol)\n")
    with pytest.raises(UsageError, match="its column `op` has the name of a column that changes"):
        folder.pipeline(sinks=[Sink("p", "changes", path=str(tmp_path))])
