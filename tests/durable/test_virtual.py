"""Virtual views of durable databases: there is nothing to restore."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog

PROGRAM = """
    .decl edge(x: symbol, y: symbol)
    .decl reach(x: symbol, y: symbol)
    .view reach(virtual=true)
    .decl far(x: symbol, n: number)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
    reach("q", "r").
    far(x, n) :- edge(x, _), n = count : { reach(x, _) }.
"""


def test_it_is_opened_again(tmp_path: Path) -> None:
    with tidelog.Database(PROGRAM, path=tmp_path) as db:
        with db.transaction() as tx:
            tx.insert("edge", [("a", "b"), ("b", "c")])
            tx.insert("reach", [("z", "a")])
        db.snapshot()
        with db.transaction() as tx:
            tx.insert("edge", [("c", "d")])
        assert [epoch for epoch, _ in db.changes("reach", 0)] == [1, 2]
        assert ("a", "c") in db.at(1).view("reach")
        assert ("a", "d") not in db.at(1).view("reach")
        rows, counted = list(db.view("reach")), list(db.view("far"))
    assert {("q", "r"), ("z", "d"), ("a", "d")} <= set(rows)
    with tidelog.Database(PROGRAM, path=tmp_path) as db:
        assert db.opened is not None
        assert not db.opened.rebuilt
        assert list(db.view("reach")) == rows
        assert list(db.view("far")) == counted
        with db.transaction() as tx:
            tx.delete("edge", [("b", "c")])
        gone = {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("z", "c"), ("z", "d")}
        assert set(tx.changes["reach"].deleted) == gone


def test_a_reader_has_no_rows_of_it(tmp_path: Path) -> None:
    with tidelog.Database(PROGRAM, path=tmp_path) as db:
        with db.transaction() as tx:
            tx.insert("edge", [("a", "b")])
        reader = tidelog.Database.reader(tmp_path)
        assert list(reader.view("far")) == [("a", 1)]
        with pytest.raises(tidelog.UsageError, match="`reach` is virtual, so its rows are not in"):
            list(reader.view("reach"))
