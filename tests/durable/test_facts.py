"""Facts of the program in durable databases: stored apart from the given rows, and old states."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tidelog.database.database import kernel_of
from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.persist.given_files import read_given
from tidelog.persist.state_tools import verify

OLD_STATE = Path(__file__).parent / "format-2"
"""Written by the last version with format 2, for PROGRAM.

Given at first: edge(2, "both"), edge(4, "given"), reach(0, "fact"). The log inserts
edge(3, "later") and edge(5, "more"), and deletes edge(2, "both"). Then it inserts
edge(1, "fact").
"""

PROGRAM = """\
.decl edge(x: number, y: symbol)
edge(1, "fact"). edge(2, "both"). edge(3, "later").
.decl reach(x: number, y: symbol)
reach(0, "fact").
reach(x, y) :- edge(x, y).
reach(x + 1, y) :- reach(x, y), x < 3.
"""

GIVEN = {
    "edge": {(1, "fact"), (3, "later"), (4, "given"), (5, "more")},
    "reach": {(0, "fact")},
}


def same(db: tidelog.Database, given: dict[str, set[tuple[int, str]]]) -> None:
    """Assert that a database is as a new one on the same given rows is."""
    engine = kernel_of(db)
    fresh = KernelEngine(Program.parse(PROGRAM), given)
    for name, rows in given.items():
        assert engine.levels_and_counts(name) == fresh.levels_and_counts(name)
        assert engine.given_count(name) == len(rows)
    engine.check()


def test_facts_that_are_given_and_not_given_any_more(tmp_path: Path) -> None:
    with tidelog.Database(PROGRAM, path=tmp_path, facts={"edge": [(4, "given")]}) as db:
        with db.transaction() as tx:
            tx.insert("edge", [(1, "fact"), (2, "both")])
        assert not any(tx.changes.values())
        assert not tx.ignored
        same(db, {"edge": {(1, "fact"), (2, "both"), (4, "given")}, "reach": set()})
    with tidelog.Database(PROGRAM, path=tmp_path) as db:
        same(db, {"edge": {(1, "fact"), (2, "both"), (4, "given")}, "reach": set()})
        with db.transaction() as tx:
            tx.delete("edge", [(1, "fact"), (3, "later"), (4, "given")])
            tx.insert("reach", [(0, "fact")])
        assert set(tx.changes["edge"].deleted) == {(4, "given")}
        assert set(tx.ignored["edge"].deleted) == {(3, "later")}
    with tidelog.Database(PROGRAM, path=tmp_path) as db:
        same(db, {"edge": {(2, "both")}, "reach": {(0, "fact")}})
        with db.transaction() as tx:
            tx.delete("reach", [(0, "fact")])
        assert not any(tx.changes.values())
        same(db, {"edge": {(2, "both")}, "reach": set()})
    assert verify(tmp_path, deep=True).problems == ()


def test_a_state_of_format_2(tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(OLD_STATE, state)
    files = Files(state)
    assert manifests.read(files).format == 2
    held = read_given(files, manifests.read(files))
    assert (held.rows, held.epoch) == (GIVEN, 2)
    with pytest.raises(tidelog.StateError, match="open it for writing once"):
        tidelog.open_reader(state)
    with tidelog.Database(PROGRAM, path=state) as db:
        assert db.opened is not None
        assert "stores the relations in another way" in db.opened.rebuilt
        assert db.epoch == 2
        same(db, GIVEN)
    assert manifests.read(files).format == manifests.FORMAT
    with tidelog.Database(PROGRAM, path=state) as db:
        assert db.opened is not None
        assert db.opened.rebuilt == ""
        same(db, GIVEN)
    assert set(tidelog.open_reader(state).view("edge")) == GIVEN["edge"] | {(2, "both")}
