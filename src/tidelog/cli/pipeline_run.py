"""`tidelog pipeline`: run, check and status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.cli.pipeline_progress import shown_epochs
from tidelog.errors import DataError, UsageError
from tidelog.spark.pipeline import Pipeline, check_placement
from tidelog.spark.pipeline_file import read_pipeline_file

if TYPE_CHECKING:
    from tidelog.spark.pipeline_file import PipelineFile

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_pipeline(
    file: Path, *, once: bool, master: str | None, remote: str | None, placement: str | None
) -> int:
    """Run the pipeline of a file; return the exit code."""
    from tidelog.spark.session import open_session

    spec = read_pipeline_file(file)
    with Pipeline.from_file(spec, placement=placement) as pipeline:
        spark = open_session(spec.name, master=master, remote=remote, settings=spec.spark)
        try:
            with _stopping(pipeline) as stopped, shown_epochs(spec.name) as watch:
                epochs = pipeline.run(spark, once=once, poll_seconds=spec.poll_seconds, watch=watch)
        finally:
            spark.stop()
        print(_summary(pipeline, len(epochs)), file=sys.stderr)
        for sentence in pipeline.overlooked():
            print(f"warning: {sentence}", file=sys.stderr)
    return 130 if stopped and once else 0


@contextmanager
def _stopping(pipeline: Pipeline) -> Iterator[list[int]]:
    """Have the first Ctrl-C stop the pipeline after its epoch, and the second one at once."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        print("stopping: the epoch under way is finished first", file=sys.stderr)
        pipeline.stop()

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(pipeline: Pipeline, epochs: int) -> str:
    total = pipeline.totals()
    return (
        f"{epochs:,} epoch{'s' * (epochs != 1)} in this run, the last is {pipeline.epoch}:"
        f" {total.received:,} rows received so far, {total.accepted:,} accepted,"
        f" {total.quarantined:,} quarantined"
    )


def check_pipeline(file: Path) -> None:
    """Report the mistakes of a pipeline file, or that there are none."""
    from tidelog.spark.sources import FileSource

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
    print(f"{file}: fine ({counts}, placement {check_placement(spec.placement)})")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def show_status(file: Path) -> None:
    """Print how far the pipeline of a file has come."""
    spec = read_pipeline_file(file)
    for line in _status(spec):
        print(line)


def _status(spec: PipelineFile) -> Iterator[str]:
    from tidelog.engine.reader import DatabaseReader
    from tidelog.spark.placement_driver import COUNTS, OFFSETS
    from tidelog.spark.sources import FileSource

    pipeline = Pipeline.from_file(spec)
    try:
        reader = DatabaseReader(spec.state / "database")
    except UsageError:
        yield f"{spec.name}: no epoch yet"
        return
    yield f"{spec.name}: epoch {reader.epoch}"
    counts = {row[0]: row[1:] for row in reader.view(COUNTS)}
    offsets: dict[str, dict[str, str]] = {}
    for source, item, mark in reader.view(OFFSETS):
        offsets.setdefault(source, {})[item] = mark
    for source in pipeline.sources:
        received, accepted, quarantined = counts.get(source.name, (0, 0, 0))
        line = (
            f"source {source.name}: {received:,} received, {accepted:,} accepted,"
            f" {quarantined:,} quarantined"
        )
        if isinstance(source, FileSource):
            known = offsets.get(source.name, {})
            line += source.describe(known)
        yield line
    for sink in pipeline.sinks:
        behind = "nothing written" if sink.epoch is None else f"written up to epoch {sink.epoch}"
        yield f"sink {sink.name}: {behind}"
