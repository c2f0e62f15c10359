"""The kernel's state, to and from a snapshot.

Saved are the domains, all runs in all orders, the dictionaries, and what strategies remember. What
a strategy keeps besides it builds anew when it is told that the relations are back (`restored`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.epochs import EpochRecord, Role, Rows
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.framing import Record
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.durable.saved import Relation, RunInFiles, Saved, SavedRun, SavedTable, SumsInFiles
from tidelog.durable.snapshot import LARGE, Image
from tidelog.durable.tables import Entries, pieces
from tidelog.durable.tables import restore as restore_entries
from tidelog.engine.report import EpochReport
from tidelog.io.columns import CheckedTable
from tidelog.logic.program import Relation as Declared
from tidelog.maintain.catalog import Catalog
from tidelog.store.capture import Capture, SavedCapture
from tidelog.store.codec import Codec
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.index import Index
from tidelog.store.kept_items import Pieces
from tidelog.store.lazy_run import LazyRun
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run
from tidelog.values.types import Kind, Row, Type

if TYPE_CHECKING:
    from tidelog.engine.kernel import KernelEngine

Array = NDArray[np.int64]
Stated = Mapping[str, set[Row]]


class OtherShapeError(Exception):
    """The snapshot is of a program that was stored in another way: it has to be evaluated anew."""


# --- out --------------------------------------------------------------------------------------


def image_of(engine: KernelEngine, epoch: int, *, use_files: bool = False) -> Image:
    """Return everything that is to be saved. Epochs that follow do not change it.

    With `use_files` large runs that nobody has touched since they were opened stay where they are.
    """
    catalog = engine._catalog
    numbers = _numbered_domains(catalog)
    relations = [
        Relation(
            name,
            is_given,
            tuple(numbers[id(domain)][0] for domain in stored.domains),
            {order: _captured(index, use_files) for order, index in stored.indexes.items()},
            [
                held.capture(use_files=use_files and held.nbytes >= LARGE)
                for held in stored.attached
            ],
        )
        for name, is_given, stored in _everything(catalog)
    ]
    return Image(
        epoch,
        [(domain.bias, domain.bits) for _, domain in numbers.values()],
        relations,
        [(type_, table, len(table)) for type_, table in catalog.codec.tables()],
        {n: catalog.encode(n, rows) for n, rows in engine._given_facts.items() if rows},
        [(layer.relations, s.name, dict(s.memory())) for layer, s in engine._strategies],
    )


def release(engine: KernelEngine) -> None:
    """Stop to note changes for an image."""
    for relation in engine._catalog.everything():
        for index in relation.indexes.values():
            index.captures = []
        for attached in relation.attached:
            attached.release()


def _captured(index: Index, use_files: bool) -> list[Capture]:
    index.captures = [
        SavedCapture(run)
        if use_files and isinstance(run, LazyRun) and run.nbytes >= LARGE
        else Capture(run)
        for run in index.runs
    ]
    return index.captures


def _everything(catalog: Catalog) -> Iterator[tuple[str, bool, StoredRelation]]:
    """Yield name, whether these are only the given rows, and relation."""
    for name, relation in catalog.relations.items():
        yield name, False, relation
        if catalog.given[name] is not relation:
            yield name, True, catalog.given[name]


def _numbered_domains(catalog: Catalog) -> dict[int, tuple[int, Domain]]:
    numbers: dict[int, tuple[int, Domain]] = {}
    for relation in catalog.relations.values():
        for domain in relation.domains:
            numbers.setdefault(id(domain), (len(numbers), domain))
    return numbers


def given_changes(engine: KernelEngine, stated: Stated) -> list[Rows]:
    """Return what was given in the epoch that is under way, and what was taken."""
    catalog = engine._catalog
    changes = []
    for name in engine._program.relations:
        given = catalog.given[name]
        if given.touched and given.delta:
            role = Role.BOTH if given is catalog.relations[name] else Role.GIVEN
            changes.append(_rows(name, role, given))
    if stated is not engine._given_facts:
        for name, after in stated.items():
            before = engine._given_facts.get(name, set())
            if after != before:
                changes.append(_stated_rows(catalog, name, after - before, before - after))
    return changes


def view_changes(engine: KernelEngine) -> list[Rows]:
    """Return what the epoch that is about to be kept has changed in views that rules derive."""
    catalog = engine._catalog
    return [
        _rows(name, Role.VIEW, relation)
        for name in engine._program.relations
        if (relation := catalog.relations[name]).touched
        and relation.delta
        and relation is not catalog.given[name]
    ]


def record_of(
    engine: KernelEngine, epoch: int, stated: Stated, entries: Sequence[Entries]
) -> EpochRecord:
    """Return the whole record of the epoch that is about to be kept."""
    changes = given_changes(engine, stated) + view_changes(engine)
    return EpochRecord(epoch, time.time(), changes, entries)


def read_for_commit(engine: KernelEngine) -> None:
    """Read from files what a commit may need; what this raises can still undo the epoch."""
    for relation in engine._catalog.everything():
        if relation.touched:
            relation.read_for_commit()


def _rows(name: str, role: Role, relation: StoredRelation) -> Rows:
    delta = relation.delta
    return Rows(name, role, *relation.codes, delta.inserted, delta.deleted)


def _stated_rows(catalog: Catalog, name: str, more: set[Row], less: set[Row]) -> Rows:
    columns = len(catalog.domains(name))
    inserted, deleted = catalog.encode(name, more), catalog.encode(name, less)
    return Rows(name, Role.STATED, (0,) * columns, (RAW_BITS,) * columns, inserted, deleted)


# --- in ---------------------------------------------------------------------------------------


def restore(engine: KernelEngine, saved: Saved, arrays: Arrays) -> None:
    """Put everything in its place. The engine has no rows so far."""
    catalog = engine._catalog
    strategies = [(layer.relations, strategy.name) for layer, strategy in engine._strategies]
    if strategies != [(names, strategy) for names, strategy, _ in saved.memories]:
        raise OtherShapeError
    restore_relations(catalog, saved, arrays)
    engine._given_facts = {name: set() for name in engine._program.relations}
    for name, extent in saved.stated.items():
        engine._given_facts[name] = set(catalog.decode_ordinals(name, arrays.read(extent)))
    engine.last_epoch = EpochReport(saved.epoch, 0.0, 0, 0, ())


def resume(engine: KernelEngine, saved: Saved) -> None:
    """Make ready for updates, when the relations are as they were.

    Joins are planned when they are first needed: the orders that they read are there, and
    looking at the sizes of columns would read relations that nobody may ask for.
    """
    for _, strategy in engine._strategies:
        strategy.restored()
    for (_, strategy), (_, _, memory) in zip(engine._strategies, saved.memories, strict=True):
        strategy.remember(memory)


def restore_relations(
    catalog: Catalog, saved: Saved, arrays: Arrays, *, rows_only: bool = False
) -> None:
    """Read relations back; with `rows_only` as a reader needs them: views, in one order."""
    _restore_domains(catalog, saved)
    arrays.hold(saved.files())
    restore_tables(catalog.codec, saved, arrays)
    for relation in saved.relations:
        if rows_only and (relation.is_given or "@" in relation.name):
            continue
        given = catalog.given[relation.name]
        stored = given if relation.is_given else catalog.relations[relation.name]
        identity = stored.primary.layout.order
        orders = [identity] if rows_only else list(relation.orders)
        indexes = {order: stored.index(order) for order in orders}
        for order, index in indexes.items():
            index.runs = [_run(run, arrays, rows_only) for run in relation.orders[order]]
            index.forget_table()
        if not rows_only:
            for attached, sums in zip(stored.attached, relation.sums, strict=False):
                attached.keep(SumsInFiles(sums, arrays))
    catalog.stamp = object()


def _restore_domains(catalog: Catalog, saved: Saved) -> None:
    """Give the domains their numbers back; raise if columns share them in another way."""
    wanted = {(name, is_given): stored for name, is_given, stored in _everything(catalog)}
    if [(r.name, r.is_given) for r in saved.relations] != list(wanted):
        raise OtherShapeError
    numbers = _numbered_domains(catalog)
    for relation in saved.relations:
        stored = wanted[relation.name, relation.is_given]
        if relation.domains != tuple(numbers[id(domain)][0] for domain in stored.domains):
            raise OtherShapeError
        counted = stored.counted and not relation.is_given
        primary = relation.orders.get(stored.primary.layout.order)
        if primary is None or any((run.counts is not None) != counted for run in primary):
            raise OtherShapeError
    for number, domain in numbers.values():
        domain.bias, domain.bits = saved.domains[number]
        domain.version += 1
    catalog.relayout()


def restore_tables(codec: Codec, saved: Saved, arrays: Arrays) -> None:
    """Read the dictionaries back: sets now, symbols and records when they are wanted."""
    parts: dict[Type, list[SavedTable]] = {}
    for table in saved.tables:
        if table.type.kind is Kind.SET:
            restore_entries(codec, table.read(arrays))
        elif table.count:
            parts.setdefault(table.type, []).append(table)
    for type_, held in parts.items():
        size = sum(table.count for table in held)
        codec.table(type_).keep(size, partial(_read_pieces, held, arrays))


def _read_pieces(parts: Sequence[SavedTable], arrays: Arrays) -> Pieces:
    return pieces([table.read(arrays) for table in parts])


def _run(saved: SavedRun, arrays: Arrays, rows_only: bool) -> Run:
    return LazyRun(saved.words.shape[1], saved.dead, RunInFiles(saved, arrays, rows_only))


class Replayed(NamedTuple):
    """What an opening finds in the log."""

    records: list[EpochRecord]
    """The epochs after the snapshot, all in one piece."""
    begun: EpochRecord | None
    """What is given in the one behind them, if its views are not in the log."""
    is_committed: bool
    """Whether that one is known to have committed."""
    last: Record | None
    """The last record of the file that is being written."""


def read_log(files: Files, manifest: Manifest) -> Replayed:
    """Return what is to be done again after the snapshot."""
    records: list[EpochRecord] = []
    begun, last = None, None
    current = manifest.segments[-1]
    published = read_published(files, manifest.identity)
    since = manifest.snapshot.epoch
    oldest = min(since, current.first - 1)
    for record in read_records(
        files, manifest.identity, manifest.segments, oldest, published, unfinished=True
    ):
        if record.epoch >= current.first:
            last = record
        if not record.is_complete:
            begun = EpochRecord.decode(record.payload)
        elif record.epoch > since:
            records.append(EpochRecord.decode(*record.payloads))
    is_committed = (
        last is not None
        and published is not None
        and published.first == current.first
        and published.durable >= last.end
    )
    return Replayed(records, begun, is_committed, last)


def restore_entries_of(codec: Codec, records: Sequence[EpochRecord]) -> None:
    """Add the entries of dictionaries that records have.

    Before anything is computed: what is computed again then gets the numbers that it had.
    """
    for record in records:
        for entries in record.entries:
            restore_entries(codec, entries)


def replay(engine: KernelEngine, records: Sequence[EpochRecord]) -> None:
    """Bring the state from a snapshot's epoch to that of the last record, as one epoch.

    Rows that came and went in between cancel out. All entries of dictionaries are there already
    (`restore_entries_of`).
    """
    catalog = engine._catalog
    parts: dict[str, list[tuple[Array, Array]]] = {}
    stated = {name: set(rows) for name, rows in engine._given_facts.items()}
    for record in records:
        for rows in record.changes:
            if rows.role.is_given:
                parts.setdefault(rows.relation, []).append(rows.ordinals())
            elif rows.role is Role.STATED:
                inserted, deleted = rows.ordinals()
                stated[rows.relation] |= set(catalog.decode_ordinals(rows.relation, inserted))
                stated[rows.relation] -= set(catalog.decode_ordinals(rows.relation, deleted))
    encoded = {name: net_change(changes) for name, changes in parts.items()}
    engine.replay(encoded, stated)


def net_change(changes: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return what changes that follow each other come to: rows that came, rows that went.

    Each row comes and goes in turns, so the sum over both tells.
    """
    inserted = np.concatenate([more for more, _ in changes], axis=1)
    deleted = np.concatenate([less for _, less in changes], axis=1)
    if not inserted.shape[1] or not deleted.shape[1] or len(changes) == 1:
        return inserted, deleted
    n = inserted.shape[1]
    rows = np.concatenate([inserted, deleted], axis=1)
    signs = np.ones(rows.shape[1], np.int64)
    signs[n:] = -1
    order = np.lexsort(rows[::-1])
    rows, signs = rows[:, order], signs[order]
    starts = np.flatnonzero(
        np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0)) if len(order) else signs
    )
    sums = np.add.reduceat(signs, starts)
    rows = rows[:, starts]
    return np.ascontiguousarray(rows[:, sums > 0]), np.ascontiguousarray(rows[:, sums < 0])


