"""Rows that come in columns do what the same rows do as tuples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.engine.protocol import NoObserver
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import CheckedRows, to_arrow

PROGRAM = """
.decl row(n: number, u: unsigned, f: float, s: symbol, b: bool, d: date, t: timestamp,
          m: decimal(9, 2))
.decl edge(x: number, s: symbol)
edge(0, "stated"). edge(1, "stated").
.decl linked(n: number, m: number)
linked(n, k) :- row(n, _, _, s, _, _, _, _), edge(k, s).
.decl reach(n: number, m: number)
reach(n, k) :- linked(n, k).
reach(n, k) :- reach(n, j), linked(j, k).
.decl sums(s: symbol, total: decimal(9, 2), most: float, rows: number)
sums(s, t, x, c) :- row(_, _, _, s, _, _, _, _), t = sum m : { row(_, _, _, s, _, _, _, m) },
    x = max f : { row(_, _, f, s, _, _, _, _) }, c = count : { row(_, _, _, s, _, _, _, _) }.
"""


def some_row(rng: Random, wide: bool) -> tuple[Any, ...]:
    far = rng.choice([1, 1, 10**6]) if wide else 1
    return (
        rng.randrange(5) * far, rng.choice([0, 1, 2**64 - 1]),
        rng.choice([0.0, -1.5, float("inf")]),
        rng.choice(["", "a", "stated", "ü\n"]), rng.random() < 0.5,
        rng.choice([dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
        rng.choice([dt.datetime(1969, 12, 31, 23, 59, 59, 1), dt.datetime(9999, 12, 31)]),
        Decimal(rng.randrange(-300, 300)).scaleb(-2),
    )  # fmt: skip


def some_edge(rng: Random, wide: bool) -> tuple[Any, ...]:
    far = 10**12 if wide and rng.random() < 0.1 else 1
    return (rng.randrange(4) * far, rng.choice(["a", "b", "stated"]))


MAKERS = {"row": some_row, "edge": some_edge}


def columns(program: tidelog.Program, name: str, rows: Iterable[Any]) -> CheckedTable:
    relation = program.relations[name]
    assert is_columnar(relation)
    table = to_arrow(rows, relation, program.records)
    pieces = [table.slice(0, 1), table.slice(1)]  # slices begin in the middle of buffers
    return CheckedTable(pa.concat_tables(pieces))


@pytest.mark.parametrize("durable", [False, True])
def test_histories_in_columns(tmp_path: Path, durable: bool) -> None:
    rng = seeded("histories in columns")
    program = tidelog.Program.parse(PROGRAM)
    first = {name: [make(rng, False) for _ in range(5)] for name, make in MAKERS.items()}
    facts = {name: columns(program, name, rows) for name, rows in first.items()}
    path = tmp_path / "state" if durable else None
    ours = tidelog.Database(program, facts=facts, path=path)
    oracle = tidelog.Database(program, facts=first, engine="reference")
    given = {name: set(rows) for name, rows in first.items()}
    assert set(ours.view("sums")) == set(oracle.view("sums"))
    for epoch in range(12):
        wide = epoch > 6
        with ours.transaction() as tx, oracle.transaction() as plain:
            for name, make in MAKERS.items():
                pool = sorted(given[name], key=str)
                more = [make(rng, wide) for _ in range(rng.randrange(6))] * rng.randrange(1, 3)
                less = [rng.choice([make(rng, wide), *pool]) for _ in range(rng.randrange(4))]
                less += more[: rng.randrange(2)]  # stays as it was
                tx.insert(name, columns(program, name, more) if rng.random() < 0.9 else more)
                tx.delete(name, columns(program, name, less) if rng.random() < 0.9 else less)
                if rng.random() < 0.2:
                    tx.insert(name, columns(program, name, more))
                plain.insert(name, CheckedRows(more))
                plain.delete(name, CheckedRows(less))
                given[name] |= set(more) - set(less)
                given[name] -= set(less) - set(more)
        for name in program.relations:
            assert set(ours.view(name)) == set(oracle.view(name)), name
            assert set(tx.changes[name].inserted) == set(plain.changes[name].inserted), name
            assert set(tx.changes[name].deleted) == set(plain.changes[name].deleted), name
        mine, theirs = ours.last_epoch, oracle.last_epoch
        assert (mine.given_inserted, mine.given_deleted) == (
            theirs.given_inserted, theirs.given_deleted,
        )  # fmt: skip
        fresh = tidelog.Database(program, facts=given)
        kernel, anew = kernel_of(ours), kernel_of(fresh)
        for name in program.relations:
            assert kernel.levels_and_counts(name) == anew.levels_and_counts(name), name
        kernel.check()
    if durable:
        ours.close()
        with tidelog.Database(program, path=path) as again:
            for name in program.relations:
                assert set(again.view(name)) == set(oracle.view(name)), name


def test_an_epoch_in_columns_that_fails_leaves_no_trace() -> None:
    program = tidelog.Program.parse(PROGRAM)
    rng = seeded("an epoch in columns that fails leaves no trace")
    rows = [some_row(rng, False) for _ in range(9)]
    database = tidelog.Database(program, facts={"row": columns(program, "row", rows[:5])})
    engine = kernel_of(database)
    before = {name: engine.levels_and_counts(name) for name in program.relations}

    class Failing(NoObserver):
        def computed(self) -> None:
            raise OSError("the disk is full")

    engine.observer = Failing()
    wide = (10**15, *rows[7][1:])  # widens a domain before it fails
    with pytest.raises(OSError, match="the disk is full"), database.transaction() as tx:
        tx.insert("row", columns(program, "row", [*rows[5:], wide]))
        tx.delete("row", columns(program, "row", rows[:2]))
    assert {name: engine.levels_and_counts(name) for name in program.relations} == before
    engine.check()


def test_one_nan_comes_out_of_columns() -> None:
    nan = float("-nan")
    rows = CheckedTable(pa.table({"x": pa.array([nan, float("nan"), -0.0])}))
    program = ".decl p(x: float)\n"
    database = tidelog.Database(program, facts={"p": rows})
    assert len(database.view("p")) == 2
    assert len(set(rows)) == 2
    assert len(rows) == 3
    assert (0.0,) in rows


def test_changes_from_the_log_are_those_of_the_transaction(tmp_path: Path) -> None:
    rng = seeded("changes from the log are those of the transaction")
    program = tidelog.Program.parse(PROGRAM)
    database = tidelog.Database(program, path=tmp_path / "state")
    told: dict[str, list[tuple[int, list[Any], list[Any]]]] = {n: [] for n in program.relations}
    for epoch in range(1, 6):
        with database.transaction() as tx:
            for name, make in MAKERS.items():
                tx.insert(name, columns(program, name, [make(rng, True) for _ in range(4)]))
                tx.delete(name, [make(rng, False) for _ in range(2)])
        for name in program.relations:
            change = tx.changes[name]
            if change:
                told[name].append((epoch, list(change.inserted), list(change.deleted)))
        for name in program.relations:
            for since in (epoch - 1, 0):  # the last record in memory, and all of the log
                found = [
                    (e, list(c.inserted), list(c.deleted)) for e, c in database.changes(name, since)
                ]
                assert found == [entry for entry in told[name] if entry[0] > since]
                for (_, change), (_, inserted, deleted) in zip(
                    database.changes(name, since), found, strict=True
                ):
                    assert change.inserted.to_arrow().num_rows == len(inserted)
                    assert [tuple(r.values()) for r in change.deleted.to_arrow().to_pylist()] == (
                        deleted
                    )
    database.close()
