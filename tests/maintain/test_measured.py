"""Rules for which the clock decides between delta joins and traces: both ways, at any time."""

from __future__ import annotations

import pytest

import tidelog
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import check_cases
from tests.maintain.comparing import Comparison
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.database.database import kernel_of
from tidelog.engine import short_epochs
from tidelog.join.trace import RuleTrace
from tidelog.maintain import measured
from tidelog.maintain.measured import MeasuredCounting
from tidelog.store.versions import Version

TRIANGLE = """
.decl e(x: number, y: number)
.decl v(x: number, y: number, z: number)
v(x, y, z) :- e(x, y), e(y, z), e(x, z).
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record a trace after two epochs, whatever they took.

    Delta joins that the kernel of short epochs can finish are never waste, so that is off.
    """
    monkeypatch.setattr(short_epochs, "MOST_ROWS", 0)
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
    """Insert edges into an empty graph; return why each epoch did what it did."""
    return grow_on(db, 0, epochs)


def grow_on(db: tidelog.Database, start: int, epochs: int) -> list[str]:
    """Insert more edges, two in each epoch, from a node on."""
    said = []
    for number in range(start, start + epochs):
        with db.transaction() as tx:
            tx.insert("e", [(number, number + 1), (number, number + 2)])
        report = db.last_epoch.layer("v")
        assert report is not None
        said.append(report.why)
    assert len(db.view("v")) == start + epochs - 1
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
    assert said[:2] == ["", ""]
    assert all(why.startswith("by delta joins: its trace needs about ") for why in said[2:])
    assert not strategy_of(db).traces.by_rule


def test_the_memory_of_a_trace_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording stops at three times the memory of the facts, and says what all would take."""
    monkeypatch.setattr("tidelog.join.trace._ROOM", 256)
    rng = seeded("measured", "memory")
    edges = {(rng.randrange(60), rng.randrange(60)) for _ in range(1500)}
    db = tidelog.Database(TRIANGLE, facts={"e": edges})
    kernel = kernel_of(db)
    rule = strategy_of(db).joins[0].rule
    trace = RuleTrace(kernel.catalog, rule)
    read = kernel.catalog.relations["e"].nbytes
    assert not trace.record(Version.NEW, 3 * read)
    whole = RuleTrace(kernel.catalog, rule)
    assert whole.record(Version.NEW)
    assert whole.estimate == 0
    assert trace.estimate == pytest.approx(whole.nbytes, rel=1.0)
    assert whole.nbytes > 3 * read


@pytest.mark.usefixtures("hasty")
def test_a_trace_that_grows_too_large_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_FASTER", 0.0)
    db = tidelog.Database(TRIANGLE)
    grow(db, 4)
    assert strategy_of(db).traces.by_rule
    monkeypatch.setattr(measured, "_MEMORY", 0)
    said = grow_on(db, 4, 5)
    assert said[-1].startswith("by delta joins: its trace needs about ")
    assert not strategy_of(db).traces.by_rule


def test_waste_of_short_epochs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs in one call are timed as a whole; then the joins are run and timed one by one."""
    monkeypatch.setattr(measured, "_PATIENCE", 0.0)
    monkeypatch.setattr(measured, "_LEAST", 0.0)
    monkeypatch.setattr(measured, "_INSTANTIATION", 0.0)
    monkeypatch.setattr(measured, "_TRIAL", 2)
    monkeypatch.setattr(measured, "_MEMORY", 10**6)
    monkeypatch.setattr(measured, "_FASTER", 0.0)
    db = tidelog.Database(TRIANGLE)
    said = grow(db, 20)
    assert kernel_of(db).short_epochs.count > 0
    assert said[-1].startswith("by its trace: ")


def test_quick_epochs_are_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_LEAST", 1e9)
    db = tidelog.Database(TRIANGLE)
    grow(db, 12)
    count = kernel_of(db).short_epochs.count
    monkeypatch.setattr(measured, "_LEAST", -1e9)
    grow_on(db, 12, 4)  # each of them would be waste
    assert kernel_of(db).short_epochs.count == count + 3
    monkeypatch.setattr(measured, "_LEAST", 1e9)
    grow_on(db, 16, 20)
    assert count + 3 < kernel_of(db).short_epochs.count < count + 20


def test_long_epochs_between_short_ones_are_no_waste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such epochs, in which a domain was widened, once took the fraud feed over to a trace."""
    monkeypatch.setattr(measured, "_PATIENCE", 0.0)
    monkeypatch.setattr(measured, "_LEAST", -1e9)
    monkeypatch.setattr(measured, "_SUSPICIOUS", 1000)
    db = tidelog.Database(TRIANGLE, facts={"e": [(-(10**6), 10**6)]})
    (trial,) = strategy_of(db).trials.values()
    shorts = kernel_of(db).short_epochs

    def insert(start: int, rows: int) -> bool:
        """Insert edges; return whether the epoch was a short one."""
        before = shorts.count
        with db.transaction() as tx:
            tx.insert("e", [(start + i, -start - i - 1) for i in range(rows)])
        return shorts.count > before

    many = short_epochs.MOST_ROWS + 1
    while not insert(10 * shorts.count, 1) or shorts.count < 5:
        assert shorts.count < 50
    waste = trial.waste
    for start in range(1000, 1000 + 10 * many, many):
        assert not insert(start, many)
        assert any(insert(500_000 + start + i, 1) for i in range(5))
    assert trial.waste == waste
    monkeypatch.setattr(measured, "_SUSPICIOUS", 3)
    for start in range(100_000, 100_000 + 5 * many, many):
        assert not insert(start, many)
    assert trial.waste > waste


def test_a_trace_has_to_be_faster_than_short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins that run one by one may take longer than an epoch in one call."""
    monkeypatch.setattr(measured, "_PATIENCE", 0.0)
    monkeypatch.setattr(measured, "_LEAST", 0.0)
    monkeypatch.setattr(measured, "_INSTANTIATION", 0.0)
    monkeypatch.setattr(measured, "_TRIAL", 2)
    monkeypatch.setattr(measured, "_MEMORY", 10**6)
    monkeypatch.setattr(measured, "_FASTER", 1.0)
    db = tidelog.Database(TRIANGLE)
    strategy = strategy_of(db)
    assert [strategy.was_short(1e-9, 0) for _ in range(3)] == [False, False, True]
    said = grow(db, 8)
    assert any(why.startswith("by its trace: ") for why in said)
    (trial,) = strategy.trials.values()
    assert trial.waste > 0
    assert trial.declined.endswith("delta joins 0.00 ms")
    assert not strategy.traces.by_rule


def test_a_forced_strategy_forbids_it() -> None:
    db = tidelog.Database(TRIANGLE, strategy={"v": "counting"})
    assert not isinstance(kernel_of(db).strategies[-1], MeasuredCounting)
