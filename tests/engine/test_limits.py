"""Limits end an epoch with an error, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core.event import trigger_event

import tidelog
from tests.engine.budget import always_bootstrap, always_update
from tidelog.database.database import kernel_of
from tidelog.maintain.elastic import Elastic
from tidelog.runtime import compile_clock, progress
from tidelog.runtime.limits import Limits, resident_memory, size_in_bytes

RUNAWAY = """
.decl start(x: number)
.decl n(x: number)
n(x) :- start(x).
n(x + 1) :- n(x).
"""
CHAIN = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


def chain(length: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(length)]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Have the kernels ready: compiling them takes longer than the time limits here."""
    for budget in (None, 0.0):
        db = tidelog.Database(RUNAWAY, level_limit=20)
        for strategy in kernel_of(db).strategies:
            if isinstance(strategy, Elastic):
                strategy.budget = budget
        with pytest.raises(tidelog.LimitError), db.transaction() as tx:
            tx.insert("start", [(1,)])


@pytest.mark.parametrize("how", ["update", "bootstrap"])
@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"level_limit": 50}, r"the recursion of `n` goes beyond 50 levels"),
        ({"time_limit": 0.3}, r"the epoch takes more than 0.3 s at level [\d,]+ of `n`|, `n`"),
    ],
)
def test_a_runaway_recursion(
    how: str, limit: dict[str, float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tidelog.Database(RUNAWAY, **limit)  # type: ignore[arg-type]
    if how == "update":
        always_update(db)
    else:
        always_bootstrap(db, monkeypatch)
    for _ in range(2):
        with pytest.raises(tidelog.LimitError, match=said), db.transaction() as tx:
            tx.insert("start", [(1,)])
        assert db.epoch == 0
        assert list(db.view("n")) == []
        assert list(db.view("start")) == []
    kernel_of(db).check()


def test_the_first_evaluation_is_limited_too() -> None:
    with pytest.raises(tidelog.LimitError, match="goes beyond 9 levels"):
        tidelog.Database(RUNAWAY, facts={"start": [(1,)]}, level_limit=9)


@pytest.mark.parametrize("how", ["update", "bootstrap"])
def test_levels_up_to_the_limit_are_fine(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of n edges has n levels."""
    db = tidelog.Database(CHAIN, facts={"edge": chain(6)}, level_limit=6)
    if how == "update":
        always_update(db)
    else:
        always_bootstrap(db, monkeypatch)
    with pytest.raises(tidelog.LimitError), db.transaction() as tx:
        tx.insert("edge", [(6, 7)])
    with db.transaction() as tx:
        tx.delete("edge", [(0, 1)])
        tx.insert("edge", [(6, 7)])
    assert len(db.view("reach")) == 21
    with pytest.raises(tidelog.LimitError):
        tidelog.Database(CHAIN, facts={"edge": chain(7)}, level_limit=6)


def test_a_memory_limit(tmp_path: Path) -> None:
    program = """
        .decl p(x: number)
        .decl q(x: number, y: number, z: number)
        q(x, y, z) :- p(x), p(y), p(z).
    """
    limit = resident_memory() + 150_000_000
    with tidelog.Database(program, path=tmp_path, memory_limit=limit) as db:
        with db.transaction() as tx:
            tx.insert("p", [(i,) for i in range(20)])
        refused = pytest.raises(tidelog.LimitError, match="GB, more than its limit of")
        with refused as error, db.transaction() as tx:
            tx.insert("p", [(i,) for i in range(500)])
        assert "nothing was changed" in str(error.value)
        assert len(db.view("q")) == 8000
    with tidelog.Database(program, path=tmp_path) as db:
        assert db.epoch == 1
        assert len(db.view("q")) == 8000


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2_000_000_000), ("1.5 MB", 1_500_000), ("4KiB", 4096), ("7", 7), (None, None)],
)
def test_sizes(text: str | None, size: int | None) -> None:
    assert size_in_bytes(text) == size


RECOMPUTED = """
.decl e(z: number)
.decl p(x: number)
p(y) :- e(y).
p(y) :- p(x), n = count : { e(z), z > -1 - x }, y = x + n.
"""


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"level_limit": 50}, r"the recursion of `p` goes beyond 50 levels"),
        ({"time_limit": 0.3}, r"the epoch takes more than 0.3 s at level [\d,]+ of `p`"),
        ({"memory_limit": 1}, r"GB, more than its limit of 0.00 GB at level [\d,]+ of `p`"),
    ],
)
def test_a_stratum_that_is_evaluated_anew(limit: dict[str, float], said: str) -> None:
    db = tidelog.Database(RECOMPUTED, **limit)  # type: ignore[arg-type]
    assert "maintained by recompute" in db.explain("p")
    for _ in range(2):
        with pytest.raises(tidelog.LimitError, match=said), db.transaction() as tx:
            tx.insert("e", [(0,)])
        assert db.epoch == 0
        assert not list(db.view("p"))
    with pytest.raises(tidelog.LimitError, match=said):
        tidelog.Database(RECOMPUTED, facts={"e": [(0,)]}, **limit)  # type: ignore[arg-type]


def test_a_large_join_that_finds_nothing_is_limited_when_it_is_evaluated_anew() -> None:
    program = RECOMPUTED.replace("z > -1 - x", "z > x, e(a), e(b), a + b < -1")
    db = tidelog.Database(program, time_limit=0.2)
    with pytest.raises(tidelog.LimitError, match=r"more than 0.2 s"), db.transaction() as tx:
        tx.insert("e", [(i,) for i in range(2000)])


def test_compiling_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still while Numba is at work; what it tells is a nested pair of events."""
    now = 100.0
    for module in (progress, compile_clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
    meter = progress.Meter(limits=Limits(seconds=5.0))
    meter.start()
    meter.begin()
    with trigger_event("numba:compiler_lock"):
        now += 30
        with trigger_event("numba:compiler_lock"):
            now += 30
    now += 4
    meter.found(1)
    now += 2
    with pytest.raises(tidelog.LimitError, match="more than 5 s"):
        meter.found(1)
    meter.start()
    now += 4
    meter.found(1)
