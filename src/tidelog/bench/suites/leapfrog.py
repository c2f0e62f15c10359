"""Joins of several relations, maintained by delta joins and by traces, one changed row at a time.

triangle         a power-law graph; most changes concern the trace, so delta joins are right
small relation   f(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z), where rows of `r` come and go that
                 two of the other atoms have in many rows, and all three in none
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import Changes, Fact, Facts, bootstrap, bootstrap_figure, change
from tidelog.values.types import Row

TRIANGLE = """
.decl e(x: number, y: number)
.decl v(x: number, y: number, z: number)
v(x, y, z) :- e(x, y), e(y, z), e(x, z).
"""
SMALL_RELATION = """
.decl g(x: number, z: number)
.decl h(y: number, z: number)
.decl i(x: number, y: number, z: number)
.decl r(z: number)
.decl v(x: number, y: number)
v(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z).
"""
BY_CLOCK, BY_DELTA, BY_TRACE = "by the clock", "delta joins", "trace"
FORCED = {
    BY_CLOCK: "",
    BY_DELTA: '.view v(strategy="counting")',
    BY_TRACE: '.view v(strategy="leapfrog")',
}
ONE = "one row"
_HOT = 50  # values of z that are in g, h and i many times


def power_law(size: int, seed: int = 1) -> list[tuple[int, int]]:
    """Return about `size` distinct edges from smaller to larger nodes, with a few large hubs."""
    rng = np.random.default_rng(seed)
    nodes = size // 8
    weights = (np.arange(nodes) + 10.0) ** -0.6
    ends = rng.choice(nodes, (2, 3 * size), p=weights / weights.sum())
    ends = np.unique(ends[:, ends[0] < ends[1]], axis=1)
    chosen = rng.permutation(ends.shape[1])[:size]
    return list(map(tuple, ends[:, chosen].T.tolist()))


def _triangle(size: int, rounds: int) -> tuple[Facts, list[Fact]]:
    edges = power_law(size)
    rng = np.random.default_rng(2)
    return {"e": edges}, [("e", edges[i]) for i in rng.integers(0, len(edges), rounds).tolist()]


def _small_relation(size: int, rounds: int) -> tuple[Facts, list[Fact]]:
    rng = np.random.default_rng(1)
    n = size // _HOT
    hot = [(x, z) for z in range(_HOT) for x in range(n)]
    others = (2 * rng.integers(0, n, len(hot))).tolist()
    joined = [
        (x, 2 * y, z)
        for x, y, z in zip(
            *rng.integers(0, n, (2, n)).tolist(), rng.integers(100, 1000, n).tolist(), strict=True
        )
    ]
    facts: dict[str, list[Row]] = {
        "g": [*hot, *((x, z) for x, _, z in joined)],
        "h": [*((2 * y + 1, z) for y, z in hot), *((y, z) for _, y, z in joined)],
        "i": [*((x, y, z) for (x, z), y in zip(hot, others, strict=True)), *joined],
        "r": [(z,) for z in range(100, 1000, 7)],
    }
    distinct = {name: sorted(set(rows)) for name, rows in facts.items()}
    return distinct, [("r", (z,)) for z in rng.integers(0, _HOT, rounds).tolist()]


_WORKLOADS = {
    "triangle": (TRIANGLE, _triangle),
    "small relation": (SMALL_RELATION, _small_relation),
}


def _measure(name: str, way: str, request: Request) -> Iterator[Figure]:
    program, make = _WORKLOADS[name]
    size = 1_000_000 if request.is_full else 5_000
    facts, changed = make(size, 400 if request.is_full else 20)
    database, seconds = bootstrap(program + FORCED[way], facts)
    yield bootstrap_figure(database, seconds)
    changes = Changes()
    for fact in changed:
        is_there = fact[1] in database.view(fact[0])
        for deletes in (is_there, not is_there):
            took = change(database, [] if deletes else [fact], [fact] if deletes else [])
            changes.add(database, took)
    yield from changes.figures(ONE)
    report = database.last_epoch.layer("v")
    assert report is not None
    memory = database.memory
    read = sum(memory[relation] for relation in facts)
    note = f"v {memory['v'] / read:.2f} times the memory of what it reads; {report.why}"
    yield Figure("at last", note=f"{note}; {report.work}".rstrip("; "))


def data_set(name: str, way: str) -> str:
    """Return the name of a workload that is maintained in some way."""
    return f"{name}, {way}"


def _cases() -> Iterator[BenchCase]:
    for name in _WORKLOADS:
        for way in FORCED:
            yield BenchCase(OURS, partial(_measure, name, way), data_set(name, way))


def _median(found: SuiteFigures, name: str, way: str) -> float:
    return found.seconds(f"{ONE}, median", data_set(name, way))


def _ratio(name: str, one: str, other: str, found: SuiteFigures) -> float:
    return _median(found, name, one) / _median(found, name, other)


SUITE = Suite(
    "leapfrog",
    "joins of several relations, by delta joins and by traces: transactions of one row",
    tuple(_cases()),
    (
        Target(
            "triangle, one row, median",
            150.0,
            " µs",
            lambda found: 1e6 * _median(found, "triangle", BY_CLOCK),
        ),
        Target(
            "triangle, against delta joins",
            1.5,
            "x",
            partial(_ratio, "triangle", BY_CLOCK, BY_DELTA),
        ),
        Target(
            "small relation, delta joins against the trace",
            10.0,
            "x",
            partial(_ratio, "small relation", BY_DELTA, BY_TRACE),
            at_least=True,
        ),
        Target(
            "small relation, delta joins against the clock's choice",
            10.0,
            "x",
            partial(_ratio, "small relation", BY_DELTA, BY_CLOCK),
            at_least=True,
        ),
    ),
)
