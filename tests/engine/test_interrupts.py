"""Ctrl-C while the kernel is at work: the database stays at its last committed epoch."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from tests.engine.budget import always_bootstrap, always_update
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import Effects
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.maintain import walk
from tidelog.runtime import progress
from tidelog.runtime.interrupts import Interrupts
from tidelog.runtime.progress import Progress

REACH = """
    .decl edge(x: number, y: number)
    .decl reach(x: number, y: number)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
    .decl count_of(x: number, n: number)
    count_of(x, n) :- edge(x, _), n = count : { reach(x, _) }.
"""
SIZE = 300  # a chain: SIZE * SIZE / 2 rows, in SIZE rounds


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: a Spark session of an earlier test may handle it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def chain(size: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(size)]


def engine_of(db: tidelog.Database) -> KernelEngine:
    return kernel_of(db)


def interrupted_after(seconds: float, work: Callable[[], object]) -> bool:
    """Do the work, with an interrupt on the way or just behind; return whether it was cut short."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    done = False
    try:
        timer.start()
        try:
            work()
            done = True
        finally:
            timer.cancel()
            timer.join()
    except KeyboardInterrupt:
        pass
    return not done


def is_intact(db: tidelog.Database, edges: list[tuple[int, int]], epoch: int) -> None:
    """Check that the database holds the closure of a chain, and takes a transaction."""
    engine_of(db).check()
    assert db.epoch == epoch
    assert len(db.view("edge")) == len(edges)
    assert len(db.view("reach")) == len(edges) * (len(edges) + 1) // 2
    last = len(edges)
    with db.transaction() as tx:
        tx.insert("edge", [(last, last + 1)])
    assert len(tx.changes["reach"].inserted) == last + 1
    assert db.epoch == epoch + 1
    with db.transaction() as tx:
        tx.delete("edge", [(last, last + 1)])
    assert len(tx.changes["reach"].deleted) == last + 1
    engine_of(db).check()


@pytest.fixture(scope="module")
def db() -> tidelog.Database:
    return tidelog.Database(REACH, facts={"edge": chain(SIZE)}, engine="kernel")


MIDDLE = (SIZE // 2, SIZE // 2 + 1)


def cut(db: tidelog.Database) -> None:
    with db.transaction() as tx:
        tx.delete("edge", [MIDDLE])
        tx.insert("edge", [(10**12, 0)])  # another layout for all rows


def mend(db: tidelog.Database) -> None:
    with db.transaction() as tx:
        tx.insert("edge", [MIDDLE])
        tx.delete("edge", [(10**12, 0)])


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_an_update(db: tidelog.Database, share: float) -> None:
    """An interrupt after a share of the time that an update takes; earlier if that is too late."""
    always_update(db)
    start = time.perf_counter()
    cut(db)
    seconds = time.perf_counter() - start
    mend(db)
    for attempt in range(25):
        epoch = db.epoch
        interrupted_after(seconds * share * 0.8**attempt, lambda: cut(db))
        if db.epoch == epoch:
            is_intact(db, chain(SIZE), epoch)
            return
        assert db.epoch == epoch + 1  # the interrupt came after the commit: the epoch counts
        mend(db)
    pytest.fail("no update was cut short")


class Interrupter:
    """A listener that interrupts the work when it has told about it so many times."""

    def __init__(self) -> None:
        self.left = -1

    def __call__(self, progress: Progress) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("way", "after"),
    [("update", n) for n in (1, 2, 10, 20)] + [("bootstrap", n) for n in (1, 2, 40, 200)],
)
def test_every_stage_of_an_epoch(way: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE", -1.0)
    monkeypatch.setattr(walk, "_FIRST_ROOM", 1)  # so that it asks for more again and again
    listener = Interrupter()
    facts = {"edge": chain(SIZE)}
    db = tidelog.Database(REACH, facts=facts, engine="kernel", progress=listener)
    if way == "update":
        always_update(db)
    else:
        always_bootstrap(db, monkeypatch)
    listener.left = after
    with pytest.raises(KeyboardInterrupt):
        cut(db)
    is_intact(db, chain(SIZE), 0)


def test_the_first_evaluation() -> None:
    def evaluate() -> None:
        tidelog.Database(REACH, facts={"edge": chain(12 * SIZE)}, engine="kernel")

    assert interrupted_after(0.3, evaluate)
    is_intact(tidelog.Database(REACH, facts={"edge": chain(9)}, engine="kernel"), chain(9), 0)


def test_one_long_join() -> None:
    """A join without results comes back from the kernel now and then all the same."""
    numbers = [(i,) for i in range(20_000)]

    def evaluate() -> None:
        tidelog.Database(
            ".decl n(x: number) .decl p(x: number) p(x) :- n(x), n(y), x + y = 1000000.",
            facts={"n": numbers},
            engine="kernel",
        )

    start = time.perf_counter()
    assert interrupted_after(0.5, evaluate)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("engine", ["reference", "kernel"])
def test_an_interrupt_when_an_epoch_is_kept_comes_after_it(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tidelog.Database(REACH, engine=engine)
    kind: Any = ReferenceEngine if engine == "reference" else KernelEngine
    plain = kind.apply

    def apply(*arguments: Any) -> Effects:
        effects: Effects = plain(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return effects

    with monkeypatch.context() as patched:
        patched.setattr(kind, "apply", apply)
        tx = db.transaction()
        with pytest.raises(KeyboardInterrupt), tx:
            tx.insert("edge", chain(3))
    assert db.epoch == 1
    assert len(tx.changes["reach"].inserted) == len(db.view("reach")) == 6
    with db.transaction() as tx:
        tx.delete("edge", [(0, 1)])
    assert len(db.view("reach")) == 3


def test_the_reference_engine_is_interrupted_at_once() -> None:
    db = tidelog.Database(REACH, engine="reference")

    def insert() -> None:
        with db.transaction() as tx:
            tx.insert("edge", chain(3000))

    assert interrupted_after(0.3, insert)
    assert (db.epoch, len(db.view("edge"))) == (0, 0)


def test_interrupts_are_noted_and_raised_where_asked() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            pytest.fail("the interrupt is lost")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with Interrupts().allowed():
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_nobody_asked_for_comes_at_the_end() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        done = True
    assert done


def test_interrupts_in_another_thread_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
