"""Aggregates by scan trees follow random changes: against the reference engine, and aborts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.maintain.agreeing import assert_agree
from tests.samples import sample
from tests.seeds import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program
from tidelog.maintain.scans import Scans
from tidelog.plan import aggregates
from tidelog.plan.lowered import Aggregation
from tidelog.store.value_tree import ValueTree
from tidelog.values.algebra import Semigroup

Row = tuple[Any, ...]
Engine = KernelEngine | ReferenceEngine

WORDS = ["b", "", "a", "é", "ab", "ba", "Z", "a\U0001f600", "z", "zz"]

CONCAT = """
    .decl r(g: number, h: symbol, v: symbol)
    .decl asked(g: number)
    .decl joined(g: number, t: symbol)
    joined(g, t) :- asked(g), t = concat v : { r(g, _, v) }.
    .decl by_h(h: symbol, t: symbol)
    by_h(h, t) :- r(_, h, _), t = concat v : { r(g, h, v), v != "zz" }.
    .decl finer(g: number, h: symbol, t: symbol)
    finer(g, h, t) :- r(g, h, _), t = concat cat(h, v) : { r(g, h, v) }.
    .decl everything(t: symbol)
    everything(t) :- t = concat h : { r(_, h, v) }.
"""
EXTREMES = """
    .type pair = [x: number, y: symbol]
    .decl r(g: number, h: symbol, v: {type})
    .decl asked(g: number)
    .decl least(g: number, v: {type})
    least(g, v) :- r(g, _, _), v = min x : {{ r(g, _, x) }}.
    .decl most(g: number, v: {type})
    most(g, v) :- r(g, _, _), v = max x : {{ r(g, h, x) }}.
    .decl finer(g: number, h: symbol, v: {type})
    finer(g, h, v) :- r(g, h, _), v = max x : {{ r(g, h, x) }}.
    .decl all_rows(v: {type})
    all_rows(v) :- asked(_), v = min x : {{ r(_, _, x) }}.
"""
PAIRS = [None, *((x, y) for x in (-1, 0, 5) for y in ("b", "a", ""))]
SETS = [frozenset(part) for part in ("", "a", "ab", "b", "ba", "é", "z")]
CASES: dict[str, tuple[str, list[Any]]] = {
    "concat": (CONCAT, WORDS),
    "symbols": (EXTREMES.format(type="symbol"), WORDS),
    "records": (EXTREMES.format(type="pair"), PAIRS),
    "sets": (EXTREMES.format(type="set(symbol)"), SETS),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("groups", [1, 5])
def test_random_changes(case: str, groups: int) -> None:
    rng = seeded(f"scans {case} {groups}")
    text, values = CASES[case]
    program = Program.parse(text)
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    assert any(isinstance(strategy, Scans) for _, strategy in kernel.layers)
    held: dict[str, set[Row]] = {"r": set(), "asked": set()}
    for _ in range(sample(50, 120)):
        inserted: dict[str, set[Row]] = {"r": set(), "asked": set()}
        for _ in range(rng.choice([0, 1, 4, 40])):
            row = (rng.randrange(groups), rng.choice(WORDS), rng.choice(values))
            inserted["r"].add(row)
        if rng.random() < 0.4:
            inserted["asked"].add((rng.randrange(groups),))
        deleted = {
            name: set(rng.sample(sorted(rows, key=repr), min(len(rows), rng.choice([0, 1, 3, 30]))))
            - inserted[name]
            for name, rows in held.items()
        }
        wanted, found = reference.apply(inserted, deleted), kernel.apply(inserted, deleted)
        assert_agree(program, kernel, reference, found, wanted)
        held = {name: (rows | inserted[name]) - deleted[name] for name, rows in held.items()}
    fresh = KernelEngine(program, held)
    for name in program.relations:
        assert kernel.levels_and_counts(name) == fresh.levels_and_counts(name), name


def trees(kernel: KernelEngine) -> list[ValueTree]:
    return [
        follower
        for relation in kernel.catalog.everything()
        for follower in relation.followers.values()
        if isinstance(follower, ValueTree)
    ]


def test_levels_of_detail_share_a_tree() -> None:
    program = Program.parse(EXTREMES.format(type="symbol"))
    kernel = KernelEngine(program, {"r": [(1, "h", "a"), (1, "i", "b")], "asked": [(1,)]})
    by_groups = [tree for tree in trees(kernel) if len(tree.columns) == 3]
    assert len(by_groups) == 1  # of `most` and `finer`; the others see fewer columns of r
    assert kernel.rows("most") == {(1, "b")}
    assert kernel.rows("finer") == {(1, "h", "a"), (1, "i", "b")}


# --- user-given semigroups -----------------------------------------------------------------------


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Semigroup], None]:
    """Return what makes `concat` stand for a semigroup."""

    def use(algebra: Semigroup) -> None:
        def aggregation(*args: Any) -> Aggregation:
            return dataclasses.replace(Aggregation(*args), op="glue", algebra=algebra)

        monkeypatch.setattr(aggregates, "Aggregation", aggregation)

    return use


GLUE = """
    .decl r(g: number, i: symbol, v: symbol)
    .decl glued(g: number, t: symbol)
    glued(g, t) :- r(g, _, _), t = concat v : { r(g, i, v) }.
