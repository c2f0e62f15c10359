"""Random epochs on a stored relation and on a model of it; `check` and all versions each step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.kernel.words import LEAST, MOST
from tests.seeds import seeded
from tests.store.model import Driver, compare
from tidelog.store import index
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation

STEPS = 300

SMALL_VALUES = list(range(6))
WIDE = [LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST]
SHAPES: dict[str, list[list[int]]] = {
    "one column": [list(range(300))],
    "one word": [SMALL_VALUES, list(range(-30, 30))],
    "raw": [WIDE + list(range(100))],
    "two words": [SMALL_VALUES, WIDE],
    "three words": [SMALL_VALUES, WIDE, SMALL_VALUES, SMALL_VALUES, WIDE[3:]],
}


def relation_of(values: list[list[int]], counted: bool, shared: bool) -> StoredRelation:
    """Return a relation whose domains cover the values; `shared`: one domain for all columns."""
    one = Domain()
    domains = [one if shared else Domain() for _ in values]
    for domain, column in zip(domains, values, strict=True):
        domain.widen(min(column), max(column))
    return StoredRelation("r", domains, counted=counted)


def run_steps(rng: random.Random, driver: Driver, steps: int) -> None:
    within: list[Callable[[], None]] = [
        driver.add, driver.add, driver.set_marks, driver.set_marks, driver.set_counts,
        driver.find, driver.index,
    ]  # fmt: skip
    between: list[Callable[[], None]] = [
        driver.index, driver.find, driver.replace, driver.replace_at_commit,
    ]  # fmt: skip
    done = 0
    while done < steps:
        for _ in range(rng.randint(0, 6)):
            rng.choice(within)()
            compare(driver.relation, driver.model)
            done += 1
        (driver.commit if rng.random() < 0.75 else driver.abort)()
        compare(driver.relation, driver.model)
        if rng.random() < 0.15:
            rng.choice(between)()
            compare(driver.relation, driver.model)
        if rng.random() < 0.05:
            driver.widen()
            compare(driver.relation, driver.model)
        done += 1


@pytest.mark.parametrize("small", [3, index.SMALL])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_random_epochs(
    shape: str, counted: bool, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SMALL", small)
    rng = seeded(f"{shape}{counted}{small}")
    values = [list(column) for column in SHAPES[shape]]
    relation = relation_of(values, counted, shared=False)
    run_steps(rng, Driver(rng, relation, values), STEPS)


def test_random_epochs_with_a_shared_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SMALL", 3)
    rng = seeded("shared")
    values = [list(range(-9, 9)), list(range(20))]
    relation = relation_of(values, counted=True, shared=True)
    run_steps(rng, Driver(rng, relation, values), STEPS)
