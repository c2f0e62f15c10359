"""`tidelog pipeline reset`, `refresh`, `replay-quarantine` and `status --json`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PROGRAM, Folder
from tests.spark.test_commands import call
from tidelog.errors import StateError, UsageError
from tidelog.spark import Pipeline
from tidelog.spark.pipeline_file import read_pipeline_file
from tidelog.spark.refreshing import refresh
from tidelog.spark.replaying import REPLAYED, Replay
from tidelog.spark.state_folder import lock, reset

pytestmark = pytest.mark.sampled(3)

FILE = """
[pipeline]
name = "roads"
program = "roads.dl"
on_program_change = "rebuild"
PLACEMENT

[[source]]
relation = "edge"
format = "csv"
path = "in/edge"
mode = "changes"
options = { header = "true" }

[[sink]]
view = "reach"
path = "out/reach"
"""


def roads(folder: Path, placement: str = "") -> Path:
    (folder / "roads.dl").write_text(PROGRAM)
    (folder / "in" / "edge").mkdir(parents=True)
    (folder / "in" / "edge" / "a.csv").write_text("op,x,y\n+,1,2\n+,2,3\n+,4,\n+,five,6\n?,7,8\n")
    file = folder / "roads.toml"
    file.write_text(FILE.replace("PLACEMENT", placement))
    return file


def run(file: Path, spark: Any) -> None:
    with Pipeline.from_file(file) as pipeline:
        pipeline.run(spark)


def reach(file: Path) -> set[tuple[int, int]]:
    rows = pq.read_table(file.parent / "out" / "reach").to_pylist()
    return {(row["x"], row["y"]) for row in rows}


def status(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    assert call(monkeypatch, "status", str(file), "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_reset(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = roads(tmp_path)
    assert status(file, monkeypatch, capsys)["epoch"] is None
    run(file, spark)
    found = status(file, monkeypatch, capsys)
    assert found["epoch"] == 0
    assert found["sources"] == [
        {
            "name": "edge", "relation": "edge", "received": 5, "accepted": 2, "quarantined": 3,
            "failure": None, "files": {"read": 1, "waiting": 0, "changed": []},
        }
    ]  # fmt: skip
    assert found["sinks"][0]["epoch"] == 0
    (tmp_path / "state" / "notes.txt").write_text("mine")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert call(monkeypatch, "reset", str(file)) == 2
    assert "--yes" in capsys.readouterr().err
    held = lock(tmp_path / "state")
    assert call(monkeypatch, "reset", str(file), "--yes") == 1
    assert "is open for writing" in capsys.readouterr().err
    held.release()
    assert call(monkeypatch, "reset", str(file), "--yes") == 0
    assert capsys.readouterr().out == "roads: removed checkpoint, sinks, quarantine, database\n"
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["notes.txt"]
    assert reach(file) == {(1, 2), (1, 3), (2, 3)}, "targets stay"
    run(file, spark)
    assert status(file, monkeypatch, capsys)["sources"][0]["received"] == 5


def test_reset_never_removes_sources(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "checkpoint" / "mine"
    folder.mkdir(parents=True)
    with pytest.raises(UsageError, match="which would be removed"):
        reset(tmp_path / "state", [str(folder)])
    assert folder.is_dir()
    assert reset(tmp_path / "nothing", []) == []


@pytest.mark.parametrize("placement", ["", 'placement = "sharded"\nshards = 2'])
def test_refresh(spark: Any, tmp_path: Path, placement: str) -> None:
    program = PROGRAM.replace("reach(x, y), edge(y, z)", "reach(x, y), edge(x, z)")
    file = roads(tmp_path, placement)
    if placement:
        (tmp_path / "roads.dl").write_text(program)
    run(file, spark)
    spec = read_pipeline_file(file)
    expected = reach(file)
    (written,) = (tmp_path / "out" / "reach").glob("*.parquet")
    written.write_bytes(b"somebody was here")
    done = refresh(spec, spark)
    assert (done.epoch, done.differences, done.written) == (
        0, {}, {"reach-table-parquet": len(expected)},
    )  # fmt: skip
    assert done.views >= 4
    assert reach(file) == expected
    assert sorted(p.name for p in (tmp_path / "state").iterdir() if p.is_dir()) == sorted(
        ["checkpoint", "quarantine", "sinks", "sharded" if placement else "database"]
    )
    (tmp_path / "in" / "edge" / "b.csv").write_text("op,x,y\n+,3,4\n")
    run(file, spark)  # it goes on
    assert (3, 4) in reach(file)


def test_a_refresh_finds_differences(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.spark import refreshing

    file = roads(tmp_path)
    run(file, spark)
    copied = refreshing.copied

    def other(spec: Any, program: Any, old: Any, target: Any) -> Any:
        new = copied(spec, program, old, target)
        rows = new.rows
        monkeypatch.setattr(new, "rows", lambda view: set(rows(view)) - {(1, 2)} | {(9, 9)})
        return new

    monkeypatch.setattr(refreshing, "copied", other)
    done = refresh(read_pipeline_file(file), spark, "reach")
    assert done.differences == {"reach": (1, 1)}
    run(file, spark)
    assert reach(file) == {(1, 2), (1, 3), (2, 3)}
    with pytest.raises(UsageError, match="does not declare"):
        refresh(read_pipeline_file(file), spark, "rich")


def test_replay(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = roads(tmp_path)
    run(file, spark)
    with Pipeline.from_file(file) as pipeline:
        done = pipeline.replay(spark)
        assert (done.epoch, done.taken, done.left) == (None, {}, {"edge": 3})
    file.write_text(
        file.read_text().replace('mode = "changes"', 'mode = "changes"\nnulls = { y = "5" }')
    )
    with Pipeline.from_file(file) as pipeline:
        done = pipeline.replay(spark, "edge")
        assert (done.epoch, done.taken, done.left) == (1, {"edge": 1}, {"edge": 2})
        total = pipeline.totals()
        assert (total.received, total.accepted, total.quarantined) == (5, 3, 2)
        with pytest.raises(UsageError, match="did you mean `edge`"):
            pipeline.replay(spark, "edges")
    assert (4, 5) in reach(file)
    left = [bad["row"] for bad in Folder(tmp_path).quarantined()]
    assert left == [{"op": "+", "x": "five", "y": "6"}, {"op": "?", "x": "7", "y": "8"}]


def test_replay_after_the_program_has_changed(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number)\n.decl q(x: number)\nq(6 / x) :- p(x).\n"
    folder = Folder(tmp_path, program)
    folder.write("p/a", "1\n0\none\n")
    keys: dict[str, Any] = {
        "state": tmp_path / "state", "sources": [folder.source("p", "csv")],
        "on_rule_error": "quarantine", "on_program_change": "rebuild",
    }  # fmt: skip
    with Pipeline(program, **keys) as pipeline:
        pipeline.run(spark)
        done = pipeline.replay(spark)
        assert (done.epoch, done.taken, done.left) == (None, {}, {"p": 2})
    mended = program.replace("p(x).", "p(x), x != 0.")
    with Pipeline(mended, **keys) as pipeline:
        done = pipeline.replay(spark)
        assert (done.taken, done.left) == ({"p": 1}, {"p": 1})
        assert set(pipeline.database.view("p")) == {(0,), (1,)}
        total = pipeline.totals()
        assert (total.received, total.accepted, total.quarantined) == (3, 2, 1)
    assert [bad["row"] for bad in folder.quarantined()] == [{"x": "one"}]


def test_a_replay_that_ended_is_finished(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, ".decl p(x: number)\n")
    folder.write("p/a", "1\none\n 2\n")
    source = folder.source("p", "csv")
    folder.run(spark, source, sinks=[])
    path = next((tmp_path / "state" / "quarantine").rglob("*.jsonl"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0].replace("one", "7")]) + "\n")
    finish = Replay.finish

    def dying(self: Any, placement: Any) -> None:
        if placement.epoch == 1:
            raise StateError("the end")
        finish(self, placement)

    with folder.pipeline(source, sinks=[]) as pipeline, monkeypatch.context() as patch:
        patch.setattr(Replay, "finish", dying)
        with pytest.raises(StateError, match="the end"):
            pipeline.replay(spark)
    before = len(folder.quarantined())
    with folder.pipeline(source, sinks=[]) as pipeline:
        pipeline.run(spark)
        assert set(pipeline.database.view("p")) >= {(1,), (7,)}
        assert pipeline.database.view("tidelog_offsets").where(source=REPLAYED)
    assert len(folder.quarantined()) == before - 1
