"""Opening a durable database: a new one, an existing one, or one whose program has changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.durable.log_reading import COMMITTED
from tidelog.durable.saved import load_index
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.state import OtherShapeError, strategies_of
from tidelog.errors import StateError, UsageError
from tidelog.io.tabular import RowReader
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import is_same
from tidelog.persist.given_files import read_given
from tidelog.persist.settings import Settings
from tidelog.persist.state_writer import StateWriter
from tidelog.values.types import Row


def open_state(
    files: Files,
    settings: Settings,
    engine: KernelEngine,
    given: Mapping[str, Collection[Row]],
    first_epoch: int = 0,
) -> StateWriter:
    """Fill an empty engine from files, and return what writes its epochs there.

    A new database starts with the given rows, at `first_epoch`. Raises StateError if another
    process writes to the folder.
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
            writer = _open(files, lock, settings, engine)
        elif files.exists(COMMITTED):
            raise StateError(
                f"`{files.folder}` has lost its {manifests.NAME}"
                "\n  help: restore the folder from a copy; nothing was changed"
            )
        else:
            engine.load(given)
            writer = StateWriter.create(files, lock, settings, engine, first_epoch)
    except BaseException:
        lock.release()
        raise
    writer.opened = replace(writer.opened, seconds=time.perf_counter() - start)
    return writer


def _open(files: Files, lock: WriterLock, settings: Settings, engine: KernelEngine) -> StateWriter:
    manifest = manifests.read(files)
    files.sync_folder()  # the last writer may have ended before its rename was synced
    wanted, forced = engine.program, engine.forced
    saved_as = Program.parse(manifest.program, manifest.program_name)
    why = ""
    if settings.on_program_change == "migrate" or not is_same(saved_as, wanted):
        # The log may lead to the program that is wanted.
        engine.restart(saved_as, strategies_of(load_index(files, manifest.snapshot), saved_as))
    try:
        writer = StateWriter.open(files, lock, settings, engine, manifest)
    except OtherShapeError as other:
        why = str(other)
    else:
        engine.forced = forced
        if is_same(engine.program, wanted) and settings.on_program_change != "migrate":
            return writer
        if settings.on_program_change == "migrate":
            return _migrated(writer, engine, wanted)
        writer.close_log()
        manifest = manifests.read(files)
    held = read_given(files, manifest, verify=settings.verify, is_writer=True)
    if not is_same(held.program, wanted):
        why = "the program has changed"
        if settings.on_program_change == "refuse":
            raise UsageError(
                f"the database in `{files.folder}` is of another program"
                '\n  help: on_program_change="migrate" applies the difference,'
                ' "rebuild" evaluates the new program on the given facts'
            )
    engine.restart(wanted, forced)
    engine.load(_checked(engine.program, held.rows))
    writer = StateWriter.create(files, lock, settings, engine, held.epoch, manifest)
    writer.opened = replace(writer.opened, rebuilt=why)
    return writer


def _migrated(writer: StateWriter, engine: KernelEngine, wanted: Program) -> StateWriter:
    """Apply the difference to the wanted program, as an epoch, if there is one."""
    strategies = engine.state.strategies()
    is_forced = all(strategies.get(name) == s for name, s in engine.forced.items())
    if is_same(engine.program, wanted) and is_forced:
        return writer
    try:
        engine.apply({}, {}, program=wanted)
        writer.snapshot()  # which takes what is unchanged from the files that are there
    except BaseException:
        writer.close_log()
        raise
    writer.opened = replace(writer.opened, epoch=writer.epoch, migrated=True)
    return writer


def _checked(program: Program, rows: Mapping[str, Collection[Row]]) -> dict[str, Collection[Row]]:
    """Return the given rows of an older program for a new one."""
    given: dict[str, Collection[Row]] = {}
    for name, held in rows.items():
        if not held:
            continue
        relation = program.relations.get(name)
        if relation is None:
            raise UsageError(
                f"the new program does not declare `{name}`, which has {len(held):,} given rows"
                "\n  help: delete them before the program changes, or declare it"
            )
        given[name] = RowReader(relation, program.records).rows(list(held))
    return given
