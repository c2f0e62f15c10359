"""Evaluate the views of a pipeline again, from the given rows, and write its tables again.

The given rows and offsets are copied to a new folder, where the views are evaluated at the same
epoch. They should be the same as before. If they are not, which would be a bug, the new folder
takes the place of the old one, and the differences are reported. Tables are rewritten in any
case: they may have been changed by others.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import UsageError
from tidelog.logic.program import Program
from tidelog.sharding.key_relations import is_hidden
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import PipelineFile
from tidelog.spark.placements import Placement, existing, point_to
from tidelog.spark.rescaling import copied, keyed_program, like, opened
from tidelog.spark.shard_task import forget
from tidelog.spark.state_folder import locked


@dataclass
class Refreshed:
    """What a refresh found and did."""

    epoch: int
    views: int = 0
    """The number of views that were compared."""
    differences: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By view: the rows that were missing, and those that should not have been there."""
    written: dict[str, int] = field(default_factory=dict)
    """By sink: the rows that were written."""


def refresh(spec: PipelineFile, spark: Any, view: str | None = None) -> Refreshed:
    """Evaluate and compare views, all or one, and write their tables again."""
    program = keyed_program(spec)
    if view is not None and view not in program.relations:
        raise UsageError(f"the program does not declare `{view}`")
    if existing(spec.state) is None:
        raise UsageError("there is no state to refresh: the pipeline has no epoch yet")
    with Pipeline.from_file(spec) as pipeline:  # sinks must not lack earlier changes
        pipeline.start(spark)
        pipeline.failures.check()
    with locked(spec.state):
        done = _evaluated(spec, program, view)
    with Pipeline.from_file(spec) as pipeline:
        pipeline.start(spark)
        done.written = pipeline.write_again(view)
    return done


def _evaluated(spec: PipelineFile, program: Program, view: str | None) -> Refreshed:
    there = existing(spec.state)
    assert there is not None
    target = like(there, spec.state)
    old = opened(spec, program, there)
    try:
        done = Refreshed(old.epoch)
        new = copied(spec, program, old, target)
        try:
            shown = [name for name in program.relations if not is_hidden(name)]
            views = shown if view is None else [view]
            for name in views:
                _compare(done, name, old, new)
        finally:
            new.close()
        if done.differences:
            point_to(spec.state, target.name, target.folder)
    except BaseException:
        shutil.rmtree(target.folder, ignore_errors=True)
        raise
    finally:
        old.close()
        forget()
    shutil.rmtree(there.folder if done.differences else target.folder, ignore_errors=True)
    return done


def _compare(done: Refreshed, view: str, old: Placement, new: Placement) -> None:
    before, after = set(old.rows(view)), set(new.rows(view))
    done.views += 1
    if before != after:
        done.differences[view] = len(after - before), len(before - after)
