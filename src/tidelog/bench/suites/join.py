"""A view that joins two relations, changed by one row at a time: the cost of a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from tidelog.bench import differential
from tidelog.bench.facts import Pair
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import Changes, bootstrap, bootstrap_figure, change

PROGRAM = """
.decl r(a: number, b: number)
.decl s(b: number, c: number)
.decl v(a: number, c: number)
v(a, c) :- r(a, b), s(b, c).
"""
STRATA_PROGRAM = f"""{PROGRAM}
.decl n(c: number, x: number)
.decl w(c: number, x: number)
n(c, x) :- v(_, c), x = count : {{ v(_, c) }}.
w(c, x + 1) :- n(c, x), !s(_, c).
"""

ONE = "one row"
SMALLER, LARGER = "small sides", "sides 10 times as large"
STRATA = "three strata"


def _pairs(size: int, rng: random.Random) -> list[Pair]:
    """Return pairs over a domain in which a row of one side joins one of the other."""
    return [(rng.randrange(size), rng.randrange(size)) for _ in range(size)]


def _data(factor: int, request: Request) -> tuple[list[Pair], list[Pair], list[Pair], str]:
    """Return the rows of both sides, the rows to insert and delete, and what a bootstrap is of."""
    size = factor * (100_000 if request.is_full else 10_000)
    rng = random.Random(5)
    r, s = _pairs(size, rng), _pairs(size, rng)
    given = set(r)
    more = [
        (rng.randrange(size), rng.randrange(size)) for _ in range(500 if request.is_full else 100)
    ]
    new = [row for row in more if row not in given]
    return r, s, new, f"bootstrap of {size:,} rows each side"


def _measure(factor: int, request: Request, program: str = PROGRAM) -> Iterator[Figure]:
    r, s, new, what = _data(factor, request)
    database, seconds = bootstrap(program, {"r": r, "s": s})
    yield bootstrap_figure(database, seconds, what)
    changes = Changes()
    for row in new:
        changes.add(database, change(database, inserted=[("r", row)]))
        changes.add(database, change(database, deleted=[("r", row)]))
    yield from changes.figures(ONE, shares=(50, 99, 100))


def _differential(factor: int, request: Request) -> Iterator[Figure]:
    r, s, new, what = _data(factor, request)
    rows = [*((0, row) for row in r), *((1, row) for row in s)]
    changes = [(0, row) for row in new]
    yield from differential.measure("join", rows, changes, "insert", (what, ONE))


SUITE = Suite(
    "join",
    "a view of two joined relations: transactions of one row through the Python API",
    (
        *(
            BenchCase(engine, partial(measure, factor), sides, commands=commands)
            for factor, sides in ((1, SMALLER), (10, LARGER))
            for engine, measure, commands in (
                (OURS, _measure, ()),
                (differential.NAME, _differential, differential.TOOLS),
            )
        ),
        BenchCase(OURS, partial(_measure, 10, program=STRATA_PROGRAM), STRATA),
    ),
    (
        Target(
            "one row, median, larger sides",
            40.0,
            " µs",
            lambda found: found.seconds(f"{ONE}, median", LARGER) * 1e6,
        ),
        Target(
            "one row, median, three strata",
            60.0,
            " µs",
            lambda found: found.seconds(f"{ONE}, median", STRATA) * 1e6,
        ),
        Target(
            "one row, p99, against the median",
            3.0,
            "x",
            lambda found: (
                found.seconds(f"{ONE}, p99", LARGER) / found.seconds(f"{ONE}, median", LARGER)
            ),
        ),
        Target(
            "one row, the worst of a thousand, against the median",
            30.0,
            "x",
            lambda found: (
                found.seconds(f"{ONE}, worst", LARGER) / found.seconds(f"{ONE}, median", LARGER)
            ),
        ),
        Target(
            "one row, median, 10 times the data",
            1.5,
            "x",
            lambda found: (
                found.seconds(f"{ONE}, median", LARGER) / found.seconds(f"{ONE}, median", SMALLER)
            ),
        ),
    ),
)
