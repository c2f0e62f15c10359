"""Inequality joins that are not stored: contents, net changes and reads, against the reference."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.generators.inequality_joins import inequality_case
from tests.generators.programs import RandomCase, check_cases
from tests.maintain.comparing import Comparison
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.reference import evaluate

PROGRAMS = sample(100, 4000)


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, 25, offset=910_000))
def test_random_joins(seeds: range) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, inequality_case)
    print(dict(comparison.seen))
    assert comparison.seen["theta-tree: update"] > len(seeds) / 2


@pytest.mark.parametrize("seeds", seed_blocks(sample(50, 2000), 25, offset=920_000))
def test_reads(seeds: range) -> None:
    check_cases(seeds, _check_reads, inequality_case)


def _check_reads(case: RandomCase) -> None:
    """Compare every way to read a view with the rows of the reference."""
    program = Program.parse(case.program)
    rng = random.Random(case.seed)
    facts = dict(case.facts)
    try:
        if rng.random() < 0.5:
            facts |= _also_given(evaluate(program, facts), rng)
        expected = evaluate(program, facts)
        engine = KernelEngine(program, facts)
    except tidelog.DataError:
        return
    for name, rows in expected.items():
        reader, ordered = engine.reader(name), sorted(rows)
        assert list(reader.rows()) == ordered
        assert len(reader) == len(rows)
        assert sorted(_rows(reader.to_arrow().to_batches())) == ordered
        shares = [_rows(reader.batches(part, 3)) for part in range(3)]
        assert sorted(chain.from_iterable(shares)) == ordered
        width = len(program.relations[name].columns)
        if not rows:
            continue
        for _ in range(3):
            row = rng.choice(ordered)
            assert row in reader
            other = tuple(rng.choice(ordered)[column] for column in range(width))
            assert (other in reader) == (other in rows)
            start = row[: rng.randint(1, width)]
            assert reader.prefix(start) == [r for r in ordered if r[: len(start)] == start]
            low, high = sorted((rng.choice(ordered)[:1], rng.choice(ordered)[:1]))
            assert reader.range(low, high) == [r for r in ordered if low <= r[:1] < high]
            column = rng.randrange(width)
            wanted = [r for r in ordered if r[column] == row[column]]
            assert reader.where({column: row[column]}) == wanted


def _also_given(
    derived: Mapping[str, frozenset[tuple[Any, ...]]], rng: random.Random
) -> dict[str, frozenset[tuple[Any, ...]]]:
    """Return rows to give to the first view: some that are derived, and some that need not be."""
    rows = sorted(derived["v0"])
    mixed = [tuple(rng.choice(rows)[c] for c in range(len(rows[0]))) for _ in rows[:3]]
    return {"v0": frozenset([*rows[:2], *mixed])}


def _rows(batches: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Return the rows of batches; timestamps without their zone."""

    def plain(value: Any) -> Any:
        return value.replace(tzinfo=None) if isinstance(value, datetime) else value

    rows = (row.values() for batch in batches for row in batch.to_pylist())
    return [tuple(map(plain, row)) for row in rows]


def test_an_equality_below_the_output_that_the_head_needs() -> None:
    """The head determines b only by `a = b`, which a reduct tests; found by a random program."""
    program = """
        .decl r(a: number, b: number)
        .decl t(a: number, b: number, c: number)
        .decl v(d: number, e: number, c: number, a: number, x: number)
        v(d, e, c, a, b + b) :- r(a, b), t(c, a, d), t(e, _, d), b != d, a = b.
        """
    facts = {"r": [(1, 1), (1, 2), (3, 3)], "t": [(5, 1, 7), (6, 3, 7), (6, 3, 3)]}
    database = tidelog.Database(program, facts=facts, engine="kernel")
    expected = evaluate(Program.parse(program), {n: frozenset(rows) for n, rows in facts.items()})
    assert set(database.view("v")) == expected["v"] != frozenset()


def test_rules_are_united() -> None:
    """A row that several rules derive is one row, and stays as long as one of them derives it."""
    database = tidelog.Database(
        """
        .decl r(x: number)
        .decl s(y: number)
        .decl t(x: number, y: number)
        .decl v(x: number, y: number)
        v(x, y) :- r(x), s(y), x < y.
        v(x, y) :- r(x), s(y), x + 2 > y, x != y.
        v(x, y) :- t(x, y).
        """,
        facts={"r": [(1,), (5,)], "s": [(2,), (6,)], "t": [(1, 2), (9, 9)]},
        engine="kernel",
    )
    assert "maintained by theta-tree" in database.explain("v")
    assert list(database.view("v")) == [(1, 2), (1, 6), (5, 2), (5, 6), (9, 9)]
    assert len(database.view("v")) == 5
    assert (1, 2) in database.view("v")
    with database.transaction() as transaction:
        transaction.delete("t", [(1, 2), (9, 9)])
        transaction.insert("s", [(4,)])
    assert list(transaction.changes["v"].deleted) == [(9, 9)]
    assert list(transaction.changes["v"].inserted) == [(1, 4), (5, 4)]
    with database.transaction() as transaction:
        transaction.delete("s", [(2,)])
    assert list(transaction.changes["v"].deleted) == [(1, 2), (5, 2)]
    assert database.view("v").prefix(5) == [(5, 4), (5, 6)]


def test_texts_are_compared_without_storing_pairs() -> None:
    database = tidelog.Database(
        """
        .decl r(k: number, x: symbol)
        .decl v(k: number, x: symbol, y: symbol)
        v(k, x, y) :- r(k, x), r(k, y), x < y.
        .decl w(x: symbol, z: symbol)
        w(x, z) :- v(k, x, z), v(k, _, z), x >= "b".
        """,
        facts={"r": [(1, "c"), (1, "a"), (1, "b"), (2, "z"), (2, "b")]},
        engine="kernel",
    )
    assert "maintained by theta-tree" in database.explain("v")
    assert list(database.view("v")) == [
        (1, "a", "b"), (1, "a", "c"), (1, "b", "c"), (2, "b", "z"),
    ]  # fmt: skip
    with database.transaction() as transaction:
        transaction.insert("r", [(2, "y")])
        transaction.delete("r", [(1, "a")])
    assert list(transaction.changes["v"].inserted) == [(2, "b", "y"), (2, "y", "z")]
    assert list(transaction.changes["v"].deleted) == [(1, "a", "b"), (1, "a", "c")]
    assert len(database.view("v")) == 4
    assert database.view("v").to_arrow().num_rows == 4
    assert list(database.view("w")) == [("b", "c"), ("b", "y"), ("b", "z"), ("y", "z")]


def test_a_value_that_is_computed_twice() -> None:
    """The second computation is an equality, and no part of the comparison with the first."""
    program = (
        ".decl a(x: set(number))\n.decl b(x: number)\n.decl p(x: number)\n"
        "p(n) :- a(v), a(w), b(n), u != v, u = v, u = max(w, v).\n"
        ".decl c(x: number)\n.decl q(x: number)\n"
        "q(n) :- c(v), c(w), b(n), u > 1, u = v, u = max(w, v).\n"
    )
    database = tidelog.Database(program, facts={"b": [(7,)], "c": [(1,)]})
    assert not database.view("p")
    assert not database.view("q")
    with database.transaction() as transaction:
        transaction.insert("c", [(2,)])
    assert set(database.view("q")) == {(7,)}
