"""Aggregates over inequality joins without pairs: against the reference, and what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.generators.programs import Row, check_cases
from tests.generators.ranged_aggregates import ranged_case
from tests.maintain.comparing import Comparison
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.database.database import kernel_of
from tidelog.logic.program import Program
from tidelog.reference import evaluate

PROGRAMS = sample(75, 4000)
Rows = dict[str, set[Row]]
GIVEN = """
.decl a(k: number, x: number)
.decl b(k: number, y: number)
.decl c(k: number, y: number, w: float)
.decl v(k: number, x: number, m: number)
"""


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, 25, offset=930_000))
def test_random_aggregates(seeds: range) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, ranged_case)
    print(dict(comparison.seen))
    assert comparison.seen["nearest: update"] > len(seeds) / 4
    assert comparison.seen["range sums: update"] > len(seeds) / 4


@pytest.mark.parametrize(
    ("braces", "strategy"),
    [
        ("max y : { b(k, y), y < x }", "nearest"),
        ("min y : { b(k, y), x <= y, y < x + 10 }", "nearest"),
        ("max y : { b(_, y), y < x, y != 3 }", "nearest"),
        ("max y : { c(k, y, _), y < x }", "nearest"),
        ("max y + 1 : { b(k, y), y < x }", "extremes"),
        ("max y : { b(k, y), y != x }", "extremes"),
        ("count : { b(k, y), y < x }", "range sums"),
        ("sum y : { b(k, y), y < x, y > x - 9 }", "range sums"),
        ("count : { c(k, y, w), y < x, w > 1.0 }", "range sums"),
        ("count : { c(k, y, w), y < x, y > k }", "range sums"),
        ("sum y + 1 : { b(k, y), y < x }", "sums"),
        ("count : { b(k, y), a(y, z), y < x }", "sums"),
    ],
)
def test_which_are_ranged(braces: str, strategy: str) -> None:
    database = tidelog.Database(f"{GIVEN} v(k, x, m) :- a(k, x), m = {braces}.", engine="kernel")
    names = [layer.strategy for layer in database.last_epoch.layers]
    assert strategy in names
    assert ("nearest" in names or "range sums" in names) == (strategy in ("nearest", "range sums"))


def test_no_pairs_are_stored_and_one_row_touches_its_neighbour_only() -> None:
    size = 2000
    database = tidelog.Database(
        f"{GIVEN} v(k, x, m) :- a(k, x), m = max y : {{ b(k, y), y < x }}.",
        facts={
            "a": [(1, 10 * i) for i in range(size)],
            "b": [(1, 10 * i + 5) for i in range(size)],
        },
        engine="kernel",
    )
    assert sum(database.memory.values()) < 100 * size
    for inserted, deleted in (([(1, 507)], []), ([], [(1, 507)]), ([], [(1, 505)])):
        with database.transaction() as tx:
            tx.insert("b", inserted)
            tx.delete("b", deleted)
        assert len(tx.changes["v"].inserted) == len(tx.changes["v"].deleted) == 1
        touched = sum(layer.touched for layer in database.last_epoch.layers)
        assert touched < 10


def test_a_count_of_many_pairs_costs_no_enumeration() -> None:
    size = 3000
    database = tidelog.Database(
        """
        .decl a(x: number)  .decl b(y: number)
        .decl n(n: number, s: number, m: float)
        n(n, s, m) :-
            n = count : { a(x), b(y), x < y }, s = sum y : { a(x), b(y), x < y },
            m = mean x : { a(x), b(y), x < y }.
        """,
        facts={"a": [(i,) for i in range(size)], "b": [(i,) for i in range(size)]},
        engine="kernel",
    )
    pairs = size * (size - 1) // 2
    total = sum(y * y for y in range(size))
    below = sum(x * (size - 1 - x) for x in range(size))
    assert list(database.view("n")) == [(pairs, total, below / pairs)]
    with database.transaction() as tx:
        tx.insert("b", [(size,)])
        tx.delete("a", [(7,)])
    pairs, total = pairs + size - (size - 1 - 7) - 1, total + size * size
    total -= sum(range(8, size + 1))
    ((found, found_total, _),) = database.view("n")
    assert (found, found_total) == (pairs, total)
    assert sum(layer.touched for layer in database.last_epoch.layers) < 20


def test_sums_beyond_64_bits() -> None:
    """Parts of a sum may be larger than the sum, and larger than its type."""
    huge = 2**62
    database = tidelog.Database(
        ".decl a(x: number)  .decl b(y: number)  .decl s(s: number)\n"
        "s(s) :- s = sum y : { a(x), b(y), x > y }.",
        facts={"a": [(huge + i,) for i in range(1, 9)], "b": [(huge,), (-huge,)]},
        engine="kernel",
    )
    assert list(database.view("s")) == [(0,)]
    with pytest.raises(tidelog.EvaluationError, match="the sum of 24 values overflows"):
        _apply(database, {"b": {(huge - 1,)}}, {})
    _apply(database, {"b": {(-5,)}}, {})
    assert list(database.view("s")) == [(-40,)]


@pytest.mark.parametrize("number", range(sample(3, 60)))
def test_reopened(number: int, tmp_path: Path) -> None:
    """A durable database goes on with what it has stored."""
    rng = seeded(__name__, number)
    case = ranged_case(rng.randrange(10**6))
    program = Program.parse(case.program)
    held: dict[str, set[Row]] = {name: set() for name in case.facts}
    first = {name: (rows, ()) for name, rows in case.facts.items()}
    for epoch in (first, *case.epochs):
        adds = {n: set(new) - set(old) for n, (new, old) in epoch.items()}
        removes = {n: set(old) - set(new) for n, (new, old) in epoch.items()}
        after = {n: (rows - removes.get(n, set())) | adds.get(n, set()) for n, rows in held.items()}
        with tidelog.Database(program, path=tmp_path) as database:
            try:
                expected = evaluate(program, after)
            except tidelog.EvaluationError:
                with pytest.raises(tidelog.EvaluationError):
                    _apply(database, adds, removes)
                continue
            _apply(database, adds, removes)
            held = after
            for name, rows in expected.items():
                assert set(database.view(name)) == rows
            kernel_of(database).check()
            if rng.random() < 0.5:
                database.snapshot()


def _apply(database: tidelog.Database, adds: Rows, removes: Rows) -> None:
    with database.transaction() as tx:
        for name, rows in adds.items():
            tx.insert(name, rows)
        for name, rows in removes.items():
            tx.delete(name, rows)
