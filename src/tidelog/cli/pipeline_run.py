"""`tidelog pipeline`: run, check and status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.cli.pipeline_progress import shown_epochs
from tidelog.errors import DataError
from tidelog.logic.program import Program
from tidelog.plan.sharding import Grid
from tidelog.plan.sharding_search import on_grid
from tidelog.plan.sharding_words import describe
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import read_pipeline_file

if TYPE_CHECKING:
    from tidelog.spark.pipeline_file import PipelineFile
    from tidelog.spark.placements import Chosen

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_pipeline(
    file: Path,
    *,
    once: bool,
    master: str | None,
    remote: str | None,
    placement: str | None,
    shards: int | None = None,
) -> int:
    """Run the pipeline of a file; return the exit code."""
    from tidelog.spark.session import open_session

    spec = read_pipeline_file(file)
    with Pipeline.from_file(spec, placement=placement, shards=shards) as pipeline:
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
    chosen = pipeline.chosen
    print(f"{file}: fine ({counts}, placement {chosen.name})")
    if chosen.why:
        print(f"placement {chosen.name}: {chosen.why}")
    if chosen.name == "sharded":
        program = Program.load(spec.program)
        print("\n".join(describe(program, on_grid(program, Grid(chosen.sides)))))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def show_status(file: Path) -> None:
    """Print how far the pipeline of a file has come."""
    spec = read_pipeline_file(file)
    for line in _status(spec):
        print(line)


def rescale_pipeline(file: Path, placement: str, shards: int | None) -> None:
    """Move the state of a pipeline, and say so."""
    from tidelog.spark.rescaling import rescale

    spec = read_pipeline_file(file)
    print(f"{spec.name}: {rescale(spec, placement, shards)}")


def _status(spec: PipelineFile) -> Iterator[str]:
    from tidelog.spark.placements import found
    from tidelog.spark.sources import FileSource

    pipeline = Pipeline.from_file(spec)
    there = found(spec.state)
    if there is None:
        yield f"{spec.name}: no epoch yet"
        return
    epoch, offsets, counts = _read_sharded(there) if there.sides else _read_database(there)
    yield f"{spec.name}: epoch {epoch}"
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


_Remembered = tuple[int, dict[str, dict[str, str]], dict[str, tuple[int, ...]]]


def _read_database(there: Chosen) -> _Remembered:
    from tidelog.engine.reader import DatabaseReader
    from tidelog.spark.placement_driver import COUNTS, OFFSETS

    reader = DatabaseReader(there.folder)
    counts = {row[0]: row[1:] for row in reader.view(COUNTS)}
    offsets: dict[str, dict[str, str]] = {}
    for source, item, mark in reader.view(OFFSETS):
        offsets.setdefault(source, {})[item] = mark
    return reader.epoch, offsets, counts


def _read_sharded(there: Chosen) -> _Remembered:
    from tidelog.spark.shard_manifest import Epochs

    epochs = Epochs(there.folder)
    last = epochs.read(epochs.numbers()[-1])
    memory = epochs.memory(last)
    counts = {source: astuple(count) for source, count in memory.counts.items()}
    return last.epoch, memory.offsets, counts
