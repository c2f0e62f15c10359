"""The front end and the reference engine: to notice regressions."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tidelog.bench.facts import random_graph
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite
from tidelog.bench.suites.closure import PROGRAM


def _many_rules(request: Request) -> Iterator[Figure]:
    """Check a program of a thousand rules."""
    from tidelog.logic.program import Program

    count = 1000 if request.is_full else 200
    lines = [".decl edge(x: number, y: number)", ".decl p0(x: number, y: number)"]
    for i in range(count):
        lines.append(f".decl p{i + 1}(x: number, y: number)")
        lines.append(f"p{i + 1}(x, z) :- p{i}(x, y), edge(y, z), x != z, !edge(z, x).")
    start = time.perf_counter()
    program = Program.parse("\n".join(lines))
    yield Figure("check a program", time.perf_counter() - start, note=f"{len(program.rules)} rules")


def _reference(request: Request) -> Iterator[Figure]:
    """Evaluate a closure on the reference engine."""
    import tidelog

    edges = random_graph(600, 700, 1) if request.is_full else random_graph(200, 220, 1)
    program = tidelog.Program.parse(PROGRAM)
    start = time.perf_counter()
    database = tidelog.Database(program, facts={"edge": set(edges)}, engine="reference")
    yield Figure("closure", time.perf_counter() - start, len(database.view("path")))


SUITE = Suite(
    "language",
    "checking a large program, and a closure on the reference engine",
    (BenchCase(OURS, _many_rules, "front end"), BenchCase(OURS, _reference, "reference engine")),
)
