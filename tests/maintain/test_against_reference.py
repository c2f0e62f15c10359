"""The kernel against the oracle: random programs, random epochs.

The programs follow from the seed (tests/seeds.py); `make test-long` runs 5000. A failure prints
its seed and the case, shrunk; with the fix it becomes a test in test_regressions.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.generators.features import count_features, features
from tests.generators.programs import check_cases, random_case
from tests.maintain.comparing import (
    Comparison,
    Prepare,
    abandon_at_once,
    abandon_somewhere,
    always_update,
)
from tests.maintain.shapes import EPOCHS, LONG, RECURSIVE, SHAPES, kernel_case, long_history
from tests.samples import sample, until
from tests.seeds import case_seeds, seed_blocks
from tidelog.join import program
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.store import catalog, index

USUAL = 300
PROGRAMS = sample(125, 5000)
BLOCK = 25


@pytest.fixture
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: any plan must do, and planning takes half the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=50_000))
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
    "fact of a recursive relation": 30,
    "fact that an epoch inserts": 60,
    "fact that an epoch deletes": 60,
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
    "aggregate grouped by what its recursion binds": 7,
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
    counts: Counter[str] = Counter()

    def missing() -> dict[str, int]:
        wanted = {name: least * USUAL // 500 for name, least in AT_LEAST.items()}
        return {name: counts[name] for name, least in wanted.items() if counts[name] < least}

    # What is rare may be missing in some; then there are more.
    chosen = case_seeds(5 * USUAL, offset=50_000)
    for number in until(lambda: not missing(), least=1, most=5):
        cases = map(kernel_case, chosen[number * USUAL : (number + 1) * USUAL])
        counts += count_features(features(case, Program.parse(case.program)) for case in cases)
    for name, count in counts.most_common():
        print(f"{count:4} {name}")
    assert not missing(), f"the generator makes too few of these: {missing()}"


def test_random_epochs_fail_now_and_then() -> None:
    comparison = Comparison()
    seen, chosen = comparison.seen, case_seeds(80, offset=60_000)
    for i in until(lambda: seen["epochs that fail"] > 0, least=20, most=80):
        check_cases(chosen[i : i + 1], comparison.check, lambda seed: random_case(seed, SHAPES[4]))
    print(dict(seen))
    assert 0 < seen["epochs that fail"] < 0.75 * seen["epochs"]


# --- strategies that are forced -----------------------------------------------------------------

FORCED = sample(20, 60)

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
    seen, chosen = comparison.seen, case_seeds(5 * FORCED, offset=61_000)
    for i in until(lambda: seen[f"elastic: {often}"] >= FORCED, least=FORCED, most=5 * FORCED):
        check_cases(chosen[i : i + 1], comparison.check, lambda seed: random_case(seed, RECURSIVE))
    print(dict(seen))
    # What finds no instantiation never looks at the clock, and is an update in any case.
    assert seen[f"elastic: {often}"] >= FORCED
    if name == "always update":
        assert seen["elastic: bootstrap"] == 0


# --- long histories -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(sample(4, 16)))
def test_long_histories(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 epochs on one program, with runs that are merged and compacted all the time."""
    monkeypatch.setattr(index, "SMALL", 2)
    monkeypatch.setattr(index, "_DEAD_SHARE", 4 if number % 2 else 12)
    monkeypatch.setattr(index, "STEP", 3)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 2)
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    chosen = case_seeds(20, offset=62_000 + 20 * number)
    comparison = Comparison(always_update if number % 2 else None)
    seen = comparison.seen
    # A program that fails on any facts has no history.
    for i in until(lambda: seen["epochs"] >= LONG and seen["most runs"] >= 2, least=1, most=20):
        check_cases(chosen[i : i + 1], comparison.check, long_history)
    print(dict(seen))
    assert seen["epochs"] >= LONG
    assert seen["most runs"] >= 2


# --- boundaries ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_output_and_fuel_that_end_everywhere(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CHUNK", chunk)
    monkeypatch.setattr(program, "FUEL", 1 + chunk)
    chosen = case_seeds(10, offset=63_000 + 100 * chunk)
    check_cases(chosen, Comparison(always_update).check, kernel_case)
