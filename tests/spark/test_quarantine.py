"""Rows that do not fit: none is lost, none is counted twice, each has its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.piping import Folder
from tidelog.spark import Source

pytestmark = pytest.mark.sampled(3)

HEADER = {"header": "true"}


def test_bad_rows_of_a_csv_file(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(
        "edge/a.csv",
        "op,x,y\n+,1,2\n+,one,2\n?,1,2\n+,1\n+,1,2,3\n,1,2\n+,,2\n+,9223372036854775808,2\n-,3,4\n",
    )
    source = folder.source("edge", "csv", mode="changes", options=HEADER)
    (done,) = folder.run(spark, source)
    assert (done.received, done.accepted, done.quarantined) == (9, 2, 7)
    assert [(bad["reason"], bad["row"]) for bad in folder.quarantined()] == [
        ("column `x`: `one` is not a number", {"op": "+", "x": "one", "y": "2"}),
        ("`?` in column `op` is neither + nor -", {"op": "?", "x": "1", "y": "2"}),
        ("the row cannot be parsed", "+,1"),
        ("the row cannot be parsed", "+,1,2,3"),
        ("nothing in column `op` is neither + nor -", {"op": None, "x": "1", "y": "2"}),
        ("column `x`: no value", {"op": "+", "x": None, "y": "2"}),
        (
            "column `x`: 9223372036854775808 is outside the range of number",
            {"op": "+", "x": "9223372036854775808", "y": "2"},
        ),
    ]
    assert {(bad["epoch"], bad["source"], bad["file"]) for bad in folder.quarantined()} == {
        (0, "edge", "a.csv")
    }
    assert folder.rows("reach") == {(1, 2)}


def test_bad_events_of_debezium(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    lines = [
        '{"op": "c", "after": {"x": 1, "y": 2}}',
        '{"op": "u", "after": {"x": 1, "y": 3}}',
        '{"op": "u", "before": {"x": 1, "y": 2}, "after": {"x": 1}}',
        '{"op": "t"}',
        '{"payload": {"op": "d", "after": {"x": 1, "y": 3}}}',
        '{"op": "c"}',
        "{",
    ]
    folder.write("edge/a.json", "\n".join(lines) + "\n")
    (done,) = folder.run(spark, folder.source("edge", "json", mode="debezium"))
    assert (done.received, done.accepted, done.quarantined) == (7, 1, 6)
    assert [bad["reason"] for bad in folder.quarantined()] == [
        "operation u without `before`: the table must log whole rows",
        "column `y`: no value",
        "`t` is not an operation: c, r, u or d",
        "operation d without `before`: the table must log whole rows",
        "operation c without `after`",
        "the row cannot be parsed",
    ]
    assert folder.quarantined()[1]["row"] == {
        "op": "u", "before": {"x": "1", "y": "2"}, "after": {"x": "1", "y": None},
    }  # fmt: skip
    assert folder.rows("reach") == {(1, 2)}


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_drift_of_the_schema(spark: Any, tmp_path: Path, format: str) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", format, options=HEADER if format == "csv" else {})

    def write(name: str, table: pa.Table) -> None:
        path = folder.write(f"edge/{name}", "")
        if format == "parquet":
            pq.write_table(table, path)
        else:
            from pyarrow import csv

            csv.write_csv(table, path)

    write("1", pa.table({"x": [1], "y": [2]}))
    folder.run(spark, source)
    write("2", pa.table({"y": [3], "more": ["?"], "x": [2]}))
    write("3", pa.table({"x": [1, 2], "why": [7, 8]}))
    write("4", pa.table({"x": ["3", "z"], "y": [4, 5]}))
    (done,) = folder.run(spark, source)
    assert (done.received, done.accepted, done.quarantined) == (5, 2, 3)
    assert sorted((bad["reason"], bad["file"]) for bad in folder.quarantined()) == [
        ("column `x`: `z` is not a number", "4"),
        ("column `y` missing; there are `x`, `why`", "3"),
        ("column `y` missing; there are `x`, `why`", "3"),
    ]
    assert folder.rows("reach") == {(x, y) for x in range(1, 5) for y in range(1, 5) if x < y}


def test_a_snapshot_that_has_drifted_leaves_the_relation_as_it_is(
    spark: Any, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    tables = [
        pa.table({"x": [1, 2], "y": [2, 3]}),
        pa.table({"x": [1, 5], "z": [2, 3]}),
        pa.table({"x": [1, 5], "z": [2, 3]}),
        pa.table({"x": [7], "y": [8]}),
    ]
    source = Source(
        "edge", mode="snapshot", frame=lambda session: session.createDataFrame(tables[0])
    )
    seen = []
    while tables:
        done = folder.run(spark, source)
        seen.append(([(d.received, d.quarantined) for d in done], folder.rows("edge")))
        tables.pop(0)
    assert seen == [
        ([(2, 0)], {(1, 2), (2, 3)}),
        ([(2, 2)], {(1, 2), (2, 3)}),
        ([], {(1, 2), (2, 3)}),  # told once
        ([(1, 0)], {(7, 8)}),
    ]
    assert {bad["reason"] for bad in folder.quarantined()} == {
        "column `y` missing; there are `x`, `z`"
    }


def test_what_a_lost_epoch_has_quarantined_is_taken_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.spark.placement_driver import DriverPlacement

    folder = Folder(tmp_path)
    bad = folder.write("edge/a.csv", "one,2\n")
    source = folder.source("edge", "csv")

    def fail(self: Any, changes: Any) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(DriverPlacement, "apply", fail)
        with pytest.raises(ConnectionError):
            folder.run(spark, source)
    assert len(folder.quarantined()) == 1
    bad.write_text("1,2\n")  # and it was mended meanwhile
    (done,) = folder.run(spark, source)
    assert (done.received, done.quarantined) == (1, 0)
    assert folder.quarantined() == []
