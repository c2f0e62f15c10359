"""`tidelog pipeline`: reset, refresh and replay-quarantine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import PipelineFile, read_pipeline_file


def reset_pipeline(file: Path, *, yes: bool) -> None:
    """Remove the state of a pipeline, if the user agrees."""
    from tidelog.spark.state_folder import reset

    spec = read_pipeline_file(file)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("reset removes the state of the pipeline\n  help: say so with --yes")
        question = (
            f"Remove the state of {spec.name} in {spec.state}? Sources are read again. [y/N] "
        )
        if input(question).strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return
    kept = [*(source.path for source in spec.sources), *(sink.path for sink in spec.sinks)]
    removed = reset(spec.state, [path for path in kept if path])
    print(f"{spec.name}: removed {', '.join(removed)}" if removed else f"{spec.name}: no state")


def refresh_pipeline(file: Path, view: str | None, places: dict[str, str | None]) -> None:
    """Evaluate the views again, write tables again, and print what differs."""
    from tidelog.spark.refreshing import refresh

    spec = read_pipeline_file(file)
    _require_epoch(spec, "refresh")
    with _session(spec, places) as spark:
        done = refresh(spec, spark, view)
    for name, (missing, extra) in done.differences.items():
        print(f"{name}: {missing:,} rows were missing, {extra:,} should not have been there")
    if not done.differences:
        print(f"{spec.name}: epoch {done.epoch}, all views are as they should be")
    for sink, rows in done.written.items():
        print(f"sink {sink}: {rows:,} rows written")
    for told in spec.sinks:
        if told.what == "changes" and told.view in done.differences:
            print(f"warning: changes of `{told.view}` lack this correction", file=sys.stderr)


def replay_quarantine(file: Path, source: str | None, places: dict[str, str | None]) -> None:
    """Apply the rows of the quarantine that fit now, and print how many."""
    spec = read_pipeline_file(file)
    _require_epoch(spec, "replay")
    with Pipeline.from_file(spec) as pipeline, _session(spec, places) as spark:
        done = pipeline.replay(spark, source)
    for name, left in done.left.items():
        taken = done.taken.get(name, 0)
        print(f"source {name}: {taken:,} rows replayed, {left:,} stay in the quarantine")
    print(
        f"{spec.name}: nothing replayed"
        if done.epoch is None
        else f"{spec.name}: epoch {done.epoch}"
    )


def _require_epoch(spec: PipelineFile, verb: str) -> None:
    """Raise UsageError if a pipeline has no state, before Spark is started for nothing."""
    from tidelog.spark.placements import existing

    if existing(spec.state) is None:
        raise UsageError(
            f"{spec.name}: there is nothing to {verb}: the pipeline has no epoch yet"
            "\n  help: `tidelog pipeline run` makes the first one"
        )


@contextmanager
def _session(spec: PipelineFile, places: dict[str, str | None]) -> Iterator[Any]:
    from tidelog.cli.compiling import compile_first
    from tidelog.spark.connectors import settings_for
    from tidelog.spark.session import require_pyspark, using_session

    compile_first()
    require_pyspark()
    settings = settings_for(spec.sources, spec.written, spec.spark)
    with using_session(spec.name, **places, settings=settings) as spark:
        yield spark
