"""Small pipelines in a folder, and what they should give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tidelog
from tidelog.spark import EpochDone, Pipeline, Sink, Source

PROGRAM = """
.decl edge(x: number, y: number)
.decl label(x: number, name: symbol)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
.decl reaches(name: symbol, n: number)
reaches(name, n) :- label(x, name), n = count : { reach(x, _) }.
"""
PLACEMENTS: dict[str, dict[str, Any]] = {
    "driver": {"placement": "driver"},
    "sharded": {"placement": "sharded", "shards": 2},
}


class Folder:
    """A pipeline of PROGRAM below a folder: `in/<relation>` in, tables of both views out."""

    def __init__(self, path: Path, program: str = PROGRAM) -> None:
        self.path = path
        self.placement: dict[str, Any] = {}
        self.program = program
        self.views = ["reach", "reaches"] if program is PROGRAM else []

    def write(self, name: str, text: str) -> Path:
        path = self.path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def source(self, relation: str, format: str, **keys: Any) -> Source:
        return Source(relation, format, str(self.path / "in" / relation), **keys)

    def sinks(self) -> list[Sink]:
        tables = [Sink(v, path=str(self.path / "out" / v)) for v in self.views]
        changes = [
            Sink(v, what="changes", path=str(self.path / "out" / f"{v}-changes"))
            for v in self.views
        ]
        return [*tables, *changes]

    def pipeline(self, *sources: Source, sinks: Sequence[Sink] | None = None) -> Pipeline:
        return Pipeline(
            self.program,
            state=self.path / "state",
            sources=sources,
            sinks=self.sinks() if sinks is None else sinks,
            **self.placement,
        )

    def run(
        self, spark: Any, *sources: Source, sinks: Sequence[Sink] | None = None
    ) -> list[EpochDone]:
        with self.pipeline(*sources, sinks=sinks) as pipeline:
            done = pipeline.run(spark)
            total = pipeline.totals()
            assert total.received == total.accepted + total.quarantined
            for sink in self.sinks() if sinks is None else ():
                self.check_sink(sink, pipeline.database)
        return done

    def check_sink(self, sink: Sink, database: tidelog.Database) -> None:
        view = set(database.view(sink.view))
        rows = pq.read_table(sink.path).to_pylist() if Path(sink.path).exists() else []
        if sink.what == "table":
            assert len(rows) == len(view)
            assert {tuple(row.values()) for row in rows} == view
            return
        held: set[Any] = set()
        for row in sorted(rows, key=lambda row: (row["epoch"], row["op"] == "+")):
            *values, op, _ = row.values()
            (held.add if op == "+" else held.remove)(tuple(values))
        assert held == view

    def rows(self, view: str) -> set[Any]:
        with tidelog.Database(
            (self.pipeline_program()), path=self.path / "state" / "database"
        ) as database:
            return set(database.view(view))

    def pipeline_program(self) -> tidelog.Program:
        from tidelog.spark.placement_driver import with_offsets

        return with_offsets(tidelog.Program.parse(self.program))

    def quarantined(self) -> list[dict[str, Any]]:
        files = sorted((self.path / "state" / "quarantine").rglob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def expected(program: str, facts: Mapping[str, Any], view: str) -> set[Any]:
    """Return a view as the reference evaluates it."""
    return set(tidelog.Database(program, facts=facts, engine="reference").view(view))
