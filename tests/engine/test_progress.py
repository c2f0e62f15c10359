"""Progress: told while the kernel is at work, shown on terminals only."""

import io
import sys
import threading

import pytest
from rich.console import Console

import tidelog
from tidelog.cli.progress import ProgressLine, describe, shown_progress
from tidelog.runtime import progress as module
from tidelog.runtime.progress import Meter, Progress, resident_memory

REACH = """
    .decl edge(x: number, y: number)
    .decl reach(x: number, y: number)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
"""
CHAIN = [(i, i + 1) for i in range(20)]


@pytest.fixture
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", -1.0)


@pytest.mark.usefixtures("_eager")
def test_the_listener_follows_the_work() -> None:
    seen: list[Progress] = []
    db = tidelog.Database(REACH, facts={"edge": CHAIN}, engine="kernel", progress=seen.append)
    assert {told.relations for told in seen} == {("reach",)}
    assert max(told.level for told in seen) == db.last_epoch.layers[0].levels
    assert seen[-1].rows == len(db.view("reach"))
    assert seen[-1].touched == db.last_epoch.touched
    assert [told.seconds for told in seen] == sorted(told.seconds for told in seen)
    assert seen[-1].memory > 1_000_000
    seen.clear()
    with db.transaction() as tx:
        tx.insert("edge", [(20, 21)])
    assert seen and seen[-1].touched == db.last_epoch.touched


@pytest.mark.usefixtures("_eager")
def test_what_the_listener_raises_ends_the_epoch() -> None:
    wanted = False

    def stop(progress: Progress) -> None:
        if wanted:
            raise TimeoutError("enough")

    db = tidelog.Database(REACH, facts={"edge": CHAIN}, engine="kernel", progress=stop)
    wanted = True
    with pytest.raises(TimeoutError, match="enough"), db.transaction() as tx:
        tx.insert("edge", [(20, 21)])
    wanted = False
    assert (db.epoch, len(db.view("edge")), len(db.view("reach"))) == (0, 20, 210)
    with db.transaction() as tx:
        tx.insert("edge", [(20, 21)])
    assert len(db.view("reach")) == 231


@pytest.mark.usefixtures("_eager")
def test_the_listener_cannot_read_an_unfinished_epoch() -> None:
    db: tidelog.Database | None = None

    def read(progress: Progress) -> None:
        if db is not None:
            len(db.view("reach"))

    db = tidelog.Database(REACH, facts={"edge": CHAIN}, engine="kernel", progress=read)
    with (
        pytest.raises(tidelog.UsageError, match="while a transaction commits"),
        db.transaction() as tx,
    ):
        tx.insert("edge", [(20, 21)])
    assert len(db.view("reach")) == 210


@pytest.mark.usefixtures("_eager")
def test_other_threads_wait_for_the_end_of_an_epoch() -> None:
    sizes: list[int] = []
    threads: list[threading.Thread] = []
    db: tidelog.Database | None = None

    def read_elsewhere(progress: Progress) -> None:
        if db is not None and not threads:
            view = db.view("reach")
            threads.append(threading.Thread(target=lambda: sizes.append(len(view))))
            threads[0].start()

    db = tidelog.Database(REACH, facts={"edge": CHAIN}, engine="kernel", progress=read_elsewhere)
    with db.transaction() as tx:
        tx.insert("edge", [(20, 21)])
    threads[0].join()
    assert sizes == [231]


def test_the_listener_is_not_called_too_often() -> None:
    seen: list[Progress] = []
    meter = Meter(seen.append)
    for _ in range(1000):
        meter.found(1)
    assert meter.touched == 1000
    assert len(seen) <= 1


def test_memory_is_known() -> None:
    assert resident_memory() > 1_000_000


def test_the_line_in_words() -> None:
    text = describe(Progress(("a", "b"), 3, 12_345, 67_890, 4.2))
    assert text.startswith("a, b · level 3 · 12,345 rows · 67,890 instantiations · 4 s · ")
    assert text.endswith(" MB")
    assert describe(Progress(("p",), 0, 0, 5, 1.0)).startswith("p · 5 instantiations · 1 s · ")


def test_the_line_is_shown_after_a_second_and_taken_away() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    line = ProgressLine(console)
    assert isinstance(console.file, io.StringIO)
    line(Progress(("p",), 1, 2, 3, 0.5))
    assert console.file.getvalue() == ""
    line(Progress(("p",), 1, 2, 3, 1.5))
    assert "p · level 1 · 2 rows" in console.file.getvalue()
    line.close()
    line.close()


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown_progress() as line:
        assert line is None
