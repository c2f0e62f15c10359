"""Traces that skip: complements and windows inside a join, by their results and operations."""

from __future__ import annotations

import math

import pytest

import tidelog
from tests.maintain.test_leapfrog import only_trace
from tests.samples import sample
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.join.trace import RuleTrace
from tidelog.plan.steps import Absent, Compute, Leap, Window
from tidelog.store.versions import Version

MISSING = """
.decl p(x: number)
.decl t(x: number, y: number)
.decl s(x: number, y: number)
.decl v(x: number, y: number)
v(x, y) :- p(x), t(x, y), !s(x, y).
"""
SUBSET = """
.decl p(x: number)
.decl t(x: number, y: number)
.decl m(y: number)
.decl s(x: number, y: number)
.decl v(x: number, y: number)
s(x, y) :- t(x, y), m(y).
v(x, y) :- p(x), t(x, y), !s(x, y).
"""
BETWEEN = """
.decl p(k: number, low: number, high: number)
.decl t(k: number, y: number)
.decl q(y: number)
.decl v(k: number, y: number)
v(k, y) :- p(k, low, high), t(k, y), q(y), low <= y, y < high.
"""


def steps_of(db: tidelog.Database) -> tuple[list[Leap], set[type]]:
    steps = only_trace(db).plan.steps
    return [step for step in steps if isinstance(step, Leap)], set(map(type, steps))


def recording(db: tidelog.Database) -> RuleTrace:
    """Return the trace of a run from the start, which has counted its operations."""
    trace = RuleTrace(kernel_of(db).catalog, only_trace(db).rule)
    trace.record(Version.NEW)
    return trace


# --- operations -----------------------------------------------------------------------------------


def complement_of(text: str, n: int, missing: int) -> tidelog.Database:
    """Return a database of 3 n rows of t, all but some of which are in s."""
    step = 7 if text == SUBSET else 1  # without the subset, values have to be dense
    rng = seeded("leapfrog", "complement", text, n)
    values = [step * y for y in range(n)]
    rows = [(x, y) for x in range(3) for y in values]
    gone = set(rng.sample(values, missing))
    facts = {"p": [(0,), (1,), (2,)], "t": rows}
    if text == SUBSET:
        facts["m"] = [(y,) for y in values if y not in gone]
    else:
        facts["s"] = [(x, y) for x, y in rows if y not in gone]
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    assert set(db.view("v")) == {(x, y) for x in range(3) for y in gone}
    return db


@pytest.mark.parametrize("text", [MISSING, SUBSET], ids=["dense", "subset"])
def test_a_complement_costs_what_is_missing(text: str) -> None:
    """Section 3.1.2, as a part of a leap: O(missing) operations, and intervals."""
    taken = []
    for n in (500, 2_000, sample(8_000, 100_000)):
        db = complement_of(text, n, 5)
        leaps, kinds = steps_of(db)
        assert leaps[-1].absent
        assert Absent not in kinds
        trace = recording(db)
        taken.append(trace.statistics.operations)
        # At each missing value: a step, a look-up, a gallop and what ends it.
        assert trace.statistics.operations < 3 * 8 * 6 + 20
        assert trace.statistics.recorded < 3 * 4 * 6 + 20
    assert max(taken) <= 1.2 * min(taken)


@pytest.mark.parametrize("text", [MISSING, SUBSET], ids=["dense", "subset"])
def test_a_change_inside_a_skip(text: str) -> None:
    """It divides an interval of the trace in two, and nothing else is read."""
    n = sample(2_000, 20_000)
    db = complement_of(text, n, 5)
    rng = seeded("leapfrog", "inside", text)
    missing = {y for _, y in db.view("v")}
    for _ in range(20):
        with db.transaction() as tx:
            if text == SUBSET:
                y = 7 * rng.randrange(n)
                (tx.insert if y in missing else tx.delete)("m", [(y,)])
                missing ^= {y}
            else:
                y = rng.randrange(n)
                (tx.insert if y in missing else tx.delete)("s", [(x, y) for x in range(3)])
                missing ^= {y}
        assert set(db.view("v")) == {(x, y) for x in range(3) for y in missing}
        assert 0 < only_trace(db).statistics.operations <= 150


