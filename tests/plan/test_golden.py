"""Programs, and what they are planned as: the fixtures of golden.py."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.plan.golden import FIXTURES, Fixture


@pytest.mark.parametrize(
    "fixture", FIXTURES, ids=lambda fixture: f"{fixture.file}: {fixture.title}"
)
def test_plan(fixture: Fixture) -> None:
    assert fixture.plan() == fixture.expected, "python -m tests.plan.golden writes it anew"


def test_titles_are_told_once_and_there_are_enough() -> None:
    assert len({(f.file, f.title) for f in FIXTURES}) == len(FIXTURES)
    counts = Counter(fixture.file for fixture in FIXTURES)
    assert counts["lower"] + counts["aggregates"] >= 25
    assert counts["order"] >= 15
