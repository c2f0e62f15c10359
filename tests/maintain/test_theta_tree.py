"""Inequality joins that are not stored: contents, net changes and reads, against the reference."""

from __future__ import annotations

import random

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
    try:
        expected = evaluate(program, case.facts)
        engine = KernelEngine(program, case.facts)
    except tidelog.DataError:
        return
    rng = random.Random(case.seed)
    for name, rows in expected.items():
        reader, ordered = engine.reader(name), sorted(rows)
        assert list(reader.rows()) == ordered
        assert len(reader) == len(rows)
        assert reader.to_arrow().num_rows == len(rows)
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
