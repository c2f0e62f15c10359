"""Joins of several relations, maintained by delta joins and by traces, one changed row at a time.

triangle         a power-law graph; most changes concern the trace, so delta joins are right
4-cycle          a sparse graph, the same
small relation   f(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z), where rows of `r` come and go that
                 two of the other atoms have in many rows, and all three in none
complement       v(x, y) :- p(x), t(x, y), !s(x, y), where rows of `p` come and go, and `s` has
                 nearly all rows of `t`: a trace skips them, a delta join looks up each

Other cases count operations, and say nothing about time: those of an update for each edit of the
trace (bench/trace_operations.py), as the data grows. `--plot` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tidelog.bench.model import (
    OURS,
    BenchCase,
    Figure,
    NotMeasuredError,
    Plot,
    Request,
    Suite,
    SuiteFigures,
    Target,
)
from tidelog.bench.ours import Changes, Fact, Facts, bootstrap, bootstrap_figure, change
from tidelog.bench.report import number_text
from tidelog.bench.trace_operations import (
    BENCH_RULES,
    FOUR_CYCLE,
    HOT,
    SMALL_RELATION,
    TRIANGLE,
    power_law,
    small_relation,
    sparse_graph,
    updates,
)
from tidelog.values.types import Row

BY_CLOCK, BY_DELTA, BY_TRACE = "by the clock", "delta joins", "trace"
FORCED = {
    BY_CLOCK: "",
    BY_DELTA: '.view v(strategy="counting")',
    BY_TRACE: '.view v(strategy="leapfrog")',
}
ONE = "one row"
_MOST = 8.0  # operations for each edit, and for each step of a binary search


def _edges(
    make: Callable[[int], list[tuple[int, int]]], size: int, rounds: int
) -> tuple[Facts, list[Fact]]:
    edges = make(size)
    rng = np.random.default_rng(2)
    return {"e": edges}, [("e", edges[i]) for i in rng.integers(0, len(edges), rounds).tolist()]


def _small_relation(size: int, rounds: int) -> tuple[Facts, list[Fact]]:
    facts = small_relation(size)
    rng = np.random.default_rng(2)
    return facts, [("r", (z,)) for z in rng.integers(0, HOT, rounds).tolist()]


COMPLEMENT = """
.decl p(x: number)
.decl t(x: number, y: number)
.decl s(x: number, y: number)
.decl v(x: number, y: number)
v(x, y) :- p(x), t(x, y), !s(x, y).
"""
_NODES, _LACKING = 10, 5  # values of x; values of y that each of them lacks


def _complement(size: int, rounds: int) -> tuple[Facts, list[Fact]]:
    rng = np.random.default_rng(2)
    values = size // _NODES
    lacking = {(x, y) for x in range(_NODES) for y in rng.integers(0, values, _LACKING).tolist()}
    rows = [(x, y) for x in range(_NODES) for y in range(values)]
    facts: dict[str, list[Row]] = {
        "p": [(x,) for x in range(_NODES)],
        "t": rows,
        "s": [row for row in rows if row not in lacking],
    }
    return facts, [("p", (x,)) for x in rng.integers(0, _NODES, rounds).tolist()]


_WORKLOADS: dict[str, tuple[str, Callable[[int, int], tuple[Facts, list[Fact]]]]] = {
    "triangle": (TRIANGLE.program, partial(_edges, power_law)),
    "4-cycle": (FOUR_CYCLE.program, partial(_edges, sparse_graph)),
    "small relation": (SMALL_RELATION.program, _small_relation),
    "complement": (COMPLEMENT, _complement),
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


def _count(name: str, request: Request) -> Iterator[Figure]:
    """Yield the worst ratio of operations to edits, by the size of the data."""
    sizes = (1_000, 10_000, 100_000, 1_000_000) if request.is_full else (1_000, 4_000)
    for size in sizes:
        epochs = (40 if size < 1_000_000 else 12) if request.is_full else 6
        found = list(updates(BENCH_RULES[name], size, epochs))
        worst = max(found, key=lambda update: update.ratio)
        edits, first = (sum(u.edits for u in found), sum(u.first_edits for u in found))
        stops = f"; all {edits:,} edits, {first:,} if joins stopped at a witness"
        yield Figure(
            f"{size:,} rows",
            note=f"worst of {len(found)} updates: {number_text(worst.ratio)} operations for an edit"
            f" and a step, {worst.operations:,} operations for {worst.edits:,} edits"
            f"{stops if first != edits else ''}",
            point=(worst.rows, worst.ratio),
        )


def data_set(name: str, way: str) -> str:
    """Return the name of a workload that is maintained in some way."""
    return f"{name}, {way}"


def _cases() -> Iterator[BenchCase]:
    for name in _WORKLOADS:
        for way in FORCED:
            yield BenchCase(OURS, partial(_measure, name, way), data_set(name, way))
    for name in BENCH_RULES:
        yield BenchCase(OURS, partial(_count, name), operations(name))


def operations(name: str) -> str:
    """Return the name of a data set on which operations are counted."""
    return f"operations, {name}"


def _median(found: SuiteFigures, name: str, way: str) -> float:
    return found.seconds(f"{ONE}, median", data_set(name, way))


def _ratio(name: str, one: str, other: str, found: SuiteFigures) -> float:
    return _median(found, name, one) / _median(found, name, other)


def _worst_against_delta_joins(found: SuiteFigures) -> float:
    return max(_ratio(name, BY_CLOCK, BY_DELTA, found) for name in _WORKLOADS)


def _worst_ratio(found: SuiteFigures) -> float:
    points = [
        figure.point for outcome in found.outcomes for figure in outcome.figures if figure.point
    ]
    if not points:
        raise NotMeasuredError
    return max(y for _, y in points)


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
            "the clock's choice against delta joins, worst workload",
            1.5,
            "x",
            _worst_against_delta_joins,
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
        Target("operations for an edit and a step, worst", _MOST, "", _worst_ratio),
    ),
    Plot(
        "Operations of an update of a trace, for each edit of the trace",
        "rows that the rule reads",
        "operations / ((edits + 1) log₂ rows), worst update",
        _MOST,
    ),
)
