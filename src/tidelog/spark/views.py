"""DataFrames in, DataFrames out: for programs with a session of their own."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.database.core import Options
from tidelog.database.database import open_database
from tidelog.errors import DataError, UsageError
from tidelog.logic.program import Program
from tidelog.spark.declared import Declaration, Source
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.frames import to_frame
from tidelog.spark.jobs import context_of
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.sources import FrameSource


def view(spark: Any, program: str | Path | Program, frames: Mapping[str, Any]) -> dict[str, Any]:
    """Return the views of a program on the rows of DataFrames, as DataFrames by name.

    `frames` has the rows of relations; columns are matched by name. The views are those with an
    `.output` directive, or else all relations that a rule derives. One Spark job reads all frames.
    Raises DataError for a row that does not fit.
    """
    program = Program.of(program)
    options = Options(expects_updates=False)
    empty = open_database(program, options) if not frames else None
    sources = []
    for name, frame in frames.items():
        relation = program.relation(name)
        sources.append(FrameSource(Source(name, frame=frame), name, relation, program.records))
    batches = [(source, batch) for source in sources if (batch := source.poll(spark, {}))]
    found = EpochInput(spark, batches)
    tables = found.tables()
    facts = {}
    for part in found.parts:
        source = part.source
        if part.tag not in tables:
            continue  # no rows
        checked = source.checker.check(tables[part.tag])
        if checked.bad:
            first = checked.bad[0]
            raise DataError(
                f"{len(checked.bad):,} of {checked.received:,} rows do not fit"
                f" `{source.relation}`; the first: {first.reason}\n  row: {first.row}"
            )
        facts[source.name] = checked.rows
    database = empty or open_database(program, options, facts)
    wanted = program.outputs or tuple(name for name in program.relations if name in program.derived)
    return {name: to_frame(spark, database.view(name).to_arrow()) for name in wanted}


def batch_writer(pipeline: Pipeline, source: str) -> BatchWriter:
    """Return a function for `writeStream.foreachBatch` that passes its batches to a source.

    The source has the format `batches`. A batch that Spark passes twice is applied once.
    """
    return BatchWriter(pipeline, source)


class BatchWriter:
    """Passes micro-batches to a source of a pipeline, in the process that Spark calls it in.

    That is this process, and this pipeline. On Spark Connect it is a Python process beside the
    server, which gets a copy of this object: the pipeline is opened there, from its declaration.
    Its state, and the local files of its sinks, are on the machine of the server then. The pipeline
    here must not be open at the same time, if both machines see the same folder.
    """

    def __init__(self, pipeline: Pipeline, source: str) -> None:
        self._pipeline: Pipeline | None = pipeline
        self._declaration = pipeline.declaration
        self._source = source
        self._started = False

    def __call__(self, frame: Any, number: int) -> None:
        """Do an epoch with a micro-batch."""
        if self._pipeline is None:
            self._pipeline = opened(self._declaration)
        if not self._started:
            self._pipeline.start(frame.sparkSession)
            self._started = True
        self._pipeline.take(self._source, frame, number, _query_of(frame))

    def __getstate__(self) -> dict[str, Any]:
        for source in self._declaration.sources:
            if source.frame is not None:
                raise UsageError(
                    f"the source of `{source.relation}` is a DataFrame of this process, and"
                    " Spark Connect does each batch in another one\n  help: name a format and a"
                    " path, or a table"
                )
        return {**vars(self), "_pipeline": None, "_started": False}


def _query_of(frame: Any) -> str:
    """Return the id of the streaming query that runs; empty if it is not known, as on Connect."""
    context = context_of(frame.sparkSession)
    if context is None:
        return ""
    return context.getLocalProperty("sql.streaming.queryId") or ""


_opened: dict[str, Pipeline] = {}
"""The pipelines that were opened in this process for a `BatchWriter`, by state folder."""


def opened(declaration: Declaration) -> Pipeline:
    """Return the pipeline of a declaration: a state can be open only once in a process."""
    if declaration.state not in _opened:
        pipeline = Pipeline(
            Program.parse(declaration.program, declaration.program_name),
            state=declaration.state,
            sources=declaration.sources,
            sinks=declaration.sinks,
            **declaration.keys,
        )
        atexit.register(pipeline.close)
        _opened[declaration.state] = pipeline
    return _opened[declaration.state]
