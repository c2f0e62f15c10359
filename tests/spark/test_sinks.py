"""Sinks of each format hold the view, or its changes, whatever is written twice or lost."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, orc

from tests.spark.piping import PROGRAM, Folder
from tidelog import Program
from tidelog.errors import DataError, StateError, UsageError
from tidelog.spark import Sink, Source, sink_files, sink_run
from tidelog.spark.sink_kafka import messages
from tidelog.spark.sinks import writer

pytestmark = pytest.mark.sampled(8)

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
    elif format == "orc":
        rows = [row for f in sorted(Path(path).iterdir()) for row in orc.read_table(f).to_pylist()]
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


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc"])
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
    names = {file.name.partition(".")[0] for file in (tmp_path / "out").rglob("*.*")}
    assert names == {"part-00000", *(f"epoch-{number:012d}" for number in range(3))}


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


def test_changes_of_another_run_are_not_mixed_in(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv", mode="changes")
    sink = Sink("reach", "changes", path=str(tmp_path / "out" / "c"))
    for number in range(2):
        feed(folder, number)
        folder.run(spark, source, sinks=[sink])
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(UsageError, match="already has changes of epoch 1"):
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
    with pytest.raises(DataError, match="sink `reach-table-jdbc`: Spark cannot write to `t`: "):
        folder.run(spark, source, sinks=[broken])
    # Nothing is left of staging tables, and no address in the state.
    tables = spark.read.format("jdbc").options(**options, dbtable="sys.systables").load()
    names = {row["TABLENAME"].lower() for row in tables.where("TABLETYPE = 'T'").collect()}
    assert names == {"edge", "reach", "reach_changes", "tidelog_epochs"}
    state = [path.read_text() for path in (tmp_path / "state" / "sinks").iterdir()]
    assert state
    assert not any("derby" in text for text in state)


def test_a_second_writer_of_an_epoch_fails(spark: Any, tmp_path: Path) -> None:
    """Two processes with the same token: only one of them brings the table to the next epoch."""
    url = f"jdbc:derby:{tmp_path / 'derby'};create=true"
    driver = "org.apache.derby.jdbc.EmbeddedDriver"
    options = {"url": url, "driver": driver, "dbtable": "reach"}
    program = Program.parse(PROGRAM)
    sink = Sink("reach", format="jdbc", options=options)
    one, other = (writer(sink, program.relations["reach"], program.records) for _ in range(2))
    rows = spark.createDataFrame([(1, 2), (2, 3)], "x long, y long")
    change = spark.createDataFrame(
        [(2, 3, "-", 1), (5, 6, "+", 1), (5, 6, "+", 1)],  # as a task that ran twice has left it
        "x long, y long, op string, epoch long",
    )

    def held() -> list[tuple[int, int]]:
        frame = spark.read.format("jdbc").options(**options).load()
        return sorted(tuple(row) for row in frame.collect())

    one.start(spark, "same")
    assert one.reached() is None
    one.write_table(0, rows)
    assert held() == [(1, 2), (2, 3)]
    other.start(spark, "same")
    assert other.reached() == 0
    one.merge(1, change)
    with pytest.raises(StateError, match="was written by another process: it is no longer at"):
        other.merge(1, change)
    assert held() == [(1, 2), (5, 6)]
    assert other.reached() == 1


def test_text_of_every_kind_in_csv(spark: Any, tmp_path: Path) -> None:
    """What Spark's defaults would lose: spaces, quotes, lines, microseconds, records."""
    program = """
    .type Pair = [x: number, at: timestamp]
    .decl p(s: symbol, at: timestamp, pair: Pair, u: unsigned)
    p("  a ", t, [1, t], 18446744073709551615) :- t = to_timestamp("2024-02-29T12:00:00.000001").
    p("say \\"so\\", and\\nmore", to_timestamp("0001-01-01T00:00:00"), nil, 0).
    p("", to_timestamp("2024-01-01T00:00:00"), nil, 1).
    """
    folder = Folder(tmp_path, program)
    written = [Sink("p", format=f, path=str(tmp_path / f"p.{f}")) for f in ("csv", "json")]
    folder.run(spark, sinks=written)
    options = csv.ParseOptions(newlines_in_values=True)
    strings = csv.ConvertOptions(column_types=dict.fromkeys(("s", "at", "pair", "u"), pa.string()))
    found = csv.read_csv(written[0].path, parse_options=options, convert_options=strings)
    assert sorted(found.to_pylist(), key=lambda row: row["s"]) == [
        {"s": "", "at": "2024-01-01 00:00:00.000000", "pair": "", "u": "1"},
        {
            "s": "  a ",
            "at": "2024-02-29 12:00:00.000001",
            "pair": '{"x":1,"at":"2024-02-29 12:00:00.000001"}',
            "u": "18446744073709551615",
        },
        {"s": 'say "so", and\nmore', "at": "0001-01-01 00:00:00.000000", "pair": "", "u": "0"},
    ]
    lines = Path(written[1].path).read_text().splitlines()
    assert sorted(json.loads(line)["s"] for line in lines) == ["", "  a ", 'say "so", and\nmore']
    assert all("pair" in json.loads(line) for line in lines)


