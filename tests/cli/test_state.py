"""`tidelog state`, from the command line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, random_case, seed_blocks
from tests.maintain.shapes import SHAPES
from tidelog.cli.main import main
from tidelog.engine.state_tools import export_state, import_state, verify

REACH = """
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


TYPED = replace(SHAPES[2], functional=0.0)


def run(*words: str | Path) -> int:
    with mock.patch.object(sys, "argv", ["tidelog", "state", *map(str, words)]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    with tidelog.Database(REACH, path=path, facts={"edge": [("a", "b")]}) as db:
        for number in range(3):
            with db.transaction() as tx:
                tx.insert("edge", [("b", f"c{number}")])
    return path


def test_info(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", state) == 0
    said = capsys.readouterr().out
    assert "format 2, written by Tidelog" in said
    assert "epoch      3; retained since 0" in said
    assert "3 epochs to replay" in said
    assert "  edge   1 rows in the snapshot" in said


def test_verify(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", state) == 0
    assert "fine at epoch 3" in capsys.readouterr().out
    assert run("verify", state, "--deep") == 0
    assert "views as a fresh evaluation has them" in capsys.readouterr().out
    (data,) = state.glob("data-*")
    held = bytearray(data.read_bytes())
    held[64] ^= 1
    data.write_bytes(held)
    assert run("verify", state) == 1
    assert f"`{data}` is damaged at byte 64" in capsys.readouterr().err


def test_verify_compares(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong view, with all checksums right."""
    with tidelog.Database(REACH, path=state) as db:
        reach = db._engine._catalog.relations["reach"]  # type: ignore[attr-defined]
        reach.primary.runs[0].need_marks()[0] += 1
        db.snapshot()
    assert run("verify", state) == 0
    assert run("verify", state, "--deep") == 1
    assert "`reach`: 1 rows with another level or count" in capsys.readouterr().err


def test_compact(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compact", state) == 0
    assert run("info", state) == 0
    said = capsys.readouterr().out
    assert "epoch      3; retained since 3" in said
    assert " 0 epochs to replay" in said
    with tidelog.Database(REACH, path=state) as db:
        assert len(db.view("reach")) == 7
        assert all(len(r.primary.runs) <= 1 for r in db._engine._catalog.everything())  # type: ignore[attr-defined]


def test_export_and_import(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, new = state.parent / "out", state.parent / "new"
    assert run("export", state, folder) == 0
    assert run("import", folder, new) == 0
    assert "epoch 3" in capsys.readouterr().out
    with tidelog.Database(REACH, path=new) as db:
        assert db.epoch == 3
        assert len(db.view("reach")) == 7
    assert run("export", state, folder) == 2
    assert run("import", folder, new) == 2
    assert run("import", state, state.parent / "other") == 2
    assert run("info", state.parent / "nothing") == 2


def test_all_types_survive_an_export(tmp_path: Path) -> None:
    (seeds,) = seed_blocks(15, 15, offset=90_000)
    rows = 0

    def check(case: RandomCase) -> None:
        nonlocal rows
        folder = tmp_path / str(case.seed) / str(rows)
        rows += 1
        try:
            db = tidelog.Database(case.program, path=folder / "a", facts=case.facts)
        except tidelog.DataError:
            return
        for epoch in case.epochs[:3]:
            try:
                with db.transaction() as tx:
                    for name, (adds, removes) in epoch.items():
                        tx.insert(name, adds)
                        tx.delete(name, removes)
            except tidelog.DataError:
                continue
        db.close()
        export_state(folder / "a", folder / "export")
        import_state(folder / "export", folder / "b")
        assert verify(folder / "b", deep=True).problems == ()
        with tidelog.Database(case.program, path=folder / "b") as again:
            for name in db.program.relations:
                assert list(again.view(name)) == list(db.view(name)), name
                assert again.given_count(name) == db.given_count(name), name
                rows += len(db.view(name))

    check_cases(seeds, check, lambda seed: random_case(seed, TYPED))
    assert rows > 100
