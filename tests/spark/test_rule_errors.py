"""Rows on which a rule fails, and rows that grow old."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PLACEMENTS, Folder
from tidelog.errors import DataError, UsageError
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.spark import Pipeline, Sink, rule_errors
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_driver import DriverPlacement, with_offsets

pytestmark = pytest.mark.sampled(3)

PROGRAM = """
.decl p(x: number, name: symbol)
.decl q(x: number, name: symbol)
q(100 / x, n) :- p(x, n).
.decl r(x: number)
"""


def quarantining(folder: Folder, program: str, *relations: str, **keys: Any) -> Pipeline:
    sources = [folder.source(name, "csv", **keys) for name in relations]
    return Pipeline(
        program, state=folder.path / "state", sources=sources, on_rule_error="quarantine"
    )


def test_rows_on_which_a_rule_fails_are_quarantined(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path, PROGRAM)
    for number in range(2):  # at first, and then as an update
        good = [x for x in range(-20, 20) if x]
        rows = [f"{x},g{number}\n" for x in good]
        for place in (3, 7, 30):
            rows.insert(place, f"0,b{number}{place}\n")
        folder.write(f"p/{number}", "".join(rows) + "bad,bad\n")
        folder.write(f"r/{number}", f"{number}\n")
        with quarantining(folder, PROGRAM, "p", "r") as pipeline:
            (done,) = pipeline.run(spark)
            assert (done.received, done.accepted, done.quarantined) == (44, 40, 4)
            assert len(pipeline.database.view("p")) == 39 * (number + 1)
    bad = folder.quarantined()
    assert [row["row"]["name"] for row in bad if row["reason"].startswith("column")] == ["bad"] * 2
    found = [row for row in bad if "division by zero" in row["reason"]]
    assert {row["row"]["name"] for row in found} == {
        f"b{number}{place}" for number in range(2) for place in (3, 7, 30)
    }
    assert {row["source"] for row in found} == {"p"}
    assert "rule: q(" in found[0]["reason"]
    assert {name for _, name in folder.rows("q")} == {"g0", "g1"}, "also when it is opened again"


def test_rows_that_fail_together(spark: Any, tmp_path: Path) -> None:
    program = (
        ".decl given(item: symbol, p: number)\n.decl price[item: symbol]: number\n"
        "price[i] = p :- given(i, p).\n"
    )
    folder = Folder(tmp_path, program)
    folder.write("given/a", "a,1\nb,2\n")
    with quarantining(folder, program, "given") as pipeline:
        pipeline.run(spark)
    folder.write("given/b", "c,3\nb,5\nd,4\nd,6\n")
    with quarantining(folder, program, "given") as pipeline:
        (done,) = pipeline.run(spark)
        assert (done.accepted, done.quarantined) == (2, 2)
        assert set(pipeline.database.view("given")) == {("a", 1), ("b", 2), ("c", 3), ("d", 4)}


def test_too_many_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_errors, "TRIES", 20)
    placement = DriverPlacement(with_offsets(Program.parse(PROGRAM)), tmp_path / "d", "refuse", 10)
    changes = EpochChanges({"p": CheckedRows((0, str(i)) for i in range(100))})
    error = placement.probe(changes)
    assert error is not None
    with pytest.raises(DataError, match="too many to look for"):
        rule_errors.Culprits(changes, placement.probe, error).find()


def test_a_deletion_that_fails_is_an_error(tmp_path: Path) -> None:
    program = """
        .decl p(x: number)
        .decl d(x: number)
        .decl q(x: number)
        q(1 / x) :- p(x), !d(x).
    """
    placement = DriverPlacement(with_offsets(Program.parse(program)), tmp_path / "d", "refuse", 10)
    placement.apply(EpochChanges({"p": CheckedRows([(0,)]), "d": CheckedRows([(0,)])}))
    changes = EpochChanges({"p": CheckedRows([(1,)])}, {"d": CheckedRows([(0,)])})
    error = placement.probe(changes)
    assert error is not None
    with pytest.raises(DataError, match="division by zero"):
        rule_errors.Culprits(changes, placement.probe, error).find()
    placement.apply(EpochChanges({"p": CheckedRows([(1,)])}))
    assert set(placement.rows("q")) == {(1,)}
    placement.close()


EVENTS = """
.decl event(id: number, at: timestamp, key: number)
.decl total(key: number, n: number)
total(k, n) :- event(_, _, k), n = count : { event(_, _, k) }.
"""


@pytest.mark.parametrize("declared_by", ["source", "program"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_old_rows_are_deleted(spark: Any, tmp_path: Path, placement: str, declared_by: str) -> None:
    by_source = declared_by == "source"
    program = EVENTS if by_source else EVENTS + '.retain event(at, "2d")'
    folder = Folder(tmp_path, program)
    keys: dict[str, Any] = {"state": tmp_path / "state", **PLACEMENTS[placement]}
    retain = {"retain": "2d", "retain_by": "at"} if by_source else {}
    source = folder.source("event", "csv", **retain)
    sink = Sink("event", what="changes", path=str(tmp_path / "out"))

    def day(file: str, *rows: tuple[int, str]) -> tuple[int, int, int, set[int]]:
        text = "".join(f"{id},2026-03-{at},{id % 2}\n" for id, at in rows)
        folder.write(f"event/{file}", text)
        with Pipeline(program, sources=[source], sinks=[sink], **keys) as pipeline:
            (done,) = pipeline.run(spark)
            held = {row["id"] for row in pipeline.table("event").to_pylist()}
            per_key = {row["key"]: row["n"] for row in pipeline.table("total").to_pylist()}
            assert per_key == Counter(id % 2 for id in held)
            assert done.received == done.accepted + done.quarantined
            return done.inserted, done.deleted, done.late, held

    assert day("a", (1, "01T00:00:00"), (2, "02T00:00:00"), (3, "04T00:00:00")) == (
        2, 0, 1, {2, 3},
    )  # fmt: skip
    assert day("b", (4, "03T00:00:00")) == (1, 0, 0, {2, 3, 4}), "late, but within the bound"
    assert day("c", (5, "05T00:00:01"), (6, "05T00:00:01")) == (2, 2, 0, {3, 5, 6})
    assert day("d", (7, "03T00:00:00"), (8, "03T12:00:00")) == (1, 0, 1, {3, 5, 6, 8})
    assert day("e", (9, "20T00:00:00")) == (1, 4, 0, {9})
    changes = pq.read_table(tmp_path / "out").to_pylist()
    last = {(row["op"], row["id"]) for row in changes if row["epoch"] == 4}
    assert last == {("+", 9), *(("-", id) for id in (3, 5, 6, 8))}, "as deletions"


def test_what_cannot_be_retained_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, EVENTS)
    keys: dict[str, Any] = {"state": tmp_path / "state"}
    for spec, text in (
        ({"retain": "2d"}, "belong together"),
        ({"retain": "2d", "retain_by": "at", "mode": "changes"}, "is for mode"),
        ({"retain": "2 days", "retain_by": "at"}, "is not a duration"),
        ({"retain": "2d", "retain_by": "att"}, "did you mean `at`"),
        ({"retain": "2d", "retain_by": "id"}, "is a number, and not a timestamp"),
    ):
        with pytest.raises(UsageError, match=text):
            Pipeline(EVENTS, sources=[folder.source("event", "csv", **spec)], **keys)
    source = folder.source("event", "csv", retain="2d", retain_by="at")
    with pytest.raises(UsageError, match="cannot add rows to `event`, too"):
        Pipeline(EVENTS, sources=[source, folder.source("event", "json")], **keys)
    program = ".decl p(x: number)\n.decl q(x: number)\nq(x) :- p(x).\n"
    with pytest.raises(UsageError, match=r"`on_rule_error = .quarantine.` needs placement"):
        Pipeline(
            program, sources=[], placement="sharded", shards=2, on_rule_error="quarantine", **keys
        )
    with pytest.raises(UsageError, match="must be one of fail, quarantine"):
        Pipeline(program, sources=[], on_rule_error="skip", **keys)
