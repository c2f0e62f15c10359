"""Parts of a pipeline that fail for a while: the others go on, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.piping import PROGRAM, Folder
from tidelog.errors import DataError, UsageError
from tidelog.runtime.retry import Clock, Retry
from tidelog.spark import Pipeline, Sink, Source
from tidelog.spark.failures import Failures, recorded
from tidelog.spark.pipeline_epochs import PipelineEpochs
from tidelog.spark.retries import Outage
from tidelog.spark.stream import EpochStream

pytestmark = pytest.mark.sampled(3)


class TestClock(Clock):
    """A clock that waits at once, and notes for how long it should have."""

    __test__ = False

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self.waits.append(seconds)
        self.time += seconds

    def chance(self) -> float:
        return 1.0


class Said(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


class Target:
    """A Python sink that is away for some calls."""

    def __init__(self, away: int) -> None:
        self.away, self.epochs = away, list[int]()

    def __call__(self, epoch: int, rows: pa.Table) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionError("no route to host")
        self.epochs.append(epoch)


def made(folder: Folder, *sources: Source, sinks: list[Sink], **keys: Any) -> tuple[Pipeline, Said]:
    said = Said()
    keys = {"clock": TestClock(), "report": said, **keys}
    return Pipeline(
        PROGRAM, state=folder.path / "state", sources=sources, sinks=sinks, **keys
    ), said


def test_the_record_quotes_no_row(tmp_path: Path) -> None:
    clock, said = TestClock(), Said()
    failures = Failures(tmp_path / "failures.json", clock, said)
    attempts = failures.of("sink", "out", Retry(1, 2.0))
    failures.failed("sink", "out", Outage("org.x.SQLException: row (secret-row) is there already"))
    assert (attempts.is_due, attempts.wait_seconds, attempts.is_exhausted) == (False, 2.0, False)
    clock.time = 2.0
    assert attempts.is_due
    failures.failed("sink", "out", Outage("java.net.ConnectException: refused"))
    assert (attempts.wait_seconds, attempts.is_exhausted) == (4.0, True)
    (failure,) = recorded(tmp_path / "failures.json")
    assert (failure.kind, failure.name, failure.tries) == ("sink", "out", 2)
    assert failure.error == "java.net.ConnectException"
    assert "secret" not in (tmp_path / "failures.json").read_text()
    failures.failed("sink", "out", UsageError("wrong"))
    clock.time = 1e9
    assert not attempts.is_due, "waiting does not help"
    failures.succeeded("sink", "out")
    assert recorded(tmp_path / "failures.json") == []
    assert said[0] == (
        "sink `out` failed, once, again in 2.0 s:"
        " org.x.SQLException: row (secret-row) is there already"
    )
    assert said[-1] == "sink `out` works again, after 3 times"


def test_a_sink_that_fails_does_not_stop_the_others(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    source = folder.source("edge", "csv")
    bad, good = Target(100), Target(0)
    sinks = [
        Sink("reach", "changes", "python", name="bad", call=bad, retry=2),
        Sink("reach", "changes", "python", name="good", call=good),
    ]
    pipeline, said = made(folder, source, sinks=sinks)
    with pipeline, pytest.raises(ConnectionError, match="no route"):
        pipeline.run(spark)
    assert (bad.epochs, good.epochs, bad.away) == ([], [0], 97)
    assert [line.partition(":")[0] for line in said] == [
        "sink `bad` failed, once, again in 1.0 s",
        "sink `bad` failed, 2 times, again in 2.0 s",
        "sink `bad` failed, 3 times, again in 4.0 s",
    ]
    (failure,) = recorded(tmp_path / "state" / "failures.json")
    assert (failure.name, failure.tries, failure.error) == ("bad", 3, "ConnectionError")
    folder.write("edge/b", "2,3\n")
    bad.away = 1
    pipeline, said = made(folder, source, sinks=sinks)
    with pipeline:
        pipeline.run(spark)
    assert (bad.epochs, good.epochs) == ([1], [0, 1])  # the first change has all rows
    assert said[-1] == "sink `bad` works again, after once"
    assert not (tmp_path / "state" / "failures.json").exists()


def test_several_that_fail_are_named(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    sinks = [Sink("reach", "table", "python", name=n, call=Target(9), retry=0) for n in "ab"]
    pipeline, _ = made(folder, folder.source("edge", "csv"), sinks=sinks)
    with pipeline, pytest.raises(DataError, match=r"2 parts .* failed: sink `a`, sink `b`"):
        pipeline.run(spark)


def test_a_sink_falls_behind_and_catches_up(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/0", "0,1\n")
    good, bad = Target(0), Target(0)
    sinks = [
        Sink("edge", "changes", "python", name="bad", call=bad),
        Sink("edge", "changes", "python", name="good", call=good),
    ]
    clock = TestClock()
    pipeline, said = made(folder, folder.source("edge", "csv"), sinks=sinks, clock=clock)

    def watch(done: Any) -> None:
        if done.epoch == 0:
            bad.away = 3
        if done.epoch < 3:
            folder.write(f"edge/{done.epoch + 1}", f"{done.epoch + 1},0\n")
        else:
            assert (bad.epochs, good.epochs) == ([0], [0, 1, 2, 3])
            clock.time += 100  # it is tried again, without a new epoch
            threading.Timer(2, stop_when, [lambda: len(bad.epochs) > 1]).start()

    def stop_when(test: Callable[[], bool]) -> None:
        clock.time += 100
        if test():
            pipeline.stop()
        else:
            threading.Timer(0.2, stop_when, [test]).start()

    with pipeline:
        pipeline.run(spark, once=False, poll_seconds=0.01, watch=watch)
    assert bad.epochs == [0, 1, 2, 3]
    assert "sink `bad` works again" in said[-1]


class Table:
    """A table that is away for some reads, at once or when its rows are read."""

    def __init__(self, away: int, late: bool) -> None:
        self.away, self.late = away, late

    def __call__(self, spark: Any) -> Any:
        from pyspark.sql import functions as F

        frame = spark.createDataFrame([(7, 8)], "x long, y long")
        if self.away:
            self.away -= 1
            if not self.late:
                raise ConnectionError("no route to host")
            return frame.select(F.raise_error(F.lit("gone")).cast("long").alias("x"), "y")
        return frame


@pytest.mark.parametrize("late", [False, True])
def test_a_table_that_is_away_is_not_empty(spark: Any, tmp_path: Path, late: bool) -> None:
    folder = Folder(tmp_path)
    folder.write("label/a", "7,seven\n")
    table = Table(0, late)
    sources = [Source("edge", mode="snapshot", frame=table), folder.source("label", "csv")]
    pipeline, said = made(folder, *sources, sinks=[])
    with pipeline:
        pipeline.run(spark)
    assert said == []
    folder.write("label/b", "8,eight\n")
    table.away = 100
    pipeline, said = made(folder, *sources, sinks=[], retry=1)
    with pipeline:
        with pytest.raises(Outage, match=r"no route|gone"):
            pipeline.run(spark)
        assert set(pipeline.database.view("label")) == {(7, "seven"), (8, "eight")}
        assert set(pipeline.database.view("edge")) == {(7, 8)}
    assert len(said) == 2
    table.away = 1
    pipeline, said = made(folder, *sources, sinks=[])
    with pipeline:
        pipeline.run(spark)
    assert said[-1] == "source `edge` works again, after once"


def test_a_first_outage_makes_no_epoch(spark: Any, tmp_path: Path) -> None:
    source = Source("edge", mode="snapshot", frame=Table(9, False))
    pipeline, _ = made(Folder(tmp_path), source, sinks=[], retry=1)
    with pipeline:
        with pytest.raises(Outage):
            pipeline.run(spark)
        assert pipeline.epoch == -1


def test_a_query_is_started_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/0", "0,1\n")
    away = [2]
    start, applied = EpochStream.start, PipelineEpochs.micro_batch

    def starting(self: Any, *args: Any) -> None:
        if away[0] == 2:
            away[0] -= 1
            raise Outage("no broker")
        start(self, *args)

    def failing(self: Any, *args: Any, **keys: Any) -> Any:
        if away[0] == 1:
            away[0] -= 1
            raise Outage("the broker has gone")
        return applied(self, *args, **keys)

    monkeypatch.setattr(EpochStream, "start", starting)
    monkeypatch.setattr(PipelineEpochs, "micro_batch", failing)
    pipeline, said = made(folder, folder.source("edge", "csv"), sinks=[])
    with pipeline:
        pipeline.run(spark, once=False, poll_seconds=0.01, watch=lambda done: pipeline.stop())
        assert set(pipeline.database.view("edge")) == {(0, 1)}
    assert said[:2] == [
        "query `pipeline` failed, once, again in 1.0 s: no broker",
        "query `pipeline` failed, 2 times, again in 2.0 s: the broker has gone",
    ]


def test_an_error_of_a_rule_is_not_tried_again(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number)\n.decl q(x: number)\nq(1 / x) :- p(x).\n"
    folder = Folder(tmp_path, program)
    folder.write("p/a", "0\n")
    said = Said()
    with (
        pytest.raises(DataError, match="division by zero"),
        Pipeline(
            program, state=tmp_path / "state", sources=[folder.source("p", "csv")], report=said
        ) as pipeline,
    ):
        pipeline.run(spark, once=False, poll_seconds=0.01)
    assert said == []
