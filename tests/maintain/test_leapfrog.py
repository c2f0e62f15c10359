"""Joins that are maintained by their traces: the paper's examples, the reference, certificates."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

import tidelog
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import check_cases
from tests.maintain.comparing import Comparison, leapfrog_strategies
from tests.maintain.shapes import kernel_case
from tests.maintain.tracing import (
    assert_covered,
    expected_intervals,
    intervals_of,
    slow_trace,
)
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.database.database import kernel_of
from tidelog.engine.protocol import NoObserver
from tidelog.join.trace import RuleTrace, tree_surgery
from tidelog.maintain import leapfrog
from tidelog.maintain.leapfrog import Leapfrog
from tidelog.store.relation import StoredRelation
from tidelog.store.sensitivity import HIGHEST, LOWEST

TRIANGLE = """
.decl e(x: number, y: number)
.decl v(x: number, y: number, z: number)
v(x, y, z) :- e(x, y), e(y, z), e(x, z).
"""
FOUR = """
.decl e(x: number, y: number)
.decl v(x: number, y: number, z: number, w: number)
v(x, y, z, w) :- e(x, y), e(y, z), e(z, w), e(w, x).
"""
PAPER = """
.decl g(x: number, z: number)
.decl h(y: number, z: number)
.decl i(x: number, y: number, z: number)
.decl r(z: number)
.decl v(x: number, y: number)
v(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z).
"""
NEGATED = """
.decl e(x: number, y: number)
.decl r(x: number)
.decl v(x: number, z: number)
v(x, z) :- e(x, y), e(y, z), !e(x, z), !r(z).
"""
SKIPPING = """
.decl e(x: number, y: number)
.decl g(x: number, y: number)
.decl h(x: number, y: number)
.decl r(x: number)
.decl v(x: number, y: number)
h(x, y) :- e(x, y), g(y, x).
v(x, y) :- r(x), e(x, y), !h(x, y).
"""
WINDOWS = """
.decl e(x: number, y: number)
.decl g(x: number, y: number)
.decl v(x: number, y: number, z: number)
v(x, y, z) :- e(x, y), g(y, z), x <= z, z < y, !e(y, z).
"""
TEXTS = {
    "3": TRIANGLE, "4": FOUR, "paper": PAPER, "not": NEGATED, "skip": SKIPPING, "window": WINDOWS,
}  # fmt: skip
WIDTHS = {"e": 2, "g": 2, "h": 2, "i": 3, "r": 1}


def leapfrogs(db: tidelog.Database, relation: str = "v") -> Leapfrog:
    (found,) = (s for layer, s in kernel_of(db).layers if relation in layer.relations)
    assert isinstance(found, Leapfrog)
    return found


def only_trace(db: tidelog.Database) -> RuleTrace:
    (trace,) = leapfrogs(db).traces.by_rule.values()
    return trace


# --- the paper's examples -------------------------------------------------------------------------


def test_a_unary_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.1.1."""
    monkeypatch.setattr(leapfrog, "RuleTrace", partial(RuleTrace, is_plain=True))
    text = """
        .decl a, b(x: number)
        .decl v(x: number)
        v(x) :- a(x), b(x).
    """
    facts = {"a": [(x,) for x in (0, 2, 4, 5, 6)], "b": [(x,) for x in (1, 2, 6, 7)]}
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    assert set(db.view("v")) == {(2,), (6,)}
    trace = only_trace(db)

    def sensitivities() -> list[set[tuple[int, int]]]:
        return [{(first, last) for _, first, last in intervals_of(use)} for use in trace.uses]

    assert sensitivities() == [
        {(LOWEST, 0), (1, 2), (2, 4), (6, 6), (6, HIGHEST)},
        {(LOWEST, 1), (2, 2), (4, 6)},
    ]
    with db.transaction() as tx:
        tx.delete("a", [(5,)])
        tx.insert("a", [(8,)])
        tx.delete("b", [(2,)])
        tx.insert("b", [(3,)])
    assert [tuple(region[-3:-1]) for region in trace.regions.tolist()] == [(2, 2), (6, HIGHEST)]
    assert trace.statistics.matched == 2
    assert set(tx.changes["v"].deleted) == {(2,)}
    assert set(db.view("v")) == {(6,)}
    revised = sensitivities()
    assert revised == [
        {(LOWEST, 0), (1, 2), (2, 2), (2, 4), (6, 6), (6, 8)},
        {(LOWEST, 1), (2, 3), (4, 6), (6, 6), (8, HIGHEST)},
    ]
    # All that a run from the start depends on is covered.
    for use, intervals in enumerate(revised):
        slow = slow_trace(kernel_of(db).catalog, trace, {}, opens_all=True)
        for _, first, last in expected_intervals(slow, trace, use):
            ends = {first, last} if last < HIGHEST else {first, 100}
            for value in {*ends, *range(max(first, 0), min(last, 10))}:
                assert any(low <= value <= high for low, high in intervals), (use, value)


