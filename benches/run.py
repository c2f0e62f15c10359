"""Timings of what exists today: the front end and the reference engine, on data made here.

These are for noticing a slip, not for comparing machines; `make bench` prints them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import tidelog
from tidelog.reference import evaluate

CLOSURE = """
.decl edge(x: number, y: number)
.decl path(x: number, y: number)
path(x, y) :- edge(x, y).
path(x, z) :- path(x, y), edge(y, z).
"""


def timed(what: str, work: Callable[[], str]) -> None:
    """Print how long `work` takes and what it says it did."""
    start = time.perf_counter()
    done = work()
    print(f"{what:<28} {time.perf_counter() - start:8.3f} s   {done}")


def many_rules() -> str:
    """Check a program of a thousand rules."""
    lines = [".decl edge(x: number, y: number)", ".decl p0(x: number, y: number)"]
    for i in range(1000):
        lines.append(f".decl p{i + 1}(x: number, y: number)")
        lines.append(f"p{i + 1}(x, z) :- p{i}(x, y), edge(y, z), x != z, !edge(z, x).")
    program = tidelog.Program.parse("\n".join(lines))
    return f"{len(program.rules):,} rules"


def closure() -> str:
    """Evaluate the transitive closure of a random graph."""
    rng = random.Random(1)
    edges = {(rng.randrange(600), rng.randrange(600)) for _ in range(700)}
    rows = evaluate(tidelog.Program.parse(CLOSURE), {"edge": edges})
    return f"{len(edges):,} edges, {len(rows['path']):,} paths"


if __name__ == "__main__":
    timed("check a large program", many_rules)
    timed("closure, reference engine", closure)
