"""What one epoch of a pipeline did, in numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.io.offsets import RowCounts

if TYPE_CHECKING:
    from tidelog.spark.epoch_changes import Applied, EpochChanges
    from tidelog.spark.epoch_input import EpochInput
    from tidelog.spark.job_counts import JobCounts


@dataclass(frozen=True)
class EpochDone:
    """What one epoch did."""

    epoch: int
    received: int
    accepted: int
    quarantined: int
    inserted: int
    """Inserted given rows."""
    deleted: int
    written: int
    """Rows written to sinks."""
    how: str
    """`bootstrap` or `update`."""
    lag: float | None
    """Seconds since the oldest item of the epoch arrived; None if unknown."""
    seconds: float
    jobs: int = 0
    """Spark jobs."""
    tasks: int = 0
    """Their tasks."""
    late: int = 0
    """Accepted rows that were older than what is retained."""
    batch: int | None = None
    """The number of the micro-batch of Spark's streaming query; None if there was none."""


def numbers_of(
    epoch: EpochInput,
    changes: EpochChanges,
    applied: Applied,
    begun: float,
    written: int,
    jobs: JobCounts,
    batch: int | None,
) -> EpochDone:
    """Return what an epoch did that has begun at a time of `perf_counter`."""
    total = sum(changes.counts.values(), start=RowCounts())
    oldest = [own.oldest for _, own in epoch.batches if own.oldest is not None]
    return EpochDone(
        applied.epoch,
        total.received,
        total.accepted,
        total.quarantined,
        applied.inserted,
        applied.deleted,
        written,
        applied.how,
        max(0.0, time.time() - min(oldest)) if oldest else None,
        time.perf_counter() - begun,
        jobs.jobs,
        jobs.tasks,
        changes.late,
        batch,
    )
