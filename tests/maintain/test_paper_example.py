"""The running example of "Towards Elastic Incrementalization for Datalog" (figures 3 and 4).

Sections 2.2 and 3.1 print what each iteration of the bootstrap finds, with counts; section 2.3
tells of two updates, one of small impact and one of large. The other epochs follow from the
definition of levels and counts, worked out by hand.
"""

from __future__ import annotations

import pytest

from tests.maintain.comparing import Prepare, abandon_at_once, always_update
from tests.maintain.levels import levels_and_counts
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program

PROGRAM = Program.parse("""
    .decl new(v: symbol, o: symbol)
    .decl assign(v: symbol, w: symbol)
    .decl load(v: symbol, w: symbol, f: symbol)
    .decl store(v: symbol, f: symbol, w: symbol)
    .decl vpt(v: symbol, o: symbol)
    .decl alias(v: symbol, w: symbol)

    vpt(v, o) :- new(v, o).                                                              // r1
    vpt(v, o) :- assign(v, w), vpt(w, o).                                                // r2
    vpt(v, o) :- load(v, y, f), store(p, f, q), vpt(q, o), vpt(p, x), vpt(y, x).         // r3
    alias(v, w) :- vpt(v, o), vpt(w, o), v != w.                                         // r4
""")
FACTS = {
    "new": {("a", "L1"), ("c", "L3"), ("d", "L4")},
    "assign": {("a", "b"), ("b", "a")},
    "store": {("c", "f", "a")},
    "load": {("e", "d", "f"), ("b", "c", "f")},
}

# The paper's multisets: row -> (iteration, count).
VPT = {
    ("a", "L1"): (1, 1),
    ("c", "L3"): (1, 1),
    ("d", "L4"): (1, 1),
    ("b", "L1"): (2, 2),  # by r2 from vpt(a, L1), and by r3
}
ALIAS = {("a", "b"): (0, 1), ("b", "a"): (0, 1)}  # not recursive: no iterations, only counts

STRATEGIES = {"update": always_update, "bootstrap": abandon_at_once}


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    monkeypatch.setattr("tidelog.maintain.switch.LEAST_SECONDS", 0.0)
    return STRATEGIES[request.param]


def engine(strategy: Prepare) -> KernelEngine:
    kernel = KernelEngine(PROGRAM, FACTS)
    strategy(kernel)
    return kernel


def test_bootstrap() -> None:
    kernel = KernelEngine(PROGRAM, FACTS)
    assert kernel.levels_and_counts("vpt") == VPT
    assert kernel.levels_and_counts("alias") == ALIAS
    for name, rows in FACTS.items():
        assert kernel.levels_and_counts(name) == dict.fromkeys(rows, (0, 1))
    (choice,) = (s.choice for layer, s in kernel.layers if layer.relations == ("vpt",))
    assert (choice.what, choice.levels) == ("bootstrap", 3)  # the third finds nothing: fixpoint


def test_the_naive_oracle_says_the_same() -> None:
    states = levels_and_counts(PROGRAM, FACTS)
    assert (states["vpt"], states["alias"]) == (VPT, ALIAS)


def test_small_impact_line_6_goes(strategy: Prepare) -> None:
    """Section 2.3: load(e, d, f) goes, and nothing that is derived changes."""
    kernel = engine(strategy)
    effects = kernel.apply({}, {"load": {("e", "d", "f")}})
    assert set(effects.changes) == {"load"}
    assert kernel.levels_and_counts("vpt") == VPT
    assert kernel.levels_and_counts("alias") == ALIAS


def test_large_impact_line_1_goes_too(strategy: Prepare) -> None:
    """Section 2.3: half of vpt and all of alias are deleted."""
    kernel = engine(strategy)
    effects = kernel.apply({}, {"load": {("e", "d", "f")}, "new": {("a", "L1")}})
    assert effects.changes["vpt"].deleted == {("a", "L1"), ("b", "L1")}
    assert effects.changes["vpt"].inserted == frozenset()
    assert effects.changes["alias"].deleted == set(ALIAS)
    assert kernel.levels_and_counts("vpt") == {("c", "L3"): (1, 1), ("d", "L4"): (1, 1)}
    assert kernel.levels_and_counts("alias") == {}


def test_one_of_two_derivations_goes(strategy: Prepare) -> None:
    """Without assign(b, a) only r3 is left for vpt(b, L1): its count falls, no row changes."""
    kernel = engine(strategy)
    effects = kernel.apply({}, {"assign": {("b", "a")}})
    assert set(effects.changes) == {"assign"}
    assert kernel.levels_and_counts("vpt") == {**VPT, ("b", "L1"): (2, 1)}
    kernel.apply({"assign": {("b", "a")}}, {})
    assert kernel.levels_and_counts("vpt") == VPT


def test_a_row_is_found_earlier_and_later(strategy: Prepare) -> None:
    """new(b, L1) makes vpt(b, L1) a row of iteration 1: only what fires then is counted."""
    kernel = engine(strategy)
    effects = kernel.apply({"new": {("b", "L1")}}, {})
    assert set(effects.changes) == {"new"}
    assert kernel.levels_and_counts("vpt") == {**VPT, ("b", "L1"): (1, 1)}
    # Now vpt(a, L1) is found by r2 from vpt(b, L1), one iteration later than before.
    kernel.apply({}, {"new": {("a", "L1")}})
    assert kernel.levels_and_counts("vpt") == {**VPT, ("b", "L1"): (1, 1), ("a", "L1"): (2, 1)}
    # A cycle does not keep itself alive.
    effects = kernel.apply({}, {"new": {("b", "L1")}})
    assert effects.changes["vpt"].deleted == {("a", "L1"), ("b", "L1")}
    assert kernel.levels_and_counts("vpt") == {("c", "L3"): (1, 1), ("d", "L4"): (1, 1)}


def test_the_second_component_comes_to_life(strategy: Prepare) -> None:
    """With new(d, L3) the base of load(e, d, f) may be c: r3 derives vpt(e, L1)."""
    kernel = engine(strategy)
    effects = kernel.apply({"new": {("d", "L3")}}, {})
    assert effects.changes["vpt"].inserted == {("d", "L3"), ("e", "L1")}
    assert kernel.levels_and_counts("vpt") == {**VPT, ("d", "L3"): (1, 1), ("e", "L1"): (2, 1)}
    pairs = {("c", "d"), ("a", "e"), ("b", "e")}
    expected = dict.fromkeys(pairs | {(w, v) for v, w in pairs}, (0, 1))
    assert kernel.levels_and_counts("alias") == {**ALIAS, **expected}
