"""A pipeline for each envelope, on random histories, against a plain replay of the events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.seeds import seeded
from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import UsageError
from tidelog.spark import Source

Row = tuple[int, int]
Event = tuple[str, Row | None, Row | None]  # what it is, the row before, the row after


def some_events(rng: Random, rows: set[Row], count: int) -> list[Event]:
    """Return events that lead from `rows` to others, and change `rows` to those."""
    events: list[Event] = []
    for _ in range(count):
        new = (rng.randrange(5), rng.randrange(5))
        old = rng.choice(sorted(rows)) if rows else None
        if old is None or (new not in rows and rng.random() < 0.5):
            events.append(("c", None, new))
        elif rng.random() < 0.5:
            events.append(("d", old, None))
        else:
            events.append(("u", old, new))
        if events[-1][1] is not None:
            rows.discard(events[-1][1])
        if events[-1][2] is not None:
            rows.add(events[-1][2])
    return events


def as_changes(events: list[Event], rng: Random) -> str:
    names = ["op", "x", "y"]
    rng.shuffle(names)  # files need not agree on the order of their columns
    lines = [",".join(names)]
    for _, *sides in events:
        for op, row in zip(("-", "insert"), sides, strict=True):
            if row is not None:
                values = {"op": op, "x": str(row[0]), "y": str(row[1])}
                lines.append(",".join(values[name] for name in names))
    return "\n".join(lines) + "\n"


def as_debezium(events: list[Event], rng: Random) -> str:
    lines = []
    for op, old, new in events:
        before, after = (row and {"x": row[0], "y": row[1]} for row in (old, new))
        event: dict[str, Any] = {"op": op, "before": before, "after": after, "ts_ms": 17}
        lines.append(json.dumps({"payload": event} if rng.random() < 0.5 else event))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("mode", ["changes", "debezium"])
def test_events_in_files_are_replayed_in_their_order(spark: Any, tmp_path: Path, mode: str) -> None:
    rng = seeded("events in files are replayed in their order")
    rows: set[Row] = set()
    folder = Folder(tmp_path)
    header = {"header": "true"}
    source = (
        folder.source("edge", "csv", mode=mode, options=header)
        if mode == "changes"
        else folder.source("edge", "json", mode=mode)
    )
    number = 0
    for _ in range(3):
        for _ in range(rng.randrange(1, 5)):  # several files in an epoch
            events = some_events(rng, rows, 6)
            text = as_changes(events, rng) if mode == "changes" else as_debezium(events, rng)
            # Files that come later need not have later names, but each has one of its own: a name
            # that was taken is not read again (seed 3301147154 drew the same one twice).
            path = folder.write(f"edge/{rng.randrange(10**6)}-{number}", text)
            number += 1
            os.utime(path, ns=(number * 10**9, number * 10**9))
        (done,) = folder.run(spark, source)
        assert done.quarantined == 0
        assert folder.rows("reach") == expected(PROGRAM, {"edge": rows}, "reach")


def test_a_file_that_is_written_again_is_not_read_again_but_reported(
    spark: Any, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "json", mode="debezium")
    rng = seeded("a file that is written again is not read again but reported")
    path = folder.write("edge/12994", as_debezium([("c", None, (1, 2))], rng))
    os.utime(path, ns=(10**9, 10**9))
    assert len(folder.run(spark, source)) == 1
    with folder.pipeline(source) as pipeline:
        assert pipeline.overlooked() == []
    path = folder.write("edge/12994", as_debezium([("c", None, (3, 4))], rng))
    os.utime(path, ns=(2 * 10**9, 2 * 10**9))
    assert folder.run(spark, source) == []
    assert folder.rows("edge") == {(1, 2)}
    with folder.pipeline(source) as pipeline:
        assert pipeline.overlooked() == [
            "source `edge`: files changed after they were read, and are not read again: 12994"
        ]


def test_rows_of_a_large_file_keep_their_order(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path, ".decl p(x: number)\n.decl q(x: number)\nq(x) :- p(x).\n")
    n = 40_000
    lines = [f"{sign},{i}" for sign in "+-" for i in range(n)] + ["+,7"]
    folder.write("p/a.csv", "\n".join(lines) + "\n")
    limit = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "50000")  # many ranges of one file
    try:
        (done,) = folder.run(spark, folder.source("p", "csv", mode="changes"), sinks=[])
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", limit)
    assert done.received == 2 * n + 1
    assert folder.rows("q") == {(7,)}


@pytest.mark.parametrize("kind", ["files", "frame"])
def test_snapshots_are_differenced(spark: Any, tmp_path: Path, kind: str) -> None:
    rng = seeded("snapshots are differenced")
    folder = Folder(tmp_path)
    rows: set[Row] = set()

    def frame(session: Any) -> Any:
        return session.createDataFrame(sorted(rows), "x int, y long")

    source = (
        folder.source("edge", "csv", mode="snapshot")
        if kind == "files"
        else Source("edge", mode="snapshot", frame=frame)
    )
    for epoch in range(3):
        before = set(rows)
        some_events(rng, rows, 5)
        rows.add((9, epoch))
        folder.write("edge/all.csv", "".join(f"{x},{y}\n" for x, y in rows))
        (done,) = folder.run(spark, source)
        assert (done.inserted, done.deleted) == (len(rows - before), len(before - rows))
        assert folder.rows("reach") == expected(PROGRAM, {"edge": rows}, "reach")
    assert folder.run(spark, source) == []


def test_a_snapshot_shares_its_relation_with_no_other_source(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    sources = [folder.source("edge", "csv", mode="snapshot"), folder.source("edge", "json")]
    with pytest.raises(UsageError, match="is a snapshot of `edge`, so `edge-2` cannot"):
        folder.pipeline(*sources)


def test_a_mode_that_a_format_cannot_have_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(UsageError, match='mode "delta-changes" is for format "delta"'):
        folder.source("edge", "csv", mode="delta-changes")
    with pytest.raises(UsageError, match='format `jdbc` is read with mode = "snapshot"'):
        folder.pipeline(folder.source("edge", "jdbc", mode="append"))
