"""What the measurements of pipelines share: files that come, and what Spark streams of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = "epoch"
RECOMPUTE, STREAMING = "Spark's recompute", "Spark's streaming aggregation"


def put(folder: Path, name: str, format: str, rows: pa.Table) -> None:
    """Have a file appear, whole."""
    import json

    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    if format == "parquet":
        pq.write_table(rows, hidden)
    else:
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    os.rename(hidden, folder / f"{name}.{format}")


class Stream:
    """A streaming query over the files of a folder, asked for one batch at a time."""

    def __init__(
        self, spark: Any, folder: Path, format: str, schema: str, start: Callable[[Any], Any]
    ) -> None:
        self._format, self._folder = format, folder / "in"
        self._folder.mkdir(parents=True)
        frame = spark.readStream.schema(schema).format(format).load(str(self._folder))
        self._query = start(frame).option("checkpointLocation", str(folder / "marks")).start()

    def batch(self, name: str, rows: pa.Table) -> float:
        """Return how long the batch of a new file took."""
        put(self._folder, name, self._format, rows)
        self._query.processAllAvailable()
        # The last one may be about no file at all.
        found = [p for p in self._query.recentProgress if "addBatch" in p["durationMs"]]
        return float(found[-1]["durationMs"]["triggerExecution"]) / 1000

    def stop(self) -> None:
        """End the query."""
        self._query.stop()


def timed(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def of(what: str, size: int) -> str:
    """Return the name of a figure about so many rows."""
    return f"{what}, {size:,} rows"


def verdict(same: bool) -> str:
    """Say whether a view is what Spark has computed."""
    return "equal to Spark's recompute" if same else "NOT equal to Spark's recompute"
