"""`.retain`: old given rows are deleted, and late ones are counted."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import tidelog
from tests.samples import sample
from tests.seeds import seeded
from tidelog.cli.main import main
from tidelog.database.database import kernel_of
from tidelog.persist.state_tools import verify

CASES = sample(25, 400)
ENGINES = ["kernel", "reference"]
PAIRS = """
.decl event(at: number, id: number)
.decl pair(x: number, y: number)
pair(x, y) :- event(x, i), event(y, i), x < y.
.decl busy(id: number, n: number)
busy(i, n) :- event(_, i), n = count : { event(_, i) }.
"""
NUMBERS = PAIRS + ".retain event(at, 10)"


def insert(db: tidelog.Database, *rows: tuple[Any, ...]) -> Any:
    with db.transaction() as tx:
        tx.insert("event", rows)
    return tx


@pytest.mark.parametrize("engine", ENGINES)
def test_an_epoch_that_moves_time_on_deletes_old_rows(engine: str) -> None:
    db = tidelog.Database(NUMBERS, engine=engine)
    insert(db, (0, 1), (5, 1), (10, 2))
    assert set(db.view("event")) == {(0, 1), (5, 1), (10, 2)}  # 0 is not older than the bound
    tx = insert(db, (12, 2))
    assert set(tx.changes["event"].inserted) == {(12, 2)}
    assert set(tx.changes["event"].deleted) == {(0, 1)}
    assert set(tx.changes["pair"].deleted) == {(0, 5)}
    assert set(tx.changes["pair"].inserted) == {(10, 12)}
    assert (tx.late, db.last_epoch.late) == ({}, {})
    assert db.last_epoch.given_deleted == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_older_than_the_oldest_expires_first(engine: str) -> None:
    db = tidelog.Database(NUMBERS, engine=engine)
    insert(db, (100, 1), (105, 1))
    insert(db, (108, 1))  # now it is known that 100 is the oldest
    insert(db, (98, 2))
    assert set(insert(db, (109, 1)).changes["event"].deleted) == {(98, 2)}
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx.insert("event", [(112, 1)])
        _ = 1 // 0
    assert set(insert(db, (112, 2)).changes["event"].deleted) == {(100, 1)}
    with db.transaction() as tx:
        tx.delete("event", list(db.view("event")))
    assert set(insert(db, (3, 3)).changes["event"].inserted) == {(3, 3)}
    assert set(insert(db, (20, 3)).changes["event"].deleted) == {(3, 3)}


@pytest.mark.parametrize("engine", ENGINES)
def test_late_rows_are_kept_inside_the_bound_and_counted_outside(engine: str) -> None:
    db = tidelog.Database(NUMBERS, engine=engine)
    insert(db, (100, 1))
    tx = insert(db, (90, 1), (89, 1), (50, 2), (95, 3))
    assert set(tx.changes["event"].inserted) == {(90, 1), (95, 3)}
    assert tx.late == {"event": 2}
    assert db.last_epoch.late == {"event": 2}
    assert db.last_epoch.given_inserted == 2
    assert insert(db, (101, 1)).late == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_and_the_time_that_makes_it_late_in_one_epoch(engine: str) -> None:
    db = tidelog.Database(NUMBERS, facts={"event": [(1, 1), (2, 2)]}, engine=engine)
    tx = insert(db, (1, 1), (3, 3), (200, 4))
    assert tx.late == {"event": 2}
    assert set(tx.changes["event"].deleted) == {(1, 1), (2, 2)}
    assert set(db.view("event")) == {(200, 4)}


@pytest.mark.parametrize("engine", ENGINES)
def test_deleting_the_newest_row_moves_time_back(engine: str) -> None:
    """A wrong time in the future can be corrected, though what it has deleted is gone."""
    db = tidelog.Database(NUMBERS, facts={"event": [(1, 1)]}, engine=engine)
    insert(db, (999, 9))
    assert set(db.view("event")) == {(999, 9)}
    with db.transaction() as tx:
        tx.delete("event", [(999, 9)])
    assert insert(db, (5, 1), (7, 1)).late == {}
    assert set(db.view("event")) == {(5, 1), (7, 1)}


@pytest.mark.parametrize("engine", ENGINES)
def test_first_facts_are_retained_alike(engine: str) -> None:
    db = tidelog.Database(NUMBERS, facts={"event": [(1, 1), (20, 2), (12, 3)]}, engine=engine)
    assert set(db.view("event")) == {(20, 2), (12, 3)}
    assert db.last_epoch.late == {"event": 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_timestamps_and_dates(engine: str) -> None:
    db = tidelog.Database(
        """
        .decl payment(id: number, at: timestamp)
        .retain payment(at, "1h")
        .decl sale(day: date, n: number)
        .retain sale(day, "2d")
        """,
        engine=engine,
    )
    noon = dt.datetime(2024, 5, 1, 12)
    day = dt.date(2024, 5, 1)
    for minutes, days in ((0, 0), (45, 1), (61, 3)):
        with db.transaction() as tx:
            tx.insert("payment", [(minutes, noon + dt.timedelta(minutes=minutes))])
            tx.insert("sale", [(day + dt.timedelta(days=days), days)])
    assert {row[0] for row in db.view("payment")} == {45, 61}
    assert {row[1] for row in db.view("sale")} == {1, 3}
    with db.transaction() as tx:
        tx.insert("payment", [(1, dt.datetime(1, 1, 1))])  # no time before the year 1 is computed
        tx.insert("sale", [(dt.date(1, 1, 1), 1)])
    assert tx.late == {"payment": 1, "sale": 1}


def test_the_smallest_numbers() -> None:
    for engine in ENGINES:
        db = tidelog.Database(NUMBERS, engine=engine)
        insert(db, (-(2**63), 1))
        insert(db, (-(2**63) + 4, 2))
        assert len(db.view("event")) == 2
        assert insert(db, (2**63 - 1, 3)).late == {}
        assert set(db.view("event")) == {(2**63 - 1, 3)}


def test_rows_of_tables() -> None:
    for engine in ENGINES:
        db = tidelog.Database(NUMBERS, engine=engine)
        with db.transaction() as tx:
            tx.insert("event", pa.table({"at": [1, 30, 25, 2], "id": [1, 2, 3, 4]}))
        assert tx.late == {"event": 2}
        assert set(db.view("event")) == {(30, 2), (25, 3)}
        with db.transaction() as tx:  # a row that is inserted and deleted stays as it was
            tx.insert("event", pa.table({"at": [99, 31], "id": [1, 2]}))
            tx.delete("event", pa.table({"at": [99], "id": [1]}))
        assert set(db.view("event")) == {(30, 2), (25, 3), (31, 2)}


def test_an_epoch_that_fails_leaves_the_time_as_it_was() -> None:
    text = NUMBERS + " .decl q(x: number) .decl zero(x: number) q(1 / x) :- zero(x)."
    db = tidelog.Database(text, facts={"event": [(1, 1)]})
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.insert("event", [(500, 1)])
        tx.insert("zero", [(0,)])
    assert insert(db, (2, 1)).late == {}
    assert set(db.view("event")) == {(1, 1), (2, 1)}


def test_the_command_line_counts_late_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.dl").write_text(NUMBERS + "\n.input event .output pair")
    (tmp_path / "event.facts").write_text("1\t1\n20\t1\n22\t1\n")
    (tmp_path / "epochs" / "1").mkdir(parents=True)
    (tmp_path / "epochs" / "1" / "event.changes").write_text("+\t2\t1\n+\t3\t1\n+\t23\t1\n")
    words = [str(tmp_path / "e.dl"), "-F", str(tmp_path), "-D", str(tmp_path / "out")]
    words += ["--epochs", str(tmp_path / "epochs")]
    arguments = mock.patch.object(sys, "argv", ["tidelog", "run", *words])
    with arguments, pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    said = capsys.readouterr().err
    assert "first evaluation: 1 row of `event` was too old to be retained, and left out" in said
    assert "epoch 1: 2 rows of `event` were too old to be retained, and left out" in said
    assert (tmp_path / "out" / "pair.csv").read_text() == "20\t22\n20\t23\n22\t23\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_explain_shows_it(engine: str) -> None:
    said = tidelog.Database(NUMBERS, engine=engine).explain()
    assert "older than the newest `at` less 10 are deleted" in said


# --- at random ------------------------------------------------------------------------------------


class RandomEpochs:
    """Epochs whose time moves on, and sometimes back; some rows are late."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._time = rng, rng.randrange(-50, 50)
        self._known: list[tuple[int, int]] = []

    def next(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return what to insert and what to delete."""
        rng = self._rng
        self._time += rng.choice([0, 0, 1, 3, 8, -5, 25])
        inserted = [
            (self._time - rng.choice([0, 1, 2, 5, 9, 10, 11, 15, 40]), rng.randrange(4))
            for _ in range(rng.randrange(5))
        ]
        deleted = rng.sample(self._known, min(len(self._known), rng.randrange(3)))
        self._known = [*self._known[-20:], *inserted]
        if rng.random() < 0.2 and inserted:
            deleted.append(inserted[0])
        return inserted, deleted


def commit(db: tidelog.Database, inserted: Any, deleted: Any, *, as_table: bool = False) -> Any:
    with db.transaction() as tx:
        for do, rows in ((tx.insert, inserted), (tx.delete, deleted)):
            do("event", table(rows) if as_table else rows)
    return tx


def table(rows: list[tuple[int, int]]) -> pa.Table:
    at, ids = ([row[place] for row in rows] for place in (0, 1))
    return pa.table({"at": pa.array(at, pa.int64()), "id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize("number", range(CASES))
def test_random_epochs_on_both_engines(number: int, tmp_path: Path) -> None:
    rng = seeded("retain", number)
    epochs, seen = RandomEpochs(rng), Counter[str]()
    reference = tidelog.Database(NUMBERS, engine="reference")
    memory, durable = tidelog.Database(NUMBERS), tidelog.Database(NUMBERS, path=tmp_path)
    for _ in range(25):
        inserted, deleted = epochs.next()
        as_table = rng.random() < 0.3
        expected = commit(reference, inserted, deleted)
        for db in (memory, durable):
            found = commit(db, inserted, deleted, as_table=as_table)
            for name in reference.program.relations:
                for kind in ("inserted", "deleted"):
                    mine = set(getattr(found.changes[name], kind))
                    assert mine == set(getattr(expected.changes[name], kind)), (name, kind)
                assert set(db.view(name)) == set(reference.view(name))
            if not as_table:  # rows of a table are counted as they come, also if they come twice
                assert found.late == expected.late
                assert found.ignored == expected.ignored
        seen["late"] += sum(expected.late.values())
        seen["deleted"] += len(expected.changes["event"].deleted)
        held = [row[0] for row in reference.view("event")]
        assert not held or max(held) - min(held) <= 10
        if rng.random() < 0.15:
            if rng.random() < 0.5:
                durable.snapshot()
            durable.close()
            durable = tidelog.Database(NUMBERS, path=tmp_path)
            assert durable.opened is not None
            assert not durable.opened.rebuilt
            kernel_of(durable).check()
    durable.close()
    assert verify(tmp_path, deep=True).problems == ()
    assert seen["late"] > 0
    assert seen["deleted"] > 0


def test_another_bound_is_another_program(tmp_path: Path) -> None:
    with tidelog.Database(NUMBERS, path=tmp_path) as db:
        insert(db, (1, 1), (9, 1))
    shorter = PAIRS + ".retain event(at, 5)"
    with tidelog.Database(shorter, path=tmp_path, on_program_change="rebuild") as db:
        assert set(db.view("event")) == {(9, 1)}
        assert db.last_epoch.late == {"event": 1}
    with tidelog.Database(shorter, path=tmp_path) as db:
        assert set(db.view("event")) == {(9, 1)}
