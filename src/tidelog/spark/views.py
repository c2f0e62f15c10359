"""DataFrames in, DataFrames out: for programs that have a session of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidelog.engine.database import Database
from tidelog.errors import DataError
from tidelog.logic.program import Program
from tidelog.spark.declared import Source
from tidelog.spark.frames import to_frame
from tidelog.spark.gathering import gather
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.sources import FrameSource


def view(spark: Any, program: str | Path | Program, frames: Mapping[str, Any]) -> dict[str, Any]:
    """Return the views of a program on the rows of DataFrames, as DataFrames by name.

    `frames` gives the rows of relations; columns are found by name. The views are those with an
    `.output` directive, or else all relations that a rule derives. One Spark job reads all frames.
    Raises DataError for a row that does not fit.
    """
    match program:
        case Path():
            program = Program.load(program)
        case str():
            program = Program.parse(program)
    empty = Database(program, _expects_updates=False) if not frames else None
    sources = []
    for name, frame in frames.items():
        relation = _declared(program, name)
        sources.append(FrameSource(Source(name, frame=frame), name, relation, program.records))
    batches = [source.poll(spark, {}) for source in sources]
    parts = [part for batch in batches if batch is not None for part in batch.parts]
    facts = {}
    for source, table in zip(sources, gather(parts), strict=True):
        checked = source.checker.check(table, {}, "")
        if checked.bad:
            first = checked.bad[0]
            raise DataError(
                f"{len(checked.bad):,} of {checked.received:,} rows do not fit"
                f" `{source.relation}`; the first: {first.reason}\n  row: {first.row}"
            )
        facts[source.name] = checked.rows
    database = empty or Database(program, facts=facts, _expects_updates=False)
    wanted = program.outputs or tuple(name for name in program.relations if name in program.derived)
    return {name: to_frame(spark, database.view(name).to_arrow()) for name in wanted}


def batch_writer(pipeline: Pipeline, source: str) -> Callable[[Any, int], None]:
    """Return a function for `writeStream.foreachBatch`, which gives its batches to a source.

    The source is one of format `batches`. A batch that Spark hands over twice is taken once.
    """
    started = False

    def write(frame: Any, number: int) -> None:
        nonlocal started
        if not started:
            pipeline.start(frame.sparkSession)
            started = True
        pipeline.take(source, frame, number)

    return write


def _declared(program: Program, name: str) -> Any:
    from tidelog.engine.history import declared

    return declared(program, name)
