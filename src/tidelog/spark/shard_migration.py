"""Applying a changed program to the shards of a state, one after the other, in this process.

It happens once, when a pipeline is started. Each shard is opened, brought up to date by the rules
that have changed, and written as a snapshot, under new names. Until the epoch is committed, the
state is that of the old program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.durable.files import Files
from tidelog.sharding.manifest import Committed
from tidelog.sharding.migration import (
    check_migration,
    differently_held,
    given_rows_would_move,
    rows_are_exchanged,
)
from tidelog.sharding.shard_state import Shard
from tidelog.spark.shard_task import Work, cells_of, changes_of_view, program_of, write_changes


def migrated_shards(
    last: Committed, state: Work, watched: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the answer of each shard to the epoch in which the program changes.

    `state` has the new program, and `last` the old one.
    """
    old = cells_of(last.program, last.program_name, last.sides)
    new = cells_of(state.program, state.program_name, state.sides)
    if old.stages > 1 or new.stages > 1:
        raise rows_are_exchanged()
    (before,), (after,) = old.layout.shardings, new.layout.shardings
    check_migration(old.program, before, new.program, after)
    epoch = last.epoch + 1
    for number, ref in enumerate(last.shards):
        files = Files(Path(state.folder) / "shards" / str(number))
        program = program_of(last.program, last.program_name, last.sides, number)
        shard = Shard.open(files, last.identity, program, ref)
        for name in differently_held(before, after):
            if shard.engine.given_count(name):
                raise given_rows_would_move(name)
        shard.watched = frozenset(watched)
        done = shard.migrate(
            epoch, program_of(state.program, state.program_name, state.sides, number)
        )
        views = {}
        for name in watched:
            if name in done.changes and after.grid.counts(after.shown[name].partitioning, number):
                table = changes_of_view(epoch, shard, name, done)
                views[name] = write_changes(state, epoch, number, table), table.num_rows
        yield (
            number,
            {
                "refs": [done.ref.as_data()],
                "given": [0, 0],
                "bootstrapped": done.bootstrapped,
                "views": views,
            },
        )
