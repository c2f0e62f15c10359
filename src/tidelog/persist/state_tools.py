"""Inspecting and moving the files of a durable database: the commands of `tidelog state`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.durable import deliveries
from tidelog.durable import manifest as manifests
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.framing import Record
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.durable.places import Place
from tidelog.durable.saved import SavedSnapshot, load_index
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.state import OtherShapeError, strategies_of
from tidelog.errors import StateError, UsageError, did_you_mean
from tidelog.io.tabular import Records, RowReader, to_arrow
from tidelog.logic.program import Program
from tidelog.persist.given_files import read_given
from tidelog.persist.opening import open_state
from tidelog.persist.replay import replay, restore_entries_of
from tidelog.persist.settings import Settings
from tidelog.values.text import parse_value
from tidelog.values.types import Kind, Type

_EXPORT = "export.json"
_PROGRAM = "program.dl"
_EXPORT_FORMAT = 1


def _manifest(files: Files) -> Manifest:
    if not files.exists(manifests.NAME):
        raise UsageError(f"there is no database in `{files.folder}`")
    return manifests.read(files)


@dataclass(frozen=True)
class StateInfo:
    """What the files of a database contain, without reading all of them."""

    manifest: Manifest
    epoch: int
    oldest_epoch: int
    replayed: int
    """How many epochs an opening would replay."""
    rows: dict[str, int]
    """The rows of each view in the snapshot."""
    log_bytes: int
    files: int


def info(path: str | Path) -> StateInfo:
    """Return what the files of a database contain."""
    files = Files(path)
    manifest = _manifest(files)
    saved = load_index(files, manifest.snapshot)
    epoch, last = manifest.snapshot.epoch, None
    for record in _records(files, manifest, epoch):
        if record.is_complete:
            last = record
    rows = {
        relation.name: sum(
            run.words.shape[1] - run.dead for run in next(iter(relation.orders.values()))
        )
        for relation in saved.relations
        if not relation.is_given and "@" not in relation.name
    }
    names = {segment.name for segment in manifest.segments}
    newest = epoch if last is None else last.epoch
    return StateInfo(
        manifest,
        newest,
        manifest.segments[0].first - 1,
        newest - epoch,
        rows,
        sum(files.size(name) for name in names),
        len(names | saved.files()) + 3,
    )


def _records(files: Files, manifest: Manifest, since: int) -> Iterator[Record]:
    published = read_published(files, manifest.identity)
    return read_records(
        files, manifest.identity, manifest.segments, since, published,
        committed_only=True, unfinished=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Verified:
    """What was verified, and the problems found."""

    epoch: int
    bytes: int
    records: int
    problems: tuple[str, ...]
    unfinished: int
    """How many epochs have no view part, which the next opening computes: 0 or 1."""


def verify(path: str | Path, *, deep: bool = False) -> Verified:
    """Recompute all checksums; raise StateError for the first that is wrong.

    `deep` also re-evaluates the program on the given rows, and compares rows, levels and counts.
    """
    files = Files(path)
    manifest = _manifest(files)
    saved = load_index(files, manifest.snapshot)
    arrays = Arrays(files, manifest.identity)
    for extent in saved.extents():
        arrays.read(extent)
    for name in files.names():
        if name.startswith(deliveries.PREFIX) and name.endswith(".tide"):
            deliveries.read_deliveries(files, name)
    records = unfinished = 0
    epoch = saved.epoch
    after = []
    for record in _records(files, manifest, -1):
        if record.is_complete:
            records += 1
            epoch = max(epoch, record.epoch)
        else:
            unfinished += 1
        decoded = EpochRecord.decode(*record.payloads)
        if record.epoch > saved.epoch:
            after.append(decoded)
    problems = _compare(files, manifest, saved, after) if deep else ()
    return Verified(epoch, arrays.mapped, records, problems, unfinished)


def _compare(
    files: Files, manifest: Manifest, saved: SavedSnapshot, records: list[EpochRecord]
) -> tuple[str, ...]:
    """Return the differences between a state and an evaluation of its program on its given rows."""
    given = read_given(files, manifest)
    arrays = Arrays(files, manifest.identity)
    program = Program.parse(manifest.program, manifest.program_name)
    strategies = strategies_of(saved, program)
    held = KernelEngine.empty(program, strategies=strategies)
    try:
        held.restore(saved, arrays)
    except OtherShapeError:
        return ("it was written by another version of Tidelog: open it for writing once",)
    restore_entries_of(held.state.codec, records)
    held.resume(saved)
    if records:
        replay(held, records)
    strategies = held.state.strategies()
    fresh = KernelEngine(given.program, given.rows, expects_updates=False, strategies=strategies)
    problems = []
    for name in given.program.relations:
        found, wanted = held.levels_and_counts(name), fresh.levels_and_counts(name)
        for what, number in (
            ("too many", len(found.keys() - wanted.keys())),
            ("missing", len(wanted.keys() - found.keys())),
            ("with another level or count", sum(
                found[row] != state for row, state in wanted.items() if row in found
            )),
        ):  # fmt: skip
            if number:
                problems.append(f"`{name}`: {number:,} rows {what}")
    try:
        held.check()
    except AssertionError as error:
        problems.append(str(error))
    return tuple(problems)


def compact(path: str | Path, retain_epochs: int = 0) -> None:
    """Merge all runs, write a snapshot, and remove the log except `retain_epochs`."""
    files = Files(path)
    manifest = _manifest(files)
    program = Program.parse(manifest.program, manifest.program_name)
    strategies = strategies_of(load_index(files, manifest.snapshot), program)
    engine = KernelEngine.empty(program, strategies=strategies)
    with closing(open_state(files, Settings(), engine, {})) as writer:
        writer.compact(retain_epochs)


# --- moving -----------------------------------------------------------------------------------


def export_state(path: str | Path, into: str | Path, filesystem: Any = None) -> int:
    """Write the program and its given rows to a folder that any version can read.

    It can be anywhere that Arrow reaches; with a `pyarrow.fs.FileSystem` it is a folder there.
    """
    import pyarrow as pa

    files, place = Files(path), Place(into, filesystem)
    given = read_given(files, _manifest(files))
    place.make()
    place.write(_PROGRAM, given.program.text.encode())
    nullary = []
    for name, rows in given.rows.items():
        relation = given.program.relations[name]
        if not relation.arity:
            nullary += [name] if rows else []
        elif rows:
            table = to_arrow(rows, relation, given.program.records)
            with (
                place.output(f"{name}.arrow") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table)
    about = {"format": _EXPORT_FORMAT, "epoch": given.epoch, "nullary": nullary}
    place.write(_EXPORT, (json.dumps(about) + "\n").encode())
    return given.epoch


def import_state(exported: str | Path, path: str | Path, filesystem: Any = None) -> int:
    """Create a database from what `export_state` has written; return its epoch."""
    import pyarrow as pa

    place, files = Place(exported, filesystem), Files(path)
    names = place.names()
    if _EXPORT not in names:
        raise UsageError(f"`{place}` is not an export: it has no {_EXPORT}")
    if files.exists(manifests.NAME):
        raise UsageError(f"there is a database in `{path}` already")
    about = json.loads(place.read(_EXPORT))
    if about.get("format") != _EXPORT_FORMAT:
        raise StateError(f"`{place}` has format {about.get('format')}, which is not known")
    program = Program.parse(place.read(_PROGRAM).decode(), place.shown(_PROGRAM))
    facts: dict[str, object] = {name: [()] for name in about["nullary"]}
    for stem in (name.removesuffix(".arrow") for name in names if name.endswith(".arrow")):
        relation = program.relations.get(stem)
        if relation is None:
            hint = did_you_mean(stem, program.relations)
            raise UsageError(
                f"`{place.shown(stem)}.arrow`: the program has no `{stem}`"
                + (f"; {hint}" * bool(hint))
            )
        with place.input(f"{stem}.arrow") as file, pa.ipc.open_file(file) as reader:
            columns = reader.read_all().columns
        facts[stem] = list(
            zip(
                *(
                    [_value(value, field.type, program.records) for value in column.to_pylist()]
                    for column, field in zip(columns, relation.columns, strict=True)
                ),
                strict=True,
            )
        )
    engine = KernelEngine.empty(program)
    given = {
        name: RowReader(program.relations[name], program.records).rows(rows)
        for name, rows in facts.items()
    }
    with closing(open_state(files, Settings(), engine, given, about["epoch"])) as writer:
        return writer.epoch


def _value(value: Any, type_: Type, records: Records) -> Any:
    """Return a value from its Arrow form. Lists of records are text."""
    if type_.kind is Kind.SET:
        assert type_.element is not None
        return frozenset(_value(part, type_.element, records) for part in value)
    if type_.kind is Kind.RECORD and isinstance(value, str):
        return parse_value(value, type_, records)
    if type_.kind is Kind.RECORD and value is not None:
        parts = zip(value.values(), records[type_.record], strict=True)
        return tuple(_value(part, field.type, records) for part, field in parts)
    return value
