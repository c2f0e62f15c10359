"""Rules that are added and dropped while a database is in use."""

from __future__ import annotations

import pytest

from tests.generators.programs import check_cases
from tests.maintain.changing_rules import RuleComparison
from tests.maintain.comparing import always_update
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.plan import order

PROGRAMS = sample(6, 600)
VIRTUAL = sample(12, 600)
BLOCK = 6


@pytest.fixture
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=70_000))
def test_random_histories_of_rules(seeds: range) -> None:
    comparison = RuleComparison(always_update)
    check_cases(seeds, comparison.check, kernel_case)
    print(dict(comparison.seen))
    assert comparison.seen["added"] > len(seeds)
    assert comparison.seen["dropped"] > 0


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(VIRTUAL, BLOCK, offset=71_000))
def test_random_histories_of_rules_with_virtual_views(seeds: range) -> None:
    comparison = RuleComparison(always_update, virtual=True)
    check_cases(seeds, comparison.check, kernel_case)
    print(dict(comparison.seen))
    assert comparison.seen["added"] > len(seeds)
    assert comparison.seen["dropped"] > 0
    assert comparison.seen["virtual: update"] > 0
    assert comparison.seen["left out"] < len(seeds) / 2
