"""Choose the placement of a pipeline: as requested, that of its state, or by size and program."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tidelog.errors import UsageError
from tidelog.io.atomic import read_json, replace_text
from tidelog.logic.program import Literal, Program, Reduce
from tidelog.logic.variables import user_functions
from tidelog.sharding.layout import ShardLayout, lay_out
from tidelog.sharding.manifest import Epochs
from tidelog.sharding.sharding import NotSharded
from tidelog.spark.declared import PLACEMENTS, Source, one_of
from tidelog.spark.listing import is_local, list_files
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.placement_sharded import ShardedPlacement

Placement: TypeAlias = DriverPlacement | ShardedPlacement

LARGE = 1 << 30  # bytes of files above which several shards are worth it
_POINTER = "PLACEMENT"


@dataclass(frozen=True)
class Chosen:
    """The placement of a pipeline."""

    name: str
    folder: Path
    sides: tuple[int, ...] = ()
    """The grid of shards."""
    why: str = ""
    """Why `auto` chose it."""


def existing(state: Path) -> Chosen | None:
    """Return the placement of an existing state; None if there is none.

    For a state that was moved, a file names the folder. It is replaced atomically.
    """
    pointer = read_json(state / _POINTER)
    if pointer is not None:
        name, folder = pointer["placement"], state / pointer["folder"]
    elif (state / "database" / "MANIFEST").exists():
        name, folder = "driver", state / "database"
    else:
        name, folder = "sharded", state / "sharded"
    if name == "driver":
        return Chosen(name, folder)
    epochs = Epochs(folder)
    numbers = epochs.numbers()
    return Chosen(name, folder, epochs.read(numbers[-1]).sides) if numbers else None


def point_to(state: Path, name: str, folder: Path) -> None:
    """Record which folder has the state."""
    text = json.dumps({"placement": name, "folder": folder.name}) + "\n"
    replace_text(state / _POINTER, text)


def choose(
    program: Program, state: Path, placement: str, shards: int | None, sources: Sequence[Source]
) -> Chosen:
    """Return the placement; raise UsageError if the requested one is not possible."""
    one_of("placement", placement, PLACEMENTS)
    if shards is not None and shards < 1:
        raise UsageError(f"`shards` is 1 or more, not {shards}")
    there = existing(state)
    if there is not None:
        return _as_it_is(there, placement, shards)
    if placement == "driver":
        return Chosen("driver", state / "database")
    count = shards or cores()
    if placement == "sharded":
        made = layout_of(program, count)
        if isinstance(made, NotSharded):
            raise UsageError(
                f"{program.name} cannot be sharded: {made.why}"
                '\n  help: placement = "driver" keeps the whole state in one process'
            )
        return Chosen("sharded", state / "sharded", made.grid.sides)
    return _automatic(program, state, shards, count, sources)


def _as_it_is(there: Chosen, placement: str, shards: int | None) -> Chosen:
    count = 1
    for side in there.sides:
        count *= side
    wanted = there.name if placement == "auto" else placement
    if wanted == there.name and (shards in (None, count) or there.name == "driver"):
        return there
    held = f"{count} shards" if there.name == "sharded" else "one database"
    raise UsageError(
        f"the state is in {held}, which is not what was requested"
        "\n  help: `tidelog pipeline rescale` moves it"
    )


def _automatic(
    program: Program, state: Path, shards: int | None, count: int, sources: Sequence[Source]
) -> Chosen:
    driver = Chosen("driver", state / "database")
    size = sum(
        file.size
        for source in sources
        if source.is_files and is_local(source.path)
        for file in list_files(source.path, None)
    )
    if shards is None and (size < LARGE or count < 2):
        return driver
    made = layout_of(program, count)
    if isinstance(made, NotSharded) or made.doubts:
        why = made.why if isinstance(made, NotSharded) else made.doubts[0]
        return Chosen("driver", state / "database", why=f"not sharded: {why}")
    why = f"{shards} shards were requested" if shards else f"the sources have {size:,} bytes"
    return Chosen("sharded", state / "sharded", made.grid.sides, why)


def layout_of(program: Program, shards: int) -> ShardLayout | NotSharded:
    """Return how a program is sharded on Spark, or why it is not."""
    for rule in program.rules:
        for literal in _reduces(rule.body):
            if literal.registered is not None:
                return NotSharded(
                    f"the aggregate `{literal.op}` is registered in this process,"
                    " and Spark's workers do not know it"
                )
    for name in user_functions(program):
        return NotSharded(
            f"the function `{name}` is registered in this process, and Spark's workers do not"
            " know it"
        )
    return lay_out(program, shards)


def _reduces(body: tuple[Literal, ...]) -> Iterator[Reduce]:
    for literal in body:
        if isinstance(literal, Reduce):
            yield literal
            yield from _reduces(literal.body)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
