"""Rules for which the clock decides between delta joins and traces: both ways, at any time."""

from __future__ import annotations

import pytest

import tidelog
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import check_cases
from tests.maintain.comparing import Comparison
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.database.database import kernel_of
from tidelog.maintain import measured
from tidelog.maintain.measured import MeasuredCounting

TRIANGLE = """
.decl e(x: number, y: number)
.decl v(x: number, y: number, z: number)
v(x, y, z) :- e(x, y), e(y, z), e(x, z).
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record a trace after two epochs, whatever they took."""
    monkeypatch.setattr(measured, "_PATIENCE", 0.0)
    monkeypatch.setattr(measured, "_LEAST", 0.0)
    monkeypatch.setattr(measured, "_INSTANTIATION", 0.0)
    monkeypatch.setattr(measured, "_TRIAL", 2)
    monkeypatch.setattr(measured, "_MEMORY", 10**6)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("faster", [0.0, 1e9], ids=["kept", "given up"])
@pytest.mark.parametrize("seeds", seed_blocks(sample(20, 1000), 20, offset=950_000))
def test_random_joins(seeds: range, faster: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_FASTER", faster)
    comparison = Comparison()
    check_cases(seeds, comparison.check, multiway_case)
    assert comparison.seen["counting: update"] > len(seeds)


def strategy_of(db: tidelog.Database) -> MeasuredCounting:
    found = kernel_of(db).strategies[-1]
    assert isinstance(found, MeasuredCounting)
    return found


def grow(db: tidelog.Database, epochs: int) -> list[str]:
    """Insert edges one by one; return why each epoch did what it did."""
    said = []
    for number in range(epochs):
        with db.transaction() as tx:
            tx.insert("e", [(number, number + 1), (number, number + 2)])
        report = db.last_epoch.layer("v")
        assert report is not None
        said.append(report.why)
    assert len(db.view("v")) == epochs - 1
    return said


@pytest.mark.usefixtures("hasty")
def test_a_trace_that_is_faster_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_FASTER", 0.0)
    db = tidelog.Database(TRIANGLE)
    said = grow(db, 9)
    assert said[:2] == ["", ""]
    assert all(why.startswith("by its trace: ") for why in said[2:])
    assert len(strategy_of(db).traces.by_rule) == 1
    assert "intervals of traces" in db.explain("v")


@pytest.mark.usefixtures("hasty")
def test_a_trace_that_is_slower_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_FASTER", 1e9)
    db = tidelog.Database(TRIANGLE)
    said = grow(db, 7)
    assert said[2].startswith("by its trace: ")
    assert all(why.startswith("by delta joins: its trace took ") for why in said[4:])
    assert not strategy_of(db).traces.by_rule
    assert said[-1] in db.explain("v")


@pytest.mark.usefixtures("hasty")
def test_a_trace_that_is_too_large_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_MEMORY", 0)
    db = tidelog.Database(TRIANGLE)
    said = grow(db, 5)
    why = "by delta joins: its trace needs more than 0 times the memory of what it reads"
    assert said == ["", "", why, why, why]


def test_a_forced_strategy_forbids_it() -> None:
    db = tidelog.Database(TRIANGLE, strategy={"v": "counting"})
    assert not isinstance(kernel_of(db).strategies[-1], MeasuredCounting)
