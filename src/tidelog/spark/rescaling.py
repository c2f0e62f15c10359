"""Move the state of a pipeline to another number of shards, or to another placement.

The given rows and the offsets are copied to a new folder, and the views are evaluated there, at the
same epoch. Then one file is replaced, which names the folder of the state. All sinks must be at the
last epoch, because the changes of earlier epochs are not copied.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from tidelog.errors import UsageError
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.sharding.key_relations import is_hidden, with_upserts
from tidelog.sharding.manifest import Epochs
from tidelog.sharding.sharding import NotSharded
from tidelog.spark.epoch_changes import EpochChanges, Given
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import PipelineFile
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Chosen, Placement, cores, existing, layout_of, point_to
from tidelog.spark.shard_task import forget
from tidelog.spark.state_folder import locked


def rescale(spec: PipelineFile, placement: str, shards: int | None) -> str:
    """Move the state of a pipeline; return a message about what was done."""
    there = existing(spec.state)
    if there is None:
        raise UsageError("there is no state to move: the pipeline has no epoch yet")
    target = _target(Program.load(spec.program), spec.state, placement, shards)
    program = keyed_program(spec)
    with locked(spec.state):
        old = opened(spec, program, there)
        try:
            epoch = old.epoch
            _check_sinks(spec, epoch)
            copied(spec, program, old, target).close()
            point_to(spec.state, target.name, target.folder)
        finally:
            old.close()
            forget()
        shutil.rmtree(there.folder, ignore_errors=True)
    where = "one database" if target.name == "driver" else f"{_count(target)} shards"
    return f"epoch {epoch} is now in {where}"


def keyed_program(spec: PipelineFile) -> Program:
    """Return the program with the relations of its upserts: their rows are copied as well."""
    pipeline = Pipeline.from_file(_anywhere(spec), placement="auto")
    return with_upserts(Program.load(spec.program), pipeline.upserts)


def copied(spec: PipelineFile, program: Program, old: Placement, target: Chosen) -> Placement:
    """Return a new placement with the given rows and offsets of an old one, at its epoch."""
    changes = EpochChanges(
        {name: rows for name in program.relations if len(rows := _given(old, name))},
        offsets=old.all_offsets(),
        counts=dict(old.counts()),
    )
    views = [sink.view for sink in spec.sinks]
    new: Placement
    try:
        if target.name == "sharded":
            new = ShardedPlacement(
                program, target.folder, target.sides, spec.retain_epochs, views,
                first_epoch=old.epoch,
            )  # fmt: skip
        else:
            new = DriverPlacement(
                with_offsets(program), target.folder, "refuse", spec.retain_epochs, old.epoch
            )
        new.apply(changes)
    except BaseException:
        shutil.rmtree(target.folder, ignore_errors=True)
        raise
    return new


def like(there: Chosen, state: Path) -> Chosen:
    """Return a placement like another one, in a new folder."""
    kind = "database" if there.name == "driver" else there.name
    return replace(there, folder=state / f"{kind}-{secrets.token_hex(4)}")


def _target(program: Program, state: Path, placement: str, shards: int | None) -> Chosen:
    token = secrets.token_hex(4)
    if placement == "driver":
        return Chosen("driver", state / f"database-{token}")
    if placement != "sharded":
        raise UsageError(f"a state can be moved to `driver` or `sharded`, not to `{placement}`")
    made = layout_of(program, shards or cores())
    if isinstance(made, NotSharded):
        raise UsageError(f"{program.name} cannot be sharded: {made.why}")
    return Chosen("sharded", state / f"sharded-{token}", made.grid.sides)


def opened(spec: PipelineFile, program: Program, there: Chosen) -> Placement:
    """Open an existing placement for writing."""
    if there.name == "driver":
        return DriverPlacement(with_offsets(program), there.folder, "refuse", spec.retain_epochs)
    epochs = Epochs(there.folder)
    last = epochs.read(epochs.numbers()[-1])
    held = Program.parse(last.program, last.program_name)
    for name in held.relations:
        if name not in program.relations and not is_hidden(name):
            raise UsageError(f"the new program does not declare `{name}`")
    return ShardedPlacement(held, there.folder, there.sides, spec.retain_epochs)


def _given(old: Placement, name: str) -> Given:
    if isinstance(old, ShardedPlacement) and name not in old.layout.home:
        return CheckedRows()
    return old.given(name)


def _anywhere(spec: PipelineFile) -> PipelineFile:
    """Return the declaration without a number of shards: the state may have another one."""
    return replace(spec, shards=None)


def _check_sinks(spec: PipelineFile, epoch: int) -> None:
    for sink in Pipeline.from_file(_anywhere(spec), placement="auto").sinks:
        if sink.epoch is not None and sink.epoch != epoch:
            raise UsageError(
                f"sink `{sink.name}` is at epoch {sink.epoch}, and the state at {epoch}"
                "\n  help: run the pipeline once to write the missing epochs"
            )


def _count(target: Chosen) -> int:
    count = 1
    for side in target.sides:
        count *= side
    return count
