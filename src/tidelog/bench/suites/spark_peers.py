"""Shared by the measurements of pipelines: new files, and streaming queries over them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = "epoch"
RECOMPUTE, STREAMING = "Spark's recompute", "Spark's streaming aggregation"
EVERY_SECONDS = 1
"""How often queries look for new files. One that looks all the time disturbs the others, and takes
files that appear at once in two batches."""
_PATIENCE = 120.0  # seconds


def put(folder: Path, name: str, format: str, rows: pa.Table) -> None:
    """Create a file atomically."""
    import json

    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    if format == "parquet":
        pq.write_table(rows, hidden)
    else:
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    os.rename(hidden, folder / f"{name}.{format}")


class Batches:
    """A streaming query, and the times of its batches.

    Times are those that Spark reports for a batch, from its trigger to its end: looking for what is
    new, the log of offsets, the batch itself and the log of commits, without the wait for the next
    trigger.
    """

    def __init__(self, query: Any) -> None:
        self._query = query

    def first(self) -> float:
        """Return the time of the first batch, which has all that was there at the start."""
        return self._after(-1)

    def _after(self, before: int) -> float:
        """Wait until there is a batch after this one; return its time."""
        end = time.monotonic() + _PATIENCE
        while True:
            self._query.processAllAvailable()
            found = [p for p in self._query.recentProgress if "addBatch" in p["durationMs"]]
            new = [p for p in found if p["batchId"] > before]
            if new:
                return sum(float(p["durationMs"]["triggerExecution"]) for p in new) / 1000
            if time.monotonic() > end:
                raise StateError("Spark has not done a batch in time")
            time.sleep(0.02)

    def _last(self) -> int:
        found = [p["batchId"] for p in self._query.recentProgress if "addBatch" in p["durationMs"]]
        return max(found, default=-1)

    def stop(self) -> None:
        """End the query."""
        self._query.stop()


class Stream(Batches):
    """A streaming query over the files of some folders, asked for one batch at a time."""

    def __init__(self, query: Any, folders: Mapping[str, Path], format: str) -> None:
        super().__init__(query)
        self._folders, self._format = folders, format

    def batch(self, name: str, rows: Mapping[str, pa.Table]) -> float:
        """Return the time of the batch of new files, one in each folder."""
        before = self._last()
        for part, table in rows.items():
            put(self._folders[part] / ".hidden", name, self._format, table)
        for part in rows:  # all at once, so that one batch takes them
            source = self._folders[part] / ".hidden" / f"{name}.{self._format}"
            os.rename(source, self._folders[part] / f"{name}.{self._format}")
        return self._after(before)


def peer(
    spark: Any, folder: Path, names: Mapping[str, str], format: str, start: Callable[[Any], Any]
) -> Stream:
    """Start Spark's own query over folders; `names` has the schema of each."""
    from functools import reduce

    folders, frames = {}, []
    for name, schema in names.items():
        folders[name] = folder / name
        folders[name].mkdir(parents=True)
        frames.append(spark.readStream.schema(schema).format(format).load(str(folders[name])))
    together = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    writer = start(together).trigger(processingTime=f"{EVERY_SECONDS} seconds")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    return Stream(query, folders, format)


class RunningPipeline(Stream):
    """A pipeline that runs continuously, in a thread of its own."""

    def __init__(
        self,
        spark: Any,
        pipeline: Any,
        folders: Mapping[str, Path] | None = None,
        format: str = "",
        poll_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._pipeline, self._poll_seconds = pipeline, poll_seconds
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(spark,), daemon=True)
        self._thread.start()
        end = time.monotonic() + _PATIENCE
        name = f"tidelog {pipeline.name}"
        while not (found := [q for q in spark.streams.active if q.name == name]):
            if self._failed:
                raise self._failed[0]
            if time.monotonic() > end:
                raise StateError("the pipeline has not started in time")
            time.sleep(0.05)
        super().__init__(found[0], folders or {}, format)

    def _run(self, spark: Any) -> None:
        try:
            self._pipeline.run(spark, once=False, poll_seconds=self._poll_seconds)
        except BaseException as error:
            self._failed.append(error)

    def stop(self) -> None:
        """End the pipeline after its epoch."""
        self._pipeline.stop()
        self._thread.join(_PATIENCE)
        if self._failed:
            raise self._failed[0]


def timed(work: Callable[[], object]) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def of(what: str, size: int) -> str:
    """Return the name of a figure for a number of rows."""
    return f"{what}, {size:,} rows"


def verdict(same: bool) -> str:
    """Say whether a view equals what Spark has computed."""
    return "equal to Spark's recompute" if same else "NOT equal to Spark's recompute"