def test_tree_surgery() -> None:
    """Section 4.2.1."""
    before = [
        (0, 30, 80),
        (0, 30, 81),
        (1, 35, 60),
        (1, 35, 61),
        (3, 40, 90),
        (3, 50, 91),
        (3, 50, 92),
    ]
    after = [(0, 30, 80), (1, 35, 60), (1, 35, 61), (3, 50, 91), (4, 60, 71)]
    db = tidelog.Database(".decl a(x: number, y: number, z: number)", facts={"a": before})
    kernel = kernel_of(db)
    found: dict[int, tuple[list[list[int]], list[list[int]]]] = {}

    class Watch(NoObserver):
        def computed(self) -> None:
            for length in (1, 2, 3):
                relation: StoredRelation = kernel.catalog.relations["a"]
                appeared, vanished = tree_surgery(relation, (0, 1, 2), length)
                found[length] = appeared.T.tolist(), vanished.T.tolist()

    kernel.observer = Watch()
    with db.transaction() as tx:
        tx.delete("a", set(before) - set(after))
        tx.insert("a", set(after) - set(before))
    assert found == {
        1: ([[4]], []),
        2: ([[4, 60]], [[3, 40]]),
        3: ([[4, 60, 71]], [[0, 30, 81], [3, 40, 90], [3, 50, 92]]),
    }


def test_which_uses_have_an_index() -> None:
    """Section 4.2: those whose arguments are not a prefix of the order of variables."""
    facts = {
        "g": [(x, z) for x in range(9) for z in range(9)],
        "h": [(y, z) for y in range(9) for z in range(9)],
        "i": [(x, (x + z) % 9, z) for x in range(9) for z in range(9)],
        "r": [(4,)],
    }
    db = tidelog.Database(PAPER, facts=facts, strategy={"v": "leapfrog"})
    trace = only_trace(db)
    assert trace.uses[-1].node == ("x", "y")
    indexed = {(u.relation, u.key, u.last, u.others) for u in trace.uses if u.index is not None}
    assert indexed == {
        ("g", ("x",), "z", ("y",)),
        ("h", (), "y", ("x",)),
        ("h", ("y",), "z", ("x",)),
        ("r", (), "z", ("x", "y")),
    }
    assert len(trace.uses) == 8  # i has three uses without one, and g has one


# --- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", seed_blocks(sample(60, 3000), 20, offset=930_000))
def test_random_joins(seeds: range) -> None:
    comparison = Comparison(None, leapfrog_strategies)
    check_cases(seeds, comparison.check, multiway_case)
    print(dict(comparison.seen))
    assert comparison.seen["leapfrog: update"] > len(seeds)


@pytest.mark.parametrize("seeds", seed_blocks(sample(10, 1000), 10, offset=940_000))
def test_random_programs(seeds: range) -> None:
    comparison = Comparison(None, leapfrog_strategies)
    check_cases(seeds, comparison.check, kernel_case)
    assert comparison.seen["leapfrog: update"] > 0


# --- traces and certificates ----------------------------------------------------------------------


def history(text: str, number: int, epochs: int, values: int, rows: int) -> object:
    """Yield a database with random rows, before and after each of its epochs, and what changes."""
    rng = seeded("leapfrog", text, number)

    def row(name: str) -> tuple[int, ...]:
        return tuple(rng.randrange(values) for _ in range(WIDTHS[name]))

    names = [name for name in WIDTHS if f".decl {name}(" in text]
    facts = {name: {row(name) for _ in range(rows)} for name in names}
    facts[names[0]].add((values - 1,) * WIDTHS[names[0]])
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    yield db
    for _ in range(epochs):
        with db.transaction() as tx:
            for _ in range(rng.choice((1, 1, 1, 4))):
                name = rng.choice(names)
                if facts[name] and rng.random() < 0.5:
                    gone = rng.choice(sorted(facts[name]))
                    facts[name].discard(gone)
                    tx.delete(name, [gone])
                else:
                    come = row(name)
                    facts[name].add(come)
                    tx.insert(name, [come])
        yield db


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("number", range(sample(2, 40)))
def test_indexes_are_a_certificate(text: str, number: int) -> None:
    for epoch, db in enumerate(history(text, number, 25, 8, 25)):
        trace, catalog = only_trace(db), kernel_of(db).catalog
        slow = slow_trace(catalog, trace, {})
        if epoch == 0:
            for use, recorded in enumerate(trace.uses):
                if recorded.index is not None:
                    assert intervals_of(recorded) == expected_intervals(slow, trace, use)
        assert_covered(trace, slow, 9)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("rows", [60, sample(250, 2000)])
