"""The kernel against the oracle: random programs, random epochs.

TIDELOG_SEED sets the first seed and TIDELOG_PROGRAMS the number of programs; `make test-long` runs
5000. A failure prints its seed and the case, shrunk; with the fix it becomes
a test in test_regressions.py.
"""

from __future__ import annotations

import os

import pytest

from tests.generators.features import count_features, features
from tests.generators.programs import check_cases, random_case, seed_blocks
from tests.maintain.comparing import (
    Comparison,
    Prepare,
    abandon_at_once,
    abandon_somewhere,
    always_update,
)
from tests.maintain.shapes import EPOCHS, LONG, RECURSIVE, SHAPES, kernel_case, long_history
from tidelog.kernel import program
from tidelog.logic.program import Program
from tidelog.maintain import catalog
from tidelog.plan import order
from tidelog.store import index

USUAL = 300
PROGRAMS = int(os.environ.get("TIDELOG_PROGRAMS", USUAL))
BLOCK = 25


@pytest.fixture
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: any plan must do, and planning takes half the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=50_000), ids=str)
def test_random_programs(seeds: range) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, kernel_case)
    print(dict(comparison.seen))
    assert comparison.seen["programs"] == len(seeds)
    assert comparison.seen["epochs"] >= (EPOCHS - 2) * len(seeds)


AT_LEAST = {
    "1 recursive atoms": 120,
    "2 recursive atoms": 70,
    "3 recursive atoms": 40,
    "one recursive relation twice": 80,
    "mutual recursion": 60,
    "negation": 200,
    "negation within a recursion": 100,
    "negation of a recursive relation": 15,
    "given and derived": 250,
    "given and derived recursively": 150,
    "facts of the program": 80,
    "constant in a head": 150,
    "constant in a body": 150,
    "repeated variable": 100,
    "comparison": 200,
    "arithmetic": 120,
    "other functor": 50,
    "test of text": 3,
    "range": 60,
    "range of another type": 3,
    "self-join": 200,
    "Cartesian product": 120,
    "nullary relation": 60,
    "wide rows": 30,
    "functional relation": 30,
    "aggregate": 80,
    "aggregate within a recursion": 30,
    "aggregate count": 40,
    "aggregate sum": 10,
    "aggregate min": 8,
    "aggregate max": 8,
    "aggregate setof": 3,
    "record made or taken apart": 10,
    "column of unsigned": 15,
    "column of float": 15,
    "column of bool": 15,
    "column of date": 15,
    "column of timestamp": 10,
    "column of decimal": 20,
    "column of record": 20,
    "column of set": 20,
    "column of nested set": 15,
    "number of 63 bits or more": 100,
    "unsigned beyond 63 bits": 4,
    "infinity or NaN": 8,
    "long symbol": 10,
    "epochs of mixed size": 40,
    "rows that come and go repeatedly": 120,
    "domains that widen": 100,
}
"""How many of 500 random programs have a feature at least: half of what is usual, or less."""


def test_the_random_programs_have_everything_in_them() -> None:
    (seeds,) = seed_blocks(USUAL, USUAL, offset=50_000)
    cases = [kernel_case(seed) for seed in seeds]
    counts = count_features(features(case, Program.parse(case.program)) for case in cases)
    for name, count in counts.most_common():
        print(f"{count:4} {name}")
    missing = {
        name: counts[name]
        for name, least in AT_LEAST.items()
        if counts[name] < least * USUAL // 500
    }
    assert not missing, f"the generator makes too few of these: {missing}"


def test_random_epochs_fail_now_and_then() -> None:
    comparison = Comparison()
    (seeds,) = seed_blocks(20, 20, offset=60_000)
    check_cases(seeds, comparison.check, lambda seed: random_case(seed, SHAPES[4]))
    print(dict(comparison.seen))
    assert 3 <= comparison.seen["epochs that fail"] <= 100


# --- strategies that are forced -----------------------------------------------------------------

STRATEGIES: dict[str, tuple[Prepare, str]] = {
    "always update": (always_update, "update"),
    "abandon at once": (abandon_at_once, "bootstrap"),
    "abandon somewhere": (abandon_somewhere, "bootstrap"),
}
"""How the engine is prepared, and what it must do."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_forced_strategies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, often = STRATEGIES[name]
    monkeypatch.setattr("tidelog.maintain.switch.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    comparison = Comparison(prepare)
    (seeds,) = seed_blocks(30, 30, offset=61_000)
    check_cases(seeds, comparison.check, lambda seed: random_case(seed, RECURSIVE))
    print(dict(comparison.seen))
    # What finds no instantiation never looks at the clock, and is an update in any case.
    assert comparison.seen[f"elastic: {often}"] >= 60
    if name == "always update":
        assert comparison.seen["elastic: bootstrap"] == 0


# --- long histories -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(8))
def test_long_histories(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 epochs on one program, with runs that are merged and compacted all the time."""
    monkeypatch.setattr(index, "SMALL", 2)
    monkeypatch.setattr(index, "_DEAD_SHARE", 4 if number % 2 else 12)
    monkeypatch.setattr(index, "STEP", 3)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 2)
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    (seeds,) = seed_blocks(1, 1, offset=62_000 + number)
    comparison = Comparison(always_update if number % 2 else None)
    check_cases(seeds, comparison.check, long_history)
    print(dict(comparison.seen))
    assert comparison.seen["epochs"] == LONG
    assert comparison.seen["most runs"] >= 2


# --- boundaries ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_output_and_fuel_that_end_everywhere(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CHUNK", chunk)
    monkeypatch.setattr(program, "FUEL", 1 + chunk)
    (seeds,) = seed_blocks(10, 10, offset=63_000 + 100 * chunk)
    check_cases(seeds, Comparison(always_update).check, kernel_case)
