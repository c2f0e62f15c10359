"""A small program under load: what each epoch changes follows from its number and a seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import tidelog
from tidelog.logic.program import Program
from tidelog.reference import evaluate

TEXT = """
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
.decl weight(x: symbol, kg: number)
.decl heavy(x: symbol, kg: number)
heavy(x, s) :- edge(x, _), s = sum kg : { weight(y, kg), reach(x, y) }.
.decl label(text: symbol)
label(cat(x, y)) :- edge(x, y), !edge(y, x).
edge("a", "b").
.decl share(x: symbol, part: number)
share(x, 1000 / kg) :- weight(x, kg).
"""
PROGRAM = Program.parse(TEXT)
TOWNS = [*"abcdefgh"]
Row = tuple[object, ...]
Facts = dict[str, set[Row]]
Contents = Mapping[str, frozenset[Row]]


def first_facts() -> Facts:
    """Return what is given at first."""
    return {"edge": {("b", "c"), ("c", "d")}, "weight": {("c", 3), ("d", 4)}}


def change(seed: int, epoch: int) -> tuple[Facts, Facts]:
    """Return what an epoch inserts and deletes; never both."""
    rng = Random(seed * 1_000_003 + epoch)
    inserted: Facts = {}
    deleted: Facts = {}
    for _ in range(rng.randint(0, 5)):
        row: Row
        if rng.random() < 0.7:
            name, row = "edge", (rng.choice(TOWNS), rng.choice(TOWNS))
        else:
            name, row = "weight", (rng.choice(TOWNS), rng.choice((1, 2, 10 ** rng.randint(1, 15))))
        into, other = (inserted, deleted) if rng.random() < 0.6 else (deleted, inserted)
        if row not in other.get(name, ()):
            into.setdefault(name, set()).add(row)
    return inserted, deleted


def after(seed: int, facts: Facts, epoch: int) -> Facts:
    """Return the facts after an epoch."""
    inserted, deleted = change(seed, epoch)
    return {
        name: (rows - deleted.get(name, set())) | inserted.get(name, set())
        for name, rows in facts.items()
    }


def facts_at(seed: int, epoch: int) -> Facts:
    """Return the facts of an epoch."""
    facts = first_facts()
    for number in range(1, epoch + 1):
        facts = after(seed, facts, number)
    return facts


def commit(db: tidelog.Database, seed: int) -> int:
    """Commit the next epoch; return its number."""
    inserted, deleted = change(seed, db.epoch + 1)
    with db.transaction() as tx:
        for name, rows in inserted.items():
            tx.insert(name, rows)
        for name, rows in deleted.items():
            tx.delete(name, rows)
    return db.epoch


def refuse(db: tidelog.Database) -> None:
    """Try an epoch that cannot be computed, with names that nobody knows."""
    inserted, _ = change(0, db.epoch + 1)
    try:
        with db.transaction() as tx:
            tx.insert("edge", {*inserted.get("edge", ()), (f"e{db.epoch}", "a")})
            tx.insert("weight", [("a", 0)])
    except tidelog.EvaluationError:
        return
    raise AssertionError("it did not fail")


def expected(facts: Facts) -> Contents:
    """Return what views must hold, by the reference."""
    return evaluate(PROGRAM, facts)


def compare(
    held: tidelog.Database | tidelog.DatabaseReader | tidelog.Past, contents: Contents, what: str
) -> None:
    """Assert that all views hold what they must."""
    for name, rows in contents.items():
        assert frozenset(held.view(name)) == rows, f"{what}: rows of {name}"
