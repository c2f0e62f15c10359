"""Opening a durable database: a new one, one that is there, or one whose program has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.durable.log_reading import COMMITTED
from tidelog.durable.manifest import Manifest
from tidelog.engine.given_files import read_given
from tidelog.engine.keeper import Keeper
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.saving import OtherShapeError
from tidelog.engine.settings import Settings
from tidelog.errors import StateError, UsageError
from tidelog.io.tabular import RowReader
from tidelog.logic.program import Program
from tidelog.values.types import Row


class MakeEngine(Protocol):
    """Makes an engine for the program, on given rows or restored from files."""

    def __call__(
        self,
        given: Mapping[str, Collection[Row]],
        restore: Callable[[KernelEngine], None] | None = None,
    ) -> KernelEngine:
        """Return the engine."""


def open_state(
    files: Files,
    settings: Settings,
    program: Program,
    given: Mapping[str, Collection[Row]],
    make: MakeEngine,
    first_epoch: int = 0,
) -> tuple[KernelEngine, Keeper]:
    """Return an engine and what keeps it in files; raise StateError if another one writes there.

    A state that is new begins with the given rows, at `first_epoch`.
    """
    start = time.perf_counter()
    files.make_folder()
    lock = WriterLock(files)
    try:
        if files.exists(manifests.NAME):
            if given:
                raise UsageError(
                    f"there is a database in `{files.folder}`; `facts` are for a new one"
                    "\n  help: insert them in a transaction"
                )
            engine, keeper = _open(files, lock, settings, program, make)
        elif files.exists(COMMITTED):
            raise StateError(
                f"`{files.folder}` has lost its {manifests.NAME}"
                "\n  help: put the folder back from a copy; nothing was changed"
            )
        else:
            engine = make(given)
            keeper = Keeper.create(files, lock, settings, engine, program, first_epoch)
    except BaseException:
        lock.release()
        raise
    keeper.opened = replace(keeper.opened, seconds=time.perf_counter() - start)
    return engine, keeper


def _open(
    files: Files, lock: WriterLock, settings: Settings, program: Program, make: MakeEngine
) -> tuple[KernelEngine, Keeper]:
    manifest = manifests.read(files)
    files.sync_folder()  # what was read stays, whatever was under way when it was left
    if manifest.program.strip() == program.text.strip():
        made: list[KernelEngine] = []

        def restored(restore: Callable[[KernelEngine], None]) -> KernelEngine:
            made.append(make({}, restore))
            return made[-1]

        try:
            keeper = Keeper.open(files, lock, settings, restored, manifest)
            return made[-1], keeper
        except OtherShapeError:
            why = "this version of Tidelog stores the relations in another way"
    elif settings.on_program_change == "rebuild":
        why = "the program has changed"
    else:
        raise UsageError(
            f"the database in `{files.folder}` is of another program"
            '\n  help: on_program_change="rebuild" evaluates the new one on the given facts'
        )
    return _rebuild(files, lock, settings, program, make, manifest, why)


def _rebuild(
    files: Files,
    lock: WriterLock,
    settings: Settings,
    program: Program,
    make: MakeEngine,
    manifest: Manifest,
    why: str,
) -> tuple[KernelEngine, Keeper]:
    """Evaluate a program anew on the given facts of a state."""
    held = read_given(files, manifest, verify=settings.verify, is_writer=True)
    given = {}
    for name, rows in held.rows.items():
        if not rows:
            continue
        relation = program.relations.get(name)
        if relation is None:
            raise UsageError(
                f"the new program does not declare `{name}`, which has {len(rows):,} given rows"
                "\n  help: delete them before the program changes, or declare it"
            )
        given[name] = RowReader(relation, program.records).rows(list(rows))
    engine = make(given)
    keeper = Keeper.create(files, lock, settings, engine, program, held.epoch, manifest)
    keeper.opened = replace(keeper.opened, rebuilt=why)
    return engine, keeper