def test_partitions_and_parts(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv", mode="changes")
    keys: dict[str, Any] = {"format": "csv", "partition_by": ("x",)}
    table = Sink("reach", path=str(tmp_path / "out" / "t"), **keys)
    changes = Sink("reach", "changes", path=str(tmp_path / "out" / "c"), **keys)
    for number in range(2):
        feed(folder, number)
        folder.run(spark, source, sinks=[table, changes])
    out = tmp_path / "out"
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*.csv")) == [
        "c/x=1/epoch-000000000000.csv",
        "c/x=1/epoch-000000000001.csv",
        "c/x=2/epoch-000000000000.csv",
        "c/x=2/epoch-000000000001.csv",
        "t/x=1/part-00000-000000000001.csv",
        "t/x=2/part-00000-000000000001.csv",
    ]
    assert (out / "t/x=1/part-00000-000000000001.csv").read_text() == "y\n2\n4\n"
    # Many rows are several files: those of a table have the epoch in their names.
    monkeypatch.setattr(sink_run, "FEW", 0)
    many = Sink("reach", path=str(out / "many"))
    many_changes = Sink("reach", "changes", path=str(out / "many-changes"))
    folder.run(spark, source, sinks=[many, many_changes])
    assert pq.read_table(many.path).num_rows == pq.read_table(many_changes.path).num_rows == 3
    assert all(re.fullmatch(r"part-\d{5}(-000000000001)?\.parquet", p.name)
               for p in Path(many.path).iterdir())  # fmt: skip


def test_a_folder_of_others_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    feed(folder, 0)
    mine = tmp_path / "out" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    with pytest.raises(UsageError, match=r"there is `thesis\.txt`, which is not a part of it"):
        folder.run(
            spark,
            folder.source("edge", "csv", mode="changes"),
            sinks=[Sink("reach", path=str(mine.parent))],
        )
    assert mine.read_text() == "years of work"


def test_folders_are_exchanged_where_the_system_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for can in (True, False):
        if not can:
            monkeypatch.setattr(sink_files, "_exchanged", lambda one, other: False)
        new, target = tmp_path / ".t.1.tmp", tmp_path / "t"
        for number in range(2):
            new.mkdir()
            (new / "part").write_text(f"{can} {number}")
            sink_files.exchange(new, target)
            assert [path.name for path in tmp_path.iterdir()] == ["t"]
            assert (target / "part").read_text() == f"{can} {number}"


def test_catalog_tables(spark: Any, tmp_path: Path) -> None:
    name = f"reach_{secrets.token_hex(4)}"
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv", mode="changes")
    where = {"path": str(tmp_path / "tables" / name)}
    table = Sink("reach", format="table", table=name, options=where)
    where = {"path": str(tmp_path / "tables" / f"{name}_changes")}
    changes = Sink("reach", "changes", "table", table=f"{name}_changes", options=where)
    try:
        for number in range(3):
            feed(folder, number)
            folder.run(spark, source, sinks=[table, changes])
        for _ in range(2):
            found = [row.asDict() for row in spark.table(name).collect()]
            assert sorted(found, key=lambda r: (r["x"], r["y"])) == TABLE
            found = [row.asDict() for row in spark.table(f"{name}_changes").collect()]
            assert sorted(map(str, found)) == sorted(map(str, CHANGES))
            for memory in (tmp_path / "state" / "sinks").iterdir():
                known = json.loads(memory.read_text())
                memory.write_text(json.dumps({**known, "epoch": 0}))
            folder.run(spark, source, sinks=[table, changes])
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"DROP TABLE IF EXISTS {name}_changes")


def test_messages_for_kafka(spark: Any) -> None:
    rows = [(1, "a", "+", 7)]
    frame = spark.createDataFrame(rows, "x long, s string, op string, epoch long")
    (message,) = messages(frame, ["x", "s"]).collect()
    assert message["key"] == '{"x":1,"s":"a"}'
    assert message["value"] == '{"x":1,"s":"a","op":"+","epoch":7}'


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"format": "kafka"}, "takes changes, because a topic has no rows to replace"),
        ({"format": "kafka", "what": "changes"}, "needs the options `kafka.bootstrap.servers`"),
        ({"format": "iceberg", "path": "x"}, "needs a `table`"),
        ({"format": "delta"}, "needs a `path` or a `table`, one of them"),
        ({"path": "x", "table": "t"}, "`table` is for the formats delta, iceberg, table"),
        ({"format": "console", "partition_by": ("x",)}, "has no `partition_by`"),
    ],
)
def test_declarations_of_sinks(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Sink("reach", **keys)
    assert message in str(error.value)


def test_partitions_are_columns(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(UsageError, match="`partition_by` names `X`, which is not a column of"):
        folder.pipeline(sinks=[Sink("reach", path="x", partition_by=("X",))])
    with pytest.raises(UsageError, match="cannot name all columns"):
        folder.pipeline(sinks=[Sink("reach", path="x", partition_by=("x", "y"))])
    folder = Folder(tmp_path, ".decl p()\n")
    with pytest.raises(UsageError, match="`p` has no columns, so it cannot be a table"):
        folder.pipeline(sinks=[Sink("p", path="x")])


def test_changes_need_the_names_of_their_columns(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ".decl p(op: symbol)\n")
    with pytest.raises(UsageError, match="its column `op` has the name of a column of changes"):
        folder.pipeline(sinks=[Sink("p", "changes", path=str(tmp_path))])
