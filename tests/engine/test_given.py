"""Given rows that come and go by ones and twos, among values that need wider and wider columns."""

from __future__ import annotations

import random

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of

PROGRAM = """
.decl r(a: number, b: number)
.decl s(b: number)
.decl v(a: number, b: number)
v(a, b) :- r(a, b), s(b).
"""


def value(rng: random.Random, epoch: int) -> int:
    """Return a number that needs more bits the more epochs there were, now and then a negative."""
    bits = min(63, 1 + epoch // 2)
    return rng.choice((1, 1, -1)) * rng.randrange(1 << rng.randrange(bits + 1))


@pytest.mark.parametrize("number", range(20))
def test_few_rows_and_columns_that_widen(number: int) -> None:
    rng = seeded("few rows", number)
    database = tidelog.Database(PROGRAM)
    held: dict[str, set[tuple[int, ...]]] = {"r": set(), "s": set()}
    for epoch in range(120):
        asked = {}
        for name, arity in (("r", 2), ("s", 1)):
            new = {tuple(value(rng, epoch) for _ in range(arity)) for _ in range(rng.randrange(3))}
            known = rng.sample(sorted(held[name]), min(len(held[name]), rng.randrange(3)))
            strange = {tuple(value(rng, epoch) for _ in range(arity))} if rng.random() < 0.1 else ()
            asked[name] = (new - set(known), (set(known) | set(strange)) - new)
        with database.transaction() as tx:
            for name, (adds, removes) in asked.items():
                tx.insert(name, sorted(adds))
                tx.delete(name, sorted(removes))
        for name, (adds, removes) in asked.items():
            came, went = adds - held[name], removes & held[name]
            change, ignored = tx.changes[name], tx.ignored.get(name)
            assert (set(change.inserted), set(change.deleted)) == (came, went)
            assert (len(change.inserted), len(change.deleted)) == (len(came), len(went))
            assert (ignored.inserted if ignored else set()) == adds - came
            assert (ignored.deleted if ignored else set()) == removes - went
            held[name] = (held[name] | came) - went
            assert list(database.view(name)) == sorted(held[name])
        assert set(database.view("v")) == {row for row in held["r"] if row[1:] in held["s"]}


def test_one_row_that_is_wider_among_rows_that_go() -> None:
    database = tidelog.Database(PROGRAM, facts={"r": [(1, 1), (2, 2), (3, 3)]})
    with database.transaction() as tx:
        tx.insert("r", [(-(2**40), 2**50)])
        tx.delete("r", [(1, 1), (2, 2)])
    assert list(database.view("r")) == [(-(2**40), 2**50), (3, 3)]


def test_a_row_of_a_run_that_has_no_marks_yet() -> None:
    rows = [(i, i % 7) for i in range(2000)]  # large enough to begin without marks
    database = tidelog.Database(PROGRAM, facts={"r": rows, "s": [(i,) for i in range(7)]})
    with database.transaction() as tx:
        tx.delete("s", [(3,)])
    with database.transaction() as tx:
        tx.delete("r", [(11, 4)])
    assert set(database.view("v")) == {row for row in rows if row[1] != 3 and row != (11, 4)}
    kernel_of(database).check()
