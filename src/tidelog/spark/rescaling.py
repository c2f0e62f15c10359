"""Moves the state of a pipeline: to another number of shards, or to another placement.

The given rows and the offsets go to a new folder, and the views are evaluated there, at the same
epoch. Then one file says that the state is there now; before, it is where it was. Sinks must have
everything by then: what they lack would be in the old folder.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from tidelog.errors import UsageError
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.plan.sharding import NotSharded
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import PipelineFile
from tidelog.spark.placement_driver import DriverPlacement, with_memory
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Chosen, Placement, cores, found, point_to, sharding_of
from tidelog.spark.remembered import Changes, Given
from tidelog.spark.shard_manifest import Epochs
from tidelog.spark.shard_task import forget


def rescale(spec: PipelineFile, placement: str, shards: int | None) -> str:
    """Move the state of a pipeline; return what was done, in words."""
    there = found(spec.state)
    if there is None:
        raise UsageError("there is no state to be moved: the pipeline has had no epoch yet")
    program = Program.load(spec.program)
    target = _target(program, spec.state, placement, shards)
    old = _opened(spec, program, there)
    try:
        _check_sinks(spec, old.epoch)
        changes = Changes(
            {name: rows for name in program.relations if len(rows := _given(old, name))},
            marks=old.all_offsets(),
            counts=dict(old.counts()),
        )
        epoch = old.epoch
        views = [sink.view for sink in spec.sinks]
        new: Placement
        try:
            if target.name == "sharded":
                new = ShardedPlacement(
                    program, target.folder, target.sides, spec.retain_epochs, views,
                    first_epoch=epoch,
                )  # fmt: skip
            else:
                new = DriverPlacement(
                    with_memory(program), target.folder, "refuse", spec.retain_epochs, epoch
                )
            new.apply(changes)
            new.close()
        except BaseException:
            shutil.rmtree(target.folder, ignore_errors=True)
            raise
        point_to(spec.state, target.name, target.folder)
    finally:
        old.close()
        forget()
    shutil.rmtree(there.folder, ignore_errors=True)
    where = "one database" if target.name == "driver" else f"{_count(target)} shards"
    return f"epoch {epoch} is in {where} now"


def _target(program: Program, state: Path, placement: str, shards: int | None) -> Chosen:
    token = secrets.token_hex(4)
    if placement == "driver":
        return Chosen("driver", state / f"database-{token}")
    if placement != "sharded":
        raise UsageError(f"a state is moved to `driver` or `sharded`, not to `{placement}`")
    made = sharding_of(program, shards or cores())
    if isinstance(made, NotSharded):
        raise UsageError(f"{program.name} cannot be sharded: {made.why}")
    return Chosen("sharded", state / f"sharded-{token}", made.grid.sides)


def _opened(spec: PipelineFile, program: Program, there: Chosen) -> Placement:
    if there.name == "driver":
        return DriverPlacement(with_memory(program), there.folder, "refuse", spec.retain_epochs)
    epochs = Epochs(there.folder)
    last = epochs.read(epochs.numbers()[-1])
    held = Program.parse(last.program, last.program_name)
    for name in held.relations:
        if name not in program.relations:
            raise UsageError(f"the new program does not declare `{name}`")
    return ShardedPlacement(held, there.folder, there.sides, spec.retain_epochs)


def _given(old: Placement, name: str) -> Given:
    if isinstance(old, ShardedPlacement) and name not in old.sharding.shown:
        return CheckedRows()
    return old.given(name)


def _check_sinks(spec: PipelineFile, epoch: int) -> None:
    for sink in Pipeline.from_file(replace(spec, shards=None), placement="auto").sinks:
        if sink.epoch is not None and sink.epoch != epoch:
            raise UsageError(
                f"sink `{sink.name}` is at epoch {sink.epoch}, and the state at {epoch}"
                "\n  help: run the pipeline once, which writes what is missing"
            )


def _count(target: Chosen) -> int:
    count = 1
    for side in target.sides:
        count *= side
    return count