def test_a_window_costs_what_it_holds() -> None:
    """The comparisons are the ends of a leap: rows outside are not visited, and not recorded."""
    taken = []
    for n in (500, 2_000, sample(8_000, 100_000)):
        facts = {
            "p": [(k, n // 2, n // 2 + 10) for k in range(3)],
            "t": [(k, y) for k in range(3) for y in range(n)],
            "q": [(y,) for y in range(0, n, 2)],
        }
        db = tidelog.Database(BETWEEN, facts=facts, strategy={"v": "leapfrog"})
        assert len(db.view("v")) == 15
        _, kinds = steps_of(db)
        assert Window in kinds
        assert Compute not in kinds
        taken.append(recording(db).statistics.operations)
        with db.transaction() as tx:  # outside of the window
            tx.insert("q", [(1,)])
            tx.delete("q", [(n - 2,)])
        assert only_trace(db).statistics.matched == 0
        assert only_trace(db).statistics.operations == 0
        with db.transaction() as tx:
            tx.insert("q", [(n // 2 + 1,)])
        assert set(tx.changes["v"].inserted) == {(k, n // 2 + 1) for k in range(3)}
        assert only_trace(db).statistics.operations <= 80
    assert max(taken) <= 1.2 * min(taken) <= 3 * 10 * math.log2(500)


def test_a_window_that_ends_before_all_codes() -> None:
    """Codes are not negative: an interval must not end at -1."""
    text = """
        .decl g(z: number)
        .decl r(y: number)
        .decl v(y: number, z: number)
        v(y, z) :- g(z), r(y), z >= y + 2.
    """
    facts = {"g": [(1,), (7,)], "r": [(20,)]}
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    assert Window in steps_of(db)[1]
    with db.transaction() as tx:
        tx.insert("r", [(3,)])
    assert set(tx.changes["v"].inserted) == {(3, 7)}


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(sample(6, 200)))
def test_long_skips_in_histories(number: int) -> None:
    """Runs of equal rows in several sorted runs, with dead rows among them, old and new."""
    rng = seeded("leapfrog", "long skips", number)
    text = rng.choice((MISSING, SUBSET))
    span, step = rng.choice((200, 600)), rng.choice((1, 1, 3))
    facts: dict[str, set[tuple[int, ...]]] = {
        "p": {(x,) for x in range(3)},
        "t": {(x, step * y) for x in range(2) for y in range(span) if rng.random() < 0.9},
    }
    part = "m" if text == SUBSET else "s"
    if text == SUBSET:
        facts["m"] = {(step * y,) for y in range(span) if rng.random() < 0.95}
    else:
        facts["s"] = {row for row in facts["t"] if rng.random() < 0.95}
        facts["s"] |= {(x, rng.randrange(step * span)) for x in range(3) for _ in range(5)}
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    given: set[tuple[int, ...]] = set()  # rows of s beside those of its rule
    for _ in range(30):
        with db.transaction() as tx:
            for name in rng.sample(["p", "t", part], rng.randint(1, 3)):
                gone = set(rng.sample(sorted(facts[name]), min(len(facts[name]), 2)))
                come = set()
                if rng.random() < 0.7:
                    y = step * rng.randrange(span)
                    come = {{"p": (y % 4,), "m": (y,)}.get(name, (rng.randrange(3), y))}
                tx.delete(name, gone - come)
                tx.insert(name, come)
                facts[name] = (facts[name] - gone) | come
            if text == SUBSET and rng.random() < 0.2:
                row = (rng.randrange(3), rng.randrange(step * span))
                given ^= {row}
                (tx.insert if row in given else tx.delete)("s", [row])
        part_rows = given | (
            {(x, y) for x, y in facts["t"] if (y,) in facts["m"]} if text == SUBSET else facts["s"]
        )
        expected = {(x, y) for x, y in facts["t"] - part_rows if (x,) in facts["p"]}
        assert set(db.view("v")) == expected
        kernel_of(db).check()
