"""A view that joins two relations, changed by one row at a time: the cost of a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from tidelog.bench.facts import Pair
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import Changes, bootstrap, bootstrap_figure, change

PROGRAM = """
.decl r(a: number, b: number)
.decl s(b: number, c: number)
.decl v(a: number, c: number)
v(a, c) :- r(a, b), s(b, c).
"""

ONE = "one row"
SMALLER, LARGER = "small sides", "sides 10 times as large"


def _pairs(size: int, rng: random.Random) -> list[Pair]:
    """Return pairs over a domain in which a row of one side joins one of the other."""
    return [(rng.randrange(size), rng.randrange(size)) for _ in range(size)]


def _measure(factor: int, request: Request) -> Iterator[Figure]:
    size = factor * (100_000 if request.is_full else 10_000)
    rng = random.Random(5)
    r, s = _pairs(size, rng), _pairs(size, rng)
    database, seconds = bootstrap(PROGRAM, {"r": r, "s": s})
    figure = bootstrap_figure(database, seconds, f"bootstrap of {size:,} rows each side")
    yield figure
    given = set(r)
    changes = Changes()
    for _ in range(500 if request.is_full else 100):
        row = (rng.randrange(size), rng.randrange(size))
        if row not in given:
            changes.add(database, change(database, inserted=[("r", row)]))
            changes.add(database, change(database, deleted=[("r", row)]))
    yield from changes.figures(ONE)


SUITE = Suite(
    "join",
    "a view of two joined relations: transactions of one row through the Python API",
    (
        BenchCase(OURS, partial(_measure, 1), SMALLER),
        BenchCase(OURS, partial(_measure, 10), LARGER),
    ),
    (
        Target(
            "one row, median, larger sides",
            200.0,
            " µs",
            lambda found: found.seconds(f"{ONE}, median", LARGER) * 1e6,
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
