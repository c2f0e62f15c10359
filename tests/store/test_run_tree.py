"""Aggregates over intervals by the trees of runs: random epochs against the model's rows."""

from __future__ import annotations

import random
from math import log2

import pytest

from tests.seeds import seeded
from tests.store.model import Driver, Row, words_of
from tests.store.test_relation_model import SHAPES, relation_of
from tidelog.store.lookup import Summary, key, summary
from tidelog.store.relation import StoredRelation
from tidelog.store.versions import Version

EPOCHS = 60


def random_order(rng: random.Random, width: int) -> tuple[int, ...]:
    order = list(range(width))
    if rng.random() < 0.5:
        rng.shuffle(order)
    return tuple(order)


def check_interval(rng: random.Random, driver: Driver, values: list[list[int]]) -> int:
    """Compare a random interval with the model; return how many rows it has."""
    relation = driver.relation
    order = random_order(rng, len(values))
    column = rng.randrange(len(values))
    bounds = []
    for _ in range(2):
        width = rng.randint(0, len(values))
        start = [rng.choice(values[c]) for c in order[:width]]
        bounds.append((start, rng.random() < 0.5))
    (low, after_low), (high, after_high) = bounds

    def is_behind(row: Row, start: list[int], behind: bool) -> bool:
        seen = [row[c] for c in order[: len(start)]]
        return seen > start or (seen == start and not behind)

    found = summary(
        relation,
        order,
        key(relation, order, low, behind=after_low),
        key(relation, order, high, behind=after_high),
        column,
    )
    wanted = [
        row[column]
        for row in driver.model.shown(Version.OLD)
        if is_behind(row, low, after_low) and not is_behind(row, high, after_high)
    ]
    assert (found.count, found.total) == (len(wanted), sum(wanted))
    if wanted:
        assert (found.least, found.greatest) == (min(wanted), max(wanted))
    return len(wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_epochs(shape: str) -> None:
    rng = seeded(f"run trees {shape}")
    values = [list(column) for column in SHAPES[shape]]  # some share a list, and `widen` adds to it
    driver = Driver(rng, relation_of(values, counted=rng.random() < 0.5, shared=False), values)
    largest = 0
    for _ in range(EPOCHS):
        for _ in range(rng.randint(0, 4)):
            rng.choice([driver.add, driver.add, driver.set_marks])()
        (driver.commit if rng.random() < 0.8 else driver.abort)()
        if rng.random() < 0.1:
            rng.choice([driver.replace, driver.replace_at_commit, driver.widen])()
            driver.commit()
        for _ in range(6):
            largest = max(largest, check_interval(rng, driver, values))
        driver.relation.check()
    assert largest > 10, "only small intervals"


@pytest.mark.parametrize("size", [1000, 200_000])
def test_an_interval_costs_a_logarithm(size: int) -> None:
    rng = seeded(f"nodes {size}")
    relation = relation_of([list(range(size)), [0, 9]], counted=False, shared=False)
    rows = words_of(relation, [(i, i % 10) for i in range(size)])
    relation.replace(rows, None, None)
    for _ in range(50):
        low, high = sorted(rng.sample(range(size), 2))
        found = whole_range(relation, low, high)
        assert found.count == high - low
        assert found.total == sum(i % 10 for i in range(low, high))
        assert found.nodes <= 2 * log2(size)


def whole_range(relation: StoredRelation, low: int, high: int) -> Summary:
    order = (0, 1)
    return summary(
        relation,
        order,
        key(relation, order, [low], behind=False),
        key(relation, order, [high], behind=False),
        1,
    )


def test_memory_counts_the_trees() -> None:
    relation = relation_of([list(range(5000)), [0, 9]], counted=False, shared=False)
    relation.replace(words_of(relation, [(i, 1) for i in range(5000)]), None, None)
    before = relation.nbytes
    whole_range(relation, 0, 5000)
    assert 0 < relation.nbytes - before < before / 2
