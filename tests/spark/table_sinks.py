"""Checks of sinks that need jars, in a process of their own, whose session has them.

    python tests/spark/table_sinks.py FOLDER

It reads lines such as `delta deaths` from standard input, does that check, and says how it went.
Each check runs a pipeline, and compares what the table holds with the view. A check may end the
pipeline where a process might, and run it again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PROGRAM, Folder, expected
from tests.spark.test_formats import ROWS, TYPED
from tests.spark.test_sinks import CHANGES, EPOCHS, TABLE
from tidelog import Program
from tidelog.errors import UsageError
from tidelog.io.conversion import rows_of
from tidelog.io.tabular import to_arrow
from tidelog.spark import Sink, open_session
from tidelog.spark.connectors import settings_for
from tidelog.spark.frames import for_spark
from tidelog.spark.sink_state import SinkState

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}
SHARDED = {"placement": "sharded", "shards": 2}


class Dying(Exception):
    """Ends a run where a process might end."""


@dataclass
class Lake:
    """A place for tables of one format, and a session that knows it."""

    spark: Any
    format: str
    path: Path

    def sink(self, name: str, what: str = "table", **keys: Any) -> Sink:
        if self.format == "delta":
            keys = {"path": str(self.path / name), **keys}
        else:
            keys = {"table": f"lake.db.{name}", **keys}
        return Sink("reach", what, self.format, **keys)

    def sql_name(self, sink: Sink) -> str:
        return f"delta.`{sink.path}`" if sink.path else sink.table

    def rows(self, sink: Sink) -> list[dict[str, Any]]:
        found = [row.asDict() for row in self.spark.table(self.sql_name(sink)).collect()]
        by_epoch = sink.what == "changes"
        return sorted(
            found,
            key=lambda r: ((r["epoch"], r["op"] == "+") if by_epoch else (), r["x"], r["y"]),
        )

    def commits(self, sink: Sink) -> list[str]:
        """Return what each version of a table was made by, the newest last."""
        name = self.sql_name(sink)
        if self.format == "delta":
            history = self.spark.sql(f"DESCRIBE HISTORY {name}").collect()
            return [row["operation"] for row in reversed(history)]
        query = f"SELECT operation FROM {name}.snapshots ORDER BY committed_at"
        return [row["operation"] for row in self.spark.sql(query).collect()]


def feed(folder: Folder, number: int) -> None:
    folder.write(f"edge/{number}.csv", EPOCHS[number])


def view(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
    assert len({(r["x"], r["y"]) for r in rows}) == len(rows), "a row is there twice"
    return {(r["x"], r["y"]) for r in rows}


def check_epochs(lake: Lake, path: Path, placement: dict[str, Any]) -> None:
    """A table and its changes, epoch by epoch; each epoch is one commit."""
    folder = Folder(path)
    folder.placement = placement
    source = folder.source("edge", "csv", mode="changes")
    name = "shards" if placement else "whole"
    table, changes = lake.sink(name), lake.sink(f"{name}_changes", "changes")
    for number in range(3):
        feed(folder, number)
        with folder.pipeline(source, sinks=[table, changes]) as pipeline:
            pipeline.run(lake.spark)
            held = {tuple(row) for row in pipeline.frame("reach").collect()}
        assert view(lake.rows(table)) == held
        assert len(lake.commits(table)) == len(lake.commits(changes)) == number + 1
    assert lake.rows(table) == TABLE
    assert lake.rows(changes) == CHANGES
    if lake.format == "delta":
        assert lake.commits(table)[1:] == ["MERGE", "MERGE"]
    # As if the process had died before it could note what it has written.
    for memory in (path / "state" / "sinks").iterdir():
        known = json.loads(memory.read_text())
        memory.write_text(json.dumps({**known, "epoch": 0, "reached": 0}))
    with folder.pipeline(source, sinks=[table, changes]) as pipeline:
        pipeline.run(lake.spark)
    assert (lake.rows(table), lake.rows(changes)) == (TABLE, CHANGES)
    assert len(lake.commits(table)) == len(lake.commits(changes)) == 3


def check_deaths(lake: Lake, path: Path) -> None:
    """A process that ends between a write and its record, for each sink at every epoch."""
    folder = Folder(path)
    source = folder.source("edge", "csv", mode="changes")
    table, changes = lake.sink("dying"), lake.sink("dying_changes", "changes")

    def dies(self: SinkState, epoch: int, reached: int | None = None) -> None:
        raise Dying

    for number in range(3):
        feed(folder, number)
        for sinks in ([table], [changes]):
            with pytest.MonkeyPatch.context() as patch, pytest.raises(Dying):
                patch.setattr(SinkState, "wrote", dies)
                with folder.pipeline(source, sinks=sinks) as pipeline:
                    pipeline.run(lake.spark)
        with folder.pipeline(source, sinks=[table, changes]) as pipeline:
            pipeline.run(lake.spark)
        assert len(lake.commits(table)) == len(lake.commits(changes)) == number + 1
    assert lake.rows(table) == TABLE
    assert lake.rows(changes) == CHANGES


def check_several_epochs_are_one_merge(lake: Lake, path: Path) -> None:
    """What comes and goes between two writes is not written; work of others stays."""
    folder = Folder(path)
    source = folder.source("edge", "csv", mode="changes", files_per_epoch=1)
    table = lake.sink("several", partition_by=("x",))
    feed(folder, 0)
    os.utime(path / "in" / "edge" / "0.csv", ns=(0, 0))
    with folder.pipeline(source, sinks=[table]) as pipeline:
        pipeline.run(lake.spark)
    if lake.format == "delta":
        lake.spark.sql(f"OPTIMIZE {lake.sql_name(table)}").collect()
    before = len(lake.commits(table))
    edges = [(5, 6), (6, 7)]
    for number, line in enumerate(("+,5,6\n", "+,6,7\n+,8,8\n", "-,8,8\n-,1,2\n")):
        file = folder.write(f"edge/more-{number}.csv", line)
        os.utime(file, ns=((number + 1) * 10**9,) * 2)  # they are taken in this order
    with folder.pipeline(source, sinks=[table]) as pipeline:
        assert len(pipeline.run(lake.spark)) == 3
    assert len(lake.commits(table)) == before + 1
    facts = {"edge": {(2, 3), *edges}}
    assert view(lake.rows(table)) == expected(PROGRAM, facts, "reach")
    # The same table, for a new state: its epochs are none of ours.
    shutil.rmtree(path / "state")
    (path / "in" / "edge" / "0.csv").unlink()
    with folder.pipeline(source, sinks=[table]) as pipeline:
        pipeline.run(lake.spark)
    assert view(lake.rows(table)) == expected(PROGRAM, {"edge": set(edges)}, "reach")


def check_others(lake: Lake, path: Path) -> None:
    """Tables that were dropped are written again; changes of another run are not mixed in."""
    folder = Folder(path)
    source = folder.source("edge", "csv", mode="changes")
    table, changes = lake.sink("others"), lake.sink("others_changes", "changes")
    for number in range(2):
        feed(folder, number)
        with folder.pipeline(source, sinks=[table, changes]) as pipeline:
            pipeline.run(lake.spark)
    if table.path:
        shutil.rmtree(table.path)
    else:
        lake.spark.sql(f"DROP TABLE {table.table}")
    with folder.pipeline(source, sinks=[table]) as pipeline:
        pipeline.run(lake.spark)
        held = {tuple(row) for row in pipeline.frame("reach").collect()}
    assert view(lake.rows(table)) == held
    shutil.rmtree(path / "state")
    with (
        pytest.raises(UsageError, match="already has changes of epoch 1"),
        folder.pipeline(source, sinks=[changes]) as pipeline,
    ):
        pipeline.run(lake.spark)


def check_types(lake: Lake, path: Path) -> None:
    """Every type goes in by MERGE, and comes out as it is."""
    program = Program.parse(TYPED)
    folder = Folder(path, TYPED)
    table = lake.sink("typed")
    sink = Sink("copy", "table", lake.format, table.path, table=table.table)
    relation = program.relations["row"]
    rows = sorted(ROWS, key=str)
    for number, row in enumerate(rows):
        made = for_spark(to_arrow([row], relation, program.records))
        pq.write_table(made, folder.write(f"row/{number}.parquet", ""))
        with folder.pipeline(folder.source("row", "parquet"), sinks=[sink]) as pipeline:
            pipeline.run(lake.spark)
        assert folder.quarantined() == []
        found = lake.spark.table(lake.sql_name(sink)).toArrow()
        assert set(rows_of(found, relation, program.records)) == set(rows[: number + 1])


def check_names(lake: Lake, path: Path) -> None:
    """A view may have columns with the names of those of changes; it is then written whole."""
    program = """
        .decl row(x: number, op: symbol, epoch: number)
        .decl named(x: number, op: symbol, epoch: number)
        named(x, o, e) :- row(x, o, e).
    """
    folder = Folder(path, program)
    table = lake.sink("named")
    sink = Sink("named", "table", lake.format, table.path, table=table.table)
    for number in range(2):
        folder.write(f"row/{number}", f"{number},-,7\n")
        with folder.pipeline(folder.source("row", "csv"), sinks=[sink]) as pipeline:
            pipeline.run(lake.spark)
    found = [tuple(row) for row in lake.spark.table(lake.sql_name(sink)).collect()]
    assert sorted(found) == [(0, "-", 7), (1, "-", 7)]


CHECKS: dict[str, Callable[[Lake, Path], None]] = {
    "epochs": lambda lake, path: check_epochs(lake, path, {}),
    "shards": lambda lake, path: check_epochs(lake, path, SHARDED),
    "deaths": check_deaths,
    "several": check_several_epochs_are_one_merge,
    "others": check_others,
    "types": check_types,
    "names": check_names,
}


def main(folder: Path) -> None:
    places = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
    }
    formats = [Sink("x", format="delta", path="x"), Sink("x", format="iceberg", table="x")]
    spark = open_session("tables", settings=settings_for((), formats, {**SETTINGS, **places}))
    for line in sys.stdin:
        format, check = line.split()
        try:
            CHECKS[check](Lake(spark, format, folder / "tables"), folder / format / check)
            print("checked: fine", flush=True)
        except BaseException:
            traceback.print_exc()
            print("checked: failed", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
