"""Context-sensitive points-to analysis of a C program: mutual recursion."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.bench.facts import read_pairs
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite
from tidelog.bench.ours import all_facts, bootstrap, bootstrap_figure, delete_and_insert

PROGRAM = """
.decl assign(x: number, y: number)
.decl dereference(x: number, y: number)
.decl value_flow(x: number, y: number)
.decl value_alias(x: number, y: number)
.decl memory_alias(x: number, y: number)
value_flow(y, x) :- assign(y, x).
value_flow(x, y) :- assign(x, z), memory_alias(z, y).
value_flow(x, y) :- value_flow(x, z), value_flow(z, y).
value_flow(x, x) :- assign(x, _).
value_flow(x, x) :- assign(_, x).
memory_alias(x, w) :- dereference(y, x), value_alias(y, z), dereference(z, w).
memory_alias(x, x) :- assign(_, x).
memory_alias(x, x) :- assign(x, _).
value_alias(x, y) :- value_flow(z, x), value_flow(z, y).
value_alias(x, y) :- value_flow(z, x), memory_alias(z, w), value_flow(w, y).
"""

NAMES = ("assign", "dereference")


def _measure(request: Request) -> Iterator[Figure]:
    facts = {
        name: sorted(set(read_pairs(request.folder("pointsto") / f"{name}.tsv.gz")))
        for name in NAMES
    }
    if not request.is_full:
        rng = random.Random(51)
        facts = {name: rng.sample(rows, len(rows) // 10) for name, rows in facts.items()}
    database, whole = bootstrap(PROGRAM, facts)
    yield bootstrap_figure(database, whole)
    rounds = 20 if request.is_full else 5
    changes = delete_and_insert(database, all_facts(facts), 10, rounds, seed=52)
    yield from changes.figures("ten facts", whole)


SUITE = Suite(
    "pointsto",
    "points-to analysis of a C program (needs facts): bootstrap, then ten facts changed",
    (BenchCase(OURS, _measure, files=tuple(f"pointsto/{name}.tsv.gz" for name in NAMES)),),
)