def test_operations_follow_the_distance_of_traces(text: str, rows: int) -> None:
    before = None
    worst = 0.0
    for db in history(text, rows, 12, max(6, round(rows**0.6)), rows):
        trace = only_trace(db)
        slow = set(slow_trace(kernel_of(db).catalog, trace, {}).operations)
        if before is not None:
            distance = len(slow ^ before)
            bound = (distance + 1) * math.log2(len(slow) + 2)
            worst = max(worst, trace.statistics.operations / bound)
            assert trace.statistics.operations <= 8 * bound, distance
        before = slow
    print(f"at most {worst:.2f} operations for an edit, per log n")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_change_that_alters_a_fresh_trace_is_matched(text: str) -> None:
    """One change after another, each on a trace that has just been recorded, as a whole run has it.

    After other epochs the indexes are a certificate of the join, and not those of a fresh trace.
    """
    rng = seeded("leapfrog", "fresh", text)
    names = [name for name in WIDTHS if f".decl {name}(" in text]
    facts = {
        name: {tuple(rng.randrange(5) for _ in range(WIDTHS[name])) for _ in range(9)}
        for name in names
    }
    altered = 0
    for _ in range(sample(40, 1000)):
        db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
        trace, catalog = only_trace(db), kernel_of(db).catalog
        before = set(slow_trace(catalog, trace, {}).operations)
        name = rng.choice(names)
        row = tuple(rng.randrange(6) for _ in range(WIDTHS[name]))
        with db.transaction() as tx:
            (tx.delete if row in facts[name] else tx.insert)(name, [row])
        is_altered = set(slow_trace(catalog, trace, {}).operations) != before
        assert not is_altered or len(trace.regions), (name, row)
        altered += is_altered
    assert altered > 3


# --- the end of epochs ----------------------------------------------------------------------------


def test_an_aborted_epoch_changes_no_index() -> None:
    text = TRIANGLE + ".decl q[x: number]: number q[x] = y :- v(x, y, _)."
    facts = {"e": [(1, 2), (2, 3), (1, 3), (3, 4)]}
    db = tidelog.Database(text, facts=facts, strategy={"v": "leapfrog"})
    before = [index.rows().tolist() for index in only_trace(db).indexes]
    with pytest.raises(tidelog.FunctionalConflict), db.transaction() as tx:
        tx.insert("e", [(1, 4)])
    assert [index.rows().tolist() for index in only_trace(db).indexes] == before
    with db.transaction() as tx:
        tx.insert("e", [(2, 4)])
    assert set(tx.changes["v"].inserted) == {(2, 3, 4)}
    kernel_of(db).check()


def test_a_database_is_opened_again(tmp_path: Path) -> None:
    rng = seeded("leapfrog", "durable")
    edges: set[tuple[int, int]] = set()
    for opening in range(4):
        with tidelog.Database(TRIANGLE, path=tmp_path, strategy={"v": "leapfrog"}) as db:
            assert not (db.opened and db.opened.rebuilt)
            for _ in range(6):
                new = {(rng.randrange(9 + opening), rng.randrange(9 + opening)) for _ in range(6)}
                old = set(rng.sample(sorted(edges), min(len(edges), 3))) - new
                with db.transaction() as tx:
                    tx.insert("e", new)
                    tx.delete("e", old)
                edges = (edges | new) - old
            expected = {
                (x, y, z) for x, y in edges for y2, z in edges if y == y2 and (x, z) in edges
            }
            assert set(db.view("v")) == expected
            kernel_of(db).check()


def test_indexes_that_have_grown_are_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.join.trace._SLACK", 0)
    monkeypatch.setattr("tidelog.join.trace._GROWTH", 1)
    seen = set()
    for db in history(TRIANGLE, 1, 20, 8, 20):
        trace = only_trace(db)
        seen.add(id(trace))
        assert_covered(trace, slow_trace(kernel_of(db).catalog, trace, {}), 9)
    assert len(seen) > 2


def test_a_rule_that_fails_where_its_trace_ends() -> None:
    text = """
        .decl a, b, c(x: number)
        .decl v(x: number, y: number)
        v(x, y) :- a(x), b(10 / x), c(y).
    """
    db = tidelog.Database(text, facts={"a": [(0,), (2,)], "b": [(5,)]}, strategy={"v": "leapfrog"})
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.insert("c", [(1,)])
    with db.transaction() as tx:
        tx.delete("a", [(0,)])
        tx.insert("c", [(1,)])
    assert set(db.view("v")) == {(2, 1)}


def test_explain_shows_what_an_epoch_took() -> None:
    facts = {"e": [(1, 2), (2, 3), (3, 4)]}
    db = tidelog.Database(TRIANGLE, facts=facts, strategy={"v": "leapfrog"})
    with db.transaction() as tx:
        tx.insert("e", [(1, 3)])
    took = only_trace(db).statistics
    lines = db.explain("v").splitlines()
    assert any(
        f"{took.matched} intervals matched, {took.regions} regions visited,"
        f" {took.operations} iterator operations" in line
        for line in lines
    )
    assert any("intervals of traces" in line and "times what is read" in line for line in lines)
    assert db.last_epoch.layer("v") is not None
    assert kernel_of(db).memory["v"] >= leapfrogs(db).traces.nbytes > 0
