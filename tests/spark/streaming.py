"""Run a streaming frame to its end, and give what its micro-batches have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.spark.source_order import FILE, START, TIME


def tuples(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a frame; `collect` would leave a socket open."""
    return [tuple(row.values()) for row in frame.toArrow().to_pylist()]


def taken(frame: Any, checkpoint: Path) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each micro-batch, ordered as they apply, until all is read."""
    batches: list[list[tuple[Any, ...]]] = []

    def take(batch: Any, number: int) -> None:
        ordering = [f"`{name}`" for name in (TIME, FILE, START) if name in batch.columns]
        rows = batch.orderBy(*ordering) if ordering else batch
        batches.append(tuples(rows))

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def rows(frame: Any, checkpoint: Path) -> list[tuple[Any, ...]]:
    """Return the rows of all micro-batches."""
    return [row for batch in taken(frame, checkpoint) for row in batch]