def given_rows(engine: KernelEngine, name: str) -> list[Row]:
    """Return the given rows of a relation, those that the program states as well included."""
    catalog = engine._catalog
    stored = catalog.given[name]
    rows = catalog.decode_ordinals(name, stored.ordinals(stored.rows()))
    stated = engine._facts.get(name)
    if not stated:
        return rows
    return [row for row in rows if row not in stated or row in engine._given_facts[name]]


def given_table(engine: KernelEngine, relation: Declared) -> CheckedTable | None:
    """Return the given rows of a relation of scalars; None if the program states some as well."""
    import pyarrow as pa

    from tidelog.engine.arrow import arrow_column

    if relation.name in engine._facts:
        return None
    codec, stored = engine._catalog.codec, engine._catalog.given[relation.name]
    ordinals = stored.ordinals(stored.rows())
    columns = {
        column.name: arrow_column(ordinals[i], column.type, codec)
        for i, column in enumerate(relation.columns)
    }
    return CheckedTable(pa.table(columns))


def compact(engine: KernelEngine) -> None:
    """Merge all runs of every order into one, without dead rows. Between epochs only."""
    from tidelog.store.merging import merge, without_dead

    for relation in engine._catalog.everything():
        for index in relation.indexes.values():
            index.merges.clear()
            while len(index.runs) > 1:
                last = index.runs.pop()
                index.runs[-1] = merge(index.runs[-1], last)
            index.runs = [without_dead(run) if run.dead else run for run in index.runs]
            index.runs = [run for run in index.runs if len(run)]
            index.forget_table()