"""


def glued(rows: set[Row]) -> set[Row]:
    found: dict[int, str] = {}
    for g, _, v in sorted(rows):
        found[g] = f"{found[g]}-<{v}>" if g in found else f"<{v}>"
    return set(found.items())


def test_a_semigroup_that_is_not_commutative(register: Callable[[Semigroup], None]) -> None:
    rng = seeded("semigroup")
    calls: list[tuple[str, str]] = []

    def combine(a: str, b: str) -> str:
        calls.append((a, b))
        return f"{a}-{b}"

    register(Semigroup(combine, lambda v: f"<{v}>"))
    kernel = KernelEngine(Program.parse(GLUE), {})
    rows: set[Row] = set()
    for _ in range(150):
        new = {
            (rng.randrange(3), rng.choice(WORDS), rng.choice(WORDS))
            for _ in range(rng.randint(0, 5))
        }
        gone = set(rng.sample(sorted(rows), min(len(rows), rng.randint(0, 4)))) - new
        kernel.apply({"r": new}, {"r": gone})
        rows = (rows | new) - gone
        assert kernel.rows("glued") == glued(rows)
        kernel.check()
    everything = {(g, i, v) for g in range(3) for i in WORDS for v in WORDS}
    kernel.apply({"r": everything - rows}, {})
    assert kernel.rows("glued") == glued(everything)
    calls.clear()
    kernel.apply({}, {"r": {min(everything)}})
    assert 0 < len(calls) < 60, "a deletion has looked through its group of 100 rows"


def test_a_combination_that_fails_changes_nothing(register: Callable[[Semigroup], None]) -> None:
    def combine(a: str, b: str) -> str:
        if "bad" in b:
            raise ArithmeticError("no good")
        return a + b

    register(Semigroup(combine))
    kernel = KernelEngine(Program.parse(GLUE), {"r": [(1, str(i), "x") for i in range(100)]})
    before = kernel.rows("glued")
    for _ in range(2):
        with pytest.raises(EvaluationError, match="`glue` failed: ArithmeticError: no good"):
            kernel.apply({"r": {(1, "5x", "bad")}}, {"r": {(1, "7", "x")}})
        assert kernel.rows("glued") == before
        kernel.check()
    kernel.apply({"r": {(1, "5x", "good")}}, {})
    ((_, text),) = kernel.rows("glued")
    assert text.count("x") == 100
    assert text.index("good") == len([i for i in map(str, range(100)) if i < "5x"])


def test_a_result_of_another_type_is_refused(register: Callable[[Semigroup], None]) -> None:
    register(Semigroup(lambda a, b: a + b, len))
    with pytest.raises(EvaluationError, match="`glue` gave a wrong result"):
        KernelEngine(Program.parse(GLUE), {"r": [(1, "a", "x"), (1, "b", "y")]})


# --- aborts --------------------------------------------------------------------------------------


def test_an_epoch_that_fails_takes_the_tree_back() -> None:
    program = Program.parse(
        CONCAT + ".decl ratio(g: number) ratio(10 / g) :- asked(g), joined(g, _)."
    )
    rows = {(g, h, v) for g in (1, 2) for h in WORDS for v in WORDS}
    kernel = KernelEngine(program, {"r": rows, "asked": {(1,)}})
    before = {name: kernel.rows(name) for name in program.relations}
    contents = [list(tree._tree) for tree in trees(kernel)]
    with pytest.raises(EvaluationError):
        kernel.apply({"r": {(0, "a", "a"), (1, "new", "new")}, "asked": {(0,)}}, {"r": rows})
    assert before == {name: kernel.rows(name) for name in program.relations}
    assert contents == [list(tree._tree) for tree in trees(kernel)]
    kernel.check()


def test_domains_that_widen_within_an_epoch() -> None:
    program = Program.parse(CONCAT)
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    for number in range(5):
        # Each text is a new symbol, so that the domain of results is full again and again.
        new = {(2**number * sign, str(i), f"{i}") for i in range(4**number) for sign in (-1, 1)}
        asked = {(row[0],) for row in new}
        for engine in (kernel, reference):
            engine.apply({"r": new, "asked": asked}, {})
        assert kernel.rows("joined") == reference.rows("joined")
        kernel.check()
