"""Rows on which a rule fails, and rows that grow old."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.spark.piping import PLACEMENTS, Folder, expected
from tidelog.errors import DataError, UsageError
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.spark import Pipeline, Sink, Source, bisection
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.rule_errors import find_failing

pytestmark = pytest.mark.sampled(3)

PROGRAM = """
.decl p(x: number, name: symbol)
.decl q(x: number, name: symbol)
q(100 / x, n) :- p(x, n).
.decl r(x: number)
"""


def quarantining(
    folder: Folder, placement: str, program: str, *relations: str, **keys: Any
) -> Pipeline:
    sources = [folder.source(name, "csv", **keys) for name in relations]
    return Pipeline(
        program,
        state=folder.path / "state",
        sources=sources,
        on_rule_error="quarantine",
        **PLACEMENTS[placement],
    )


def held(pipeline: Pipeline, view: str) -> set[Any]:
    return {tuple(row.values()) for row in pipeline.table(view).to_pylist()}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_rows_on_which_a_rule_fails_are_quarantined(
    spark: Any, tmp_path: Path, placement: str
) -> None:
    folder = Folder(tmp_path, PROGRAM)
    for number in range(2):  # at first, and then as an update
        good = [x for x in range(-20, 20) if x]
        rows = [f"{x},g{number}\n" for x in good]
        for place in (3, 7, 30, 30):
            rows.insert(place, f"0,b{number}{place}\n")
        folder.write(f"p/{number}", "".join(rows) + "bad,bad\n")
        folder.write(f"r/{number}", f"{number}\n")
        with quarantining(folder, placement, PROGRAM, "p", "r") as pipeline:
            (done,) = pipeline.run(spark)
            assert (done.received, done.accepted, done.quarantined) == (45, 40, 5)
            assert len(held(pipeline, "p")) == 39 * (number + 1)
            assert pipeline.totals().quarantined == 5 * (number + 1)
    bad = folder.quarantined()
    assert [row["row"]["name"] for row in bad if row["reason"].startswith("column")] == ["bad"] * 2
    found = [row for row in bad if "division by zero" in row["reason"]]
    assert Counter(row["row"]["name"] for row in found) == Counter(
        f"b{number}{place}" for number in range(2) for place in (3, 7, 30, 30)
    ), "each row that is received, also if it is repeated"
    assert {row["source"] for row in found} == {"p"}
    assert {row["file"] for row in found} == {"0", "1"}
    assert "rule: q(" in found[0]["reason"]
    with quarantining(folder, placement, PROGRAM, "p", "r") as pipeline:
        assert {name for _, name in held(pipeline, "q")} == {"g0", "g1"}, "also opened again"
    assert not list((tmp_path / "state").rglob("failing/*"))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_rows_that_fail_together(spark: Any, tmp_path: Path, placement: str) -> None:
    program = (
        ".decl given(item: symbol, p: number)\n.decl price[item: symbol]: number\n"
        "price[i] = p :- given(i, p).\n"
    )
    folder = Folder(tmp_path, program)
    folder.write("given/a", "a,1\nb,2\n")
    with quarantining(folder, placement, program, "given") as pipeline:
        pipeline.run(spark)
    folder.write("given/b", "c,3\nb,5\nd,4\nd,6\n")
    with quarantining(folder, placement, program, "given") as pipeline:
        (done,) = pipeline.run(spark)
        assert (done.accepted, done.quarantined) == (2, 2)
        found = held(pipeline, "given")
    certain = {("a", 1), ("b", 2), ("c", 3)}
    if placement == "driver":
        assert found == certain | {("d", 4)}, "the later one of two"
    else:
        assert found in (certain | {("d", 4)}, certain | {("d", 6)})


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nested_rows_on_which_a_rule_fails(spark: Any, tmp_path: Path, placement: str) -> None:
    program = """
        .type Pair = [a: number, b: symbol]
        .decl p(k: number, f: float, r: Pair, s: set(number))
        .decl q(k: number, y: number)
        q(k, 6 / a) :- p(k, _, [a, _], _).
    """
    folder = Folder(tmp_path, program)
    lines = [
        json.dumps({"k": k, "f": k / 2, "r": {"a": k % 3, "b": "x"}, "s": [k, k + 1]})
        for k in range(6)
    ]
    folder.write("p/a.json", "\n".join(lines) + "\n")
    source = folder.source("p", "json")
    keys: dict[str, Any] = {"on_rule_error": "quarantine", **PLACEMENTS[placement]}
    with Pipeline(program, state=tmp_path / "state", sources=[source], **keys) as pipeline:
        (done,) = pipeline.run(spark)
        assert (done.accepted, done.quarantined) == (4, 2)
        assert held(pipeline, "q") == {(1, 6), (2, 3), (4, 6), (5, 3)}
    bad = folder.quarantined()
    assert sorted(int(row["row"]["k"]) for row in bad) == [0, 3]


SHARED = """
.decl p(x: number, k: number)
.decl factor(d: number)
.decl q(x: number, y: number)
q(x, k / d) :- p(x, k), factor(d).
.decl total(x: number, s: number)
total(x, s) :- p(x, _), s = sum y : { q(x, y) }.
"""


def test_a_row_that_all_shards_have(spark: Any, tmp_path: Path) -> None:
    """It fails in one shard, and is left out in all of them; so are rows found in later rounds."""
    folder = Folder(tmp_path, SHARED)
    folder.write("p/a", "".join(f"{x},{x + 10}\n" for x in range(20)))
    folder.write("factor/a", "2\n5\n")
    keys = {"shards": 2, "placement": "sharded", "on_rule_error": "quarantine"}
    sources = [folder.source(name, "csv") for name in ("p", "factor")]
    given: dict[str, set[Any]] = {"p": {(x, x + 10) for x in range(20)}}
    given["factor"] = {(2,), (5,)}

    def check(pipeline: Pipeline) -> None:
        for view in ("q", "total"):
            assert held(pipeline, view) == expected(SHARED, given, view)

    with Pipeline(SHARED, state=tmp_path / "state", sources=sources, **keys) as pipeline:
        pipeline.run(spark)
        check(pipeline)
        folder.write("factor/b", "0\n3\n")
        big = 2**63 - 1
        folder.write("p/b", f"1,{big}\n1,{big - 1}\n50,7\n")  # their sum is out of range
        (done,) = pipeline.run(spark)
        new = {("factor", 0), ("factor", 3), ("p", 1, big), ("p", 1, big - 1), ("p", 50, 7)}
        bad = {
            (row["source"], *(int(value) for value in row["row"].values()))
            for row in folder.quarantined()
        }
        assert (done.accepted, done.quarantined) == (5 - len(bad), len(bad))
        assert {("factor", 0)} < bad < new - {("p", 50, 7)}
        for name, *row in new - bad:
            given[name].add(tuple(row))
        check(pipeline)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_upsert_on_which_a_rule_fails_leaves_its_key_as_it_was(
    spark: Any, tmp_path: Path, placement: str
) -> None:
    folder = Folder(tmp_path, PROGRAM)
    keys: dict[str, Any] = {
        "mode": "upsert", "keys": ["name"], "sequence": "at", "columns": {}
    }  # fmt: skip
    folder.write("p/a", "x,name,at\n5,a,1\n6,b,1\n")
    with quarantining(folder, placement, PROGRAM, "p", options={"header": "true"}, **keys) as one:
        one.run(spark)
        folder.write("p/b", "x,name,at\n0,a,2\n7,b,2\n8,c,2\n0,c,3\n")
        (done,) = one.run(spark)
        assert (done.received, done.accepted, done.quarantined) == (4, 2, 2)
        assert held(one, "p") == {(5, "a"), (7, "b"), (8, "c")}
        assert {name for _, name in held(one, "q")} == {"a", "b", "c"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_exactly_once_if_the_process_ends_before_the_commit(
    spark: Any, tmp_path: Path, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, PROGRAM)
    folder.write("p/a", "1,a\n2,b\n")
    with quarantining(folder, placement, PROGRAM, "p") as pipeline:
        pipeline.run(spark)
    folder.write("p/b", "3,c\n0,d\n4,e\n")

    class Ended(Exception):
        pass

    def end(*_: Any) -> Any:
        raise Ended

    with monkeypatch.context() as patch, pytest.raises(Ended):
        if placement == "driver":
            patch.setattr(DriverPlacement, "_offset_rows", end)
        else:
            patch.setattr(ShardedPlacement, "_commit", end)
        with quarantining(folder, placement, PROGRAM, "p") as pipeline:
            pipeline.run(spark)
    with quarantining(folder, placement, PROGRAM, "p") as pipeline:
        (done,) = pipeline.run(spark)
        assert (done.epoch, done.accepted, done.quarantined) == (1, 2, 1)
        assert held(pipeline, "p") == {(1, "a"), (2, "b"), (3, "c"), (4, "e")}
        assert pipeline.totals().received == 5
    assert [row["row"]["name"] for row in folder.quarantined()] == ["d"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_snapshot_reports_its_bad_rows_once(spark: Any, tmp_path: Path, placement: str) -> None:
    folder = Folder(tmp_path, PROGRAM)
    rows = [(1, "a"), (2, "b")]
    source = Source("p", "table", table="snapped", mode="snapshot")
    keys: dict[str, Any] = {"on_rule_error": "quarantine", **PLACEMENTS[placement]}

    def run() -> list[tuple[int, int]]:
        spark.createDataFrame(rows, "x long, name string").createOrReplaceTempView("snapped")
        with Pipeline(PROGRAM, state=tmp_path / "state", sources=[source], **keys) as pipeline:
            done = pipeline.run(spark)
            assert held(pipeline, "p") == {(1, "a"), (2, "b")}
        return [(epoch.accepted, epoch.quarantined) for epoch in done]

    assert run() == [(2, 0)]
    rows.append((0, "zero"))
    assert run() == [(2, 1)]
    assert run() == []
    assert [row["row"]["name"] for row in folder.quarantined()] == ["zero"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_rows_on_which_a_rule_fails_stay_in_the_quarantine(
    spark: Any, tmp_path: Path, placement: str
) -> None:
    folder = Folder(tmp_path, PROGRAM)
    folder.write("p/a", "1,a\n0,b\nx,c\n")
    with quarantining(folder, placement, PROGRAM, "p") as pipeline:
        pipeline.run(spark)
        (file,) = (tmp_path / "state" / "quarantine").rglob("*.jsonl")
        file.write_text(file.read_text().replace('"x": "x"', '"x": "7"'))
        done = pipeline.replay(spark)
        assert (done.taken, done.left) == ({"p": 1}, {"p": 1})
        assert held(pipeline, "p") == {(1, "a"), (7, "c")}
    assert [row["row"]["name"] for row in folder.quarantined()] == ["b"]


def test_too_many_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "TRIES", 20)
    placement = DriverPlacement(with_offsets(Program.parse(PROGRAM)), tmp_path / "d", "refuse", 10)
    changes = EpochChanges({"p": CheckedRows((0, str(i)) for i in range(100))})
    error = placement.probe(changes)
    assert error is not None
    with pytest.raises(DataError, match="too many to look for"):
        find_failing(changes, placement.probe, error)


def test_a_row_that_needs_a_later_one_does_not_fail() -> None:
    """`needs` maps a row to one without which it fails."""
    needs = {0: 7, 3: 3, 5: 0}
    broken = {3}

    def probe(taken: NDArray[np.bool_]) -> DataError | None:
        rows = set(np.flatnonzero(taken).tolist())
        failing = rows & broken | {row for row in rows if needs.get(row, row) not in rows}
        return DataError(f"fails on {min(failing)}") if failing else None

    found = bisection.Bisection(8, probe, DataError("fails")).find()
    assert found == {3: "fails on 3"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_deletion_that_fails_is_an_error(tmp_path: Path, placement: str) -> None:
    program = """
        .decl p(x: number)
        .decl d(x: number)
        .decl q(x: number)
        q(1 / x) :- p(x), !d(x).
    """
    parsed = Program.parse(program)
    made: DriverPlacement | ShardedPlacement
    if placement == "driver":
        made = DriverPlacement(with_offsets(parsed), tmp_path / "d", "refuse", 10)
    else:
        made = ShardedPlacement(parsed, tmp_path / "s", (2,), 10)
    made.apply(EpochChanges({"p": CheckedRows([(0,)]), "d": CheckedRows([(0,)])}))
    changes = EpochChanges({"p": CheckedRows([(1,)])}, {"d": CheckedRows([(0,)])})
    error = made.probe(changes)
    assert error is not None
    with pytest.raises(DataError, match="division by zero"):
        find_failing(changes, made.probe, error)
    made.apply(EpochChanges({"p": CheckedRows([(1,)])}))
    assert set(made.rows("q")) == {(1,)}
    made.close()


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
    program = ".decl p(x: number)\n"
    with pytest.raises(UsageError, match="must be one of fail, quarantine"):
        Pipeline(program, sources=[], on_rule_error="skip", **keys)
