"""`tidelog pipeline`: run, check and rescale."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.cli.compiling import compile_first
from tidelog.cli.pipeline_chart import write_chart
from tidelog.cli.pipeline_progress import shown_epochs
from tidelog.errors import DataError
from tidelog.logic.program import Program
from tidelog.sharding.describing import describe
from tidelog.sharding.layout import layout_on
from tidelog.sharding.sharding import Grid
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import read_pipeline_file
from tidelog.spark.state_folder import QUARANTINE

if TYPE_CHECKING:
    from tidelog.spark.epoch_done import EpochDone

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_pipeline(
    file: Path,
    *,
    once: bool,
    master: str | None,
    remote: str | None,
    placement: str | None,
    shards: int | None = None,
    until_idle: float | None = None,
    chart: Path | None = None,
) -> int:
    """Run the pipeline of a file; return the exit code.

    With `until_idle`, a continuous run ends when there was no epoch for that many seconds.
    """
    from tidelog.spark.connectors import settings_for
    from tidelog.spark.session import require_pyspark, ui_address, using_session

    spec = read_pipeline_file(file)
    with Pipeline.from_file(spec, placement=placement, shards=shards) as pipeline:
        pipeline.open()
        compile_first()
        places = {"master": master, "remote": remote}
        require_pyspark()
        settings = settings_for(spec.sources, spec.written, spec.spark)
        # Spark's Java process must not be left behind half started, so Ctrl-C waits for it, too.
        session = using_session(spec.name, **places, settings=settings)
        with _Stopping(pipeline) as stopping, session as spark:
            stopping.listen()  # PySpark has replaced the handler of Ctrl-C by its own
            address = ui_address(spark)
            if address:
                print(f"Spark's UI: {address}", file=sys.stderr, flush=True)
            with shown_epochs(spec.name) as show, _idle(pipeline, until_idle) as busy:

                def watch(done: EpochDone) -> None:
                    busy()
                    show(done)

                epochs = pipeline.run(spark, once=once, poll_seconds=spec.poll_seconds, watch=watch)
        if any(done.quarantined for done in epochs):
            print(f"quarantined rows, with reasons: {spec.state / QUARANTINE}", file=sys.stderr)
        print(_summary(pipeline, epochs), file=sys.stderr)
        if chart is not None:
            write_chart(chart, spec.name, epochs)
            print(f"rows, latency and lag of each epoch: {chart}", file=sys.stderr)
        for sentence in pipeline.overlooked():
            print(f"warning: {sentence}", file=sys.stderr)
    return 130 if stopping.received and once else 0


class _Stopping:
    """Lets the first Ctrl-C stop the pipeline after its epoch, and the second one at once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.received: list[int] = []

    def __enter__(self) -> _Stopping:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Handle the signals from now on."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if len(self.received) > 1:
            raise KeyboardInterrupt
        is_started = self._pipeline.is_started
        when = "after the current epoch" if is_started else "when Spark has started"
        print(f"stopping {when}; Ctrl-C again stops at once", file=sys.stderr, flush=True)
        self._pipeline.stop()


@contextmanager
def _idle(pipeline: Pipeline, seconds: float | None) -> Iterator[Callable[[], None]]:
    """Stop the pipeline some seconds after its last epoch; yield what says that there was one.

    An epoch may take its time: nothing ends before the first one, nor during one.
    """
    ended = threading.Event()
    last: list[float] = []

    def wait() -> None:
        assert seconds is not None
        while not ended.wait(min(0.2, seconds)):
            if pipeline.is_busy and last:
                busy()
            elif last and time.monotonic() > last[-1] + seconds:
                pipeline.stop()
                return

    def busy() -> None:
        last[:] = [time.monotonic()]

    if seconds is not None:
        threading.Thread(target=wait, daemon=True).start()
    try:
        yield busy
    finally:
        ended.set()


def _summary(pipeline: Pipeline, epochs: Sequence[EpochDone]) -> str:
    total = pipeline.totals()
    count = len(epochs)
    written = sum(done.written for done in epochs)
    jobs, tasks = sum(done.jobs for done in epochs), sum(done.tasks for done in epochs)
    return (
        f"{count:,} epoch{'s' * (count != 1)} in this run, the last is {pipeline.epoch}:"
        f" {total.received:,} rows received so far, {total.accepted:,} accepted,"
        f" {total.quarantined:,} quarantined; {written:,} rows out, {jobs:,} Spark jobs,"
        f" {tasks:,} tasks in this run"
    )


def check_pipeline(file: Path) -> None:
    """Report the errors in a pipeline file, or that there are none."""
    from tidelog.spark.source_files import FileSource

    spec = read_pipeline_file(file)
    pipeline = Pipeline.from_file(spec)
    problems = [
        problem
        for source in pipeline.sources
        if isinstance(source, FileSource) and (problem := source.check_first())
    ]
    if problems:
        raise DataError("\n".join(problems))
    counts = f"{_counted(len(spec.sources), 'source')}, {_counted(len(spec.sinks), 'sink')}"
    if spec.triggers:
        counts += f", {_counted(len(spec.triggers), 'trigger')}"
    for source in pipeline.sources:
        if isinstance(source, FileSource) and source.is_empty:
            print(
                f"warning: source `{source.name}`: there are no files in `{source.where}` yet",
                file=sys.stderr,
            )
    chosen = pipeline.chosen
    print(f"{file}: fine ({counts}, placement {chosen.name})")
    if chosen.why:
        print(f"placement {chosen.name}: {chosen.why}")
    if chosen.name == "sharded":
        program = Program.load(spec.program)
        print("\n".join(describe(layout_on(program, Grid(chosen.sides)))))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def rescale_pipeline(file: Path, placement: str, shards: int | None) -> None:
    """Move the state of a pipeline, and print what was done."""
    from tidelog.spark.rescaling import rescale

    spec = read_pipeline_file(file)
    print(f"{spec.name}: {rescale(spec, placement, shards)}")
