"""How many Spark jobs and tasks an epoch has, according to Spark's status store."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidelog.spark.jobs import context_of

_GROUP = "spark.jobGroup.id"


@dataclass
class JobCounts:
    """Numbers of jobs and tasks."""

    jobs: int = 0
    tasks: int = 0


@contextmanager
def counted_jobs(spark: Any, group: str) -> Iterator[JobCounts]:
    """Count the jobs of a block. A streaming query has a job group; other jobs get this one.

    Spark Connect has no such numbers: the counts stay 0 there.
    """
    counts = JobCounts()
    context = context_of(spark)
    if context is None:
        yield counts
        return
    own = context.getLocalProperty(_GROUP)
    if own is None:
        context.setLocalProperty(_GROUP, group)
    # Asking for the jobs of the group would list all that Spark remembers of earlier epochs.
    tag = f"tidelog-{secrets.token_hex(8)}"
    context.addJobTag(tag)
    try:
        yield counts
    finally:
        context.removeJobTag(tag)
        if own is None:
            context.setLocalProperty(_GROUP, None)
    # Spark's own object: PySpark's does not know tags, nor whether a stage was skipped because
    # another job has run it. Such a stage was never submitted.
    found = context._jsc.sc().statusTracker().getJobIdsForTag(tag)
    tracker = context.statusTracker()
    java = tracker._jtracker
    for job in (found[i] for i in range(len(found))):
        counts.jobs += 1
        info = java.getJobInfo(job)
        stages = () if info is None else info.stageIds()
        for stage in (stages[i] for i in range(len(stages))):
            about = java.getStageInfo(stage)
            if about is not None and about.submissionTime():
                counts.tasks += about.numTasks()
