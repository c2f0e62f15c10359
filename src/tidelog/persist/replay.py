"""The log after a snapshot: reading it, and bringing an engine to its last epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.dictionaries import restore as restore_entries
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.files import Files
from tidelog.durable.framing import Record
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.store.codec import Codec

Array = NDArray[np.int64]


class FoundLog(NamedTuple):
    """What an opening finds in the log."""

    records: list[EpochRecord]
    """The complete epochs after the snapshot."""
    begun: EpochRecord | None
    """The given part of the epoch after them, if its view part is not in the log."""
    is_committed: bool
    """Whether that epoch is known to have committed."""
    last: Record | None
    """The last record of the segment that is being written."""


def read_log(files: Files, manifest: Manifest) -> FoundLog:
    """Return the epochs to replay after the snapshot."""
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
    return FoundLog(records, begun, is_committed, last)


def restore_entries_of(codec: Codec, records: Sequence[EpochRecord]) -> None:
    """Add the dictionary entries of records, and the record types of their programs.

    Call it before anything is computed: values that are computed again then get the same ids.
    """
    for record in records:
        if record.program is not None:
            codec.add_records(Program.parse(*record.program[:2]).records)
        for entries in record.entries:
            restore_entries(codec, entries)


def replay(engine: KernelEngine, records: Sequence[EpochRecord]) -> None:
    """Bring an engine from a snapshot's epoch to that of the last record, as one epoch.

    Rows that were inserted and deleted in between cancel out. The dictionary entries are restored
    already (`restore_entries_of`). An epoch that changed the program is replayed by itself.
    """
    group: list[EpochRecord] = []
    for record in records:
        if record.program is not None:
            _replay_group(engine, group)
            _replay_group(engine, [record])
            group = []
        else:
            group.append(record)
    _replay_group(engine, group)


def _replay_group(engine: KernelEngine, records: Sequence[EpochRecord]) -> None:
    if not records:
        return
    parts: dict[str, list[tuple[Array, Array]]] = {}
    for record in records:
        for rows in record.changes:
            if rows.role.is_given:
                parts.setdefault(rows.relation, []).append(rows.ordinals())
    encoded = {name: net_change(changes) for name, changes in parts.items()}
    engine.replay(encoded, records[-1].epoch, records[-1].program)


def net_change(changes: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the net change of consecutive changes: inserted rows, deleted rows.

    A row is inserted and deleted in turns, so the sum of its signs is the net change.
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
