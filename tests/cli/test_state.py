"""`tidelog state`, from the command line."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest import mock

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, random_case
from tests.maintain.shapes import SHAPES
from tests.samples import until
from tests.seeds import case_seeds
from tidelog.cli.main import main
from tidelog.database.database import kernel_of
from tidelog.persist.state_tools import export_state, import_state, verify

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
    assert "format 4, written by Tidelog" in said
    assert "epoch      3; retained since 0" in said
    assert "3 epochs to replay" in said
    assert "  edge   1 rows in the snapshot" in said


def test_verify(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", state) == 0
    assert "fine at epoch 3" in capsys.readouterr().out
    assert run("verify", state, "--deep") == 0
    assert "views equal a fresh evaluation" in capsys.readouterr().out
    (data,) = state.glob("data-*")
    held = bytearray(data.read_bytes())
    held[64] ^= 1
    data.write_bytes(held)
    assert run("verify", state) == 1
    assert f"`{data}` is damaged at byte 64" in capsys.readouterr().err


def test_verify_compares(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong view, with all checksums right."""
    with tidelog.Database(REACH, path=state) as db:
        reach = kernel_of(db).catalog.relations["reach"]
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
        assert all(len(r.primary.runs) <= 1 for r in kernel_of(db).catalog.everything())


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
    chosen = case_seeds(150, offset=90_000)
    folders, rows = count(), 0

    def check(case: RandomCase) -> None:
        nonlocal rows
        folder = tmp_path / str(next(folders))
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

    for i in until(lambda: rows > 100, least=15, most=150):
        check_cases(chosen[i : i + 1], check, lambda seed: random_case(seed, TYPED))
    assert rows > 100, "the programs have hardly any rows"


def test_a_recursion_that_is_re_evaluated_is_verified(tmp_path: Path) -> None:
    """Its counts are not stored, and a state that was just opened has no room for them."""
    program = """
        .decl p(x: number, y: number)
        .decl q(x: number)
        p(x, z) :- z = -y, n = count : { q(_), 3 >= x }, p(x, y).
    """
    with tidelog.Database(program, path=tmp_path / "a") as db, db.transaction() as tx:
        tx.insert("p", [(1, 5)])
        tx.insert("q", [(1,), (2,)])
    export_state(tmp_path / "a", tmp_path / "export")
    import_state(tmp_path / "export", tmp_path / "b")
    assert verify(tmp_path / "b", deep=True).problems == ()
