"""The state of one shard: an engine, and the files that restore it in any process.

There is a snapshot, and for each later epoch a record of the given rows that changed. Each file is
written once, under a unique name, and is valid when a committed `ShardRef` names it. So several
processes can run the same epoch: the commit names the files of one of them. There is no manifest,
no growing log and no lock here.

A shard in memory knows the last record that it has applied. If a `ShardRef` names that record, the
shard catches up by the records after it. If not, the shard is dropped and opened from its files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.dictionaries import Watermarks
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.framing import damaged, frame, record_at
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.saved import SavedSnapshot, load_index
from tidelog.durable.snapshot import SnapshotWriter
from tidelog.durable.syncing import Syncing
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import NoObserver
from tidelog.engine.state import OtherShapeError
from tidelog.errors import StateError, UsageError
from tidelog.logic.program import Program
from tidelog.persist.replay import replay, restore_entries_of
from tidelog.store.versions import Delta

Array = NDArray[np.int64]
Encoded = Mapping[str, tuple[Array, Array]]

_EVERYTHING = 1 << 62  # bytes
_LEAST_LOG = 4 << 20  # bytes of records before a snapshot is considered
_LOG_SHARE = 4  # a snapshot is written when the records exceed 1/4 of the last one
_MOST_RECORDS = 200
_KEPT = 8  # records before a snapshot, for shards in memory that are a few epochs late


@dataclass(frozen=True)
class ShardRef:
    """The files of a shard."""

    snapshot: SnapshotRef
    records: tuple[str, ...]
    """The last records, from a few before the snapshot on."""
    held: int
    """How many of them the snapshot includes."""
    log_bytes: int = 0
    """The size of the others."""
    files: tuple[str, ...] = ()
    """All files of the snapshot."""

    @property
    def last_file(self) -> str:
        """The name of the last file of this state, which identifies it."""
        return self.records[-1] if self.records else self.snapshot.name

    def names(self) -> set[str]:
        """Return the names of all files that must not be removed."""
        return {self.snapshot.name, *self.files, *self.records}

    def as_data(self) -> dict[str, Any]:
        """Return a value that JSON can represent."""
        return {**vars(self), "snapshot": vars(self.snapshot)}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> ShardRef:
        """Return the reference that `as_data` was called on."""
        snapshot = SnapshotRef(**data["snapshot"])
        records, files = tuple(data["records"]), tuple(data["files"])
        return ShardRef(snapshot, records, data["held"], data["log_bytes"], files)


@dataclass
class ShardDone:
    """What an epoch did in a shard."""

    ref: ShardRef
    changes: dict[str, Delta] = field(default_factory=dict)
    """The net changes of the watched relations, as columns of ordinals."""
    given: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The numbers of inserted and deleted given rows of each relation."""
    bootstrapped: bool = False
    """Whether any layer was re-evaluated."""
    is_new: bool = False
    """Whether there was no state before. Then all rows are new, and `changes` is empty."""


class _Journal(NoObserver):
    """Calls `record` for each epoch before it is committed."""

    def __init__(self, record: Callable[[], None]) -> None:
        self._record = record

    def computed(self) -> None:
        """Record the epoch."""
        self._record()


class Shard:
    """A shard in memory, and the files of the state that it is in."""

    def __init__(self, files: Files, identity: str, engine: KernelEngine) -> None:
        self._files, self._identity = files, identity
        self.engine = engine
        self._watermarks = Watermarks(engine.state.codec)
        self._saved_entries: Sequence[Any] = ()
        self._ref: ShardRef | None = None
        self._done: ShardDone | None = None
        self._epoch = 0
        self._unsynced: tuple[int, Syncing, str] | None = None
        """The record that is being synced, if there is one: file, sync, and name."""
        self.watched: frozenset[str] = frozenset()
        """The relations whose changes are recorded."""

    @property
    def ref(self) -> ShardRef:
        """The files with this state."""
        assert self._ref is not None
        return self._ref

    # --- from files ---

    @classmethod
    def create(
        cls,
        files: Files,
        identity: str,
        engine: KernelEngine,
        epoch: int,
    ) -> tuple[Shard, ShardDone]:
        """Write the state of an engine that has evaluated its program."""
        files.make_folder()
        shard = cls(files, identity, engine)
        shard._ref = shard._snapshot(epoch, (), ())
        shard._watermarks.note_all_written()
        engine.observer = _Journal(shard._record)
        given = {name: (engine.given_count(name), 0) for name in engine.program.relations}
        return shard, ShardDone(shard._ref, {}, given, bootstrapped=True, is_new=True)

    @classmethod
    def open(cls, files: Files, identity: str, program: Program, ref: ShardRef) -> Shard:
        """Read a shard from its files."""
        saved = load_index(files, ref.snapshot)
        arrays = Arrays(files, identity)
        engine = KernelEngine.empty(program)
        try:
            engine.restore(saved, arrays)
        except OtherShapeError:
            raise UsageError(
                f"`{files.folder}` was written by another version of Tidelog, which stores"
                " relations in another way"
                "\n  help: `tidelog pipeline rescale` re-evaluates it"
            ) from None
        shard = cls(files, identity, engine)
        shard._saved_entries = saved.dictionaries
        records = shard._read(ref.records[ref.held :])
        restore_entries_of(engine.state.codec, records)
        shard._watermarks.note_all_written()  # later entries are in no file yet
        engine.resume(saved)
        if records:
            replay(engine, records)
        shard._ref = ref
        engine.observer = _Journal(shard._record)
        return shard

    def catch_up(self, ref: ShardRef) -> bool:
        """Advance to the state that `ref` names; return False if it does not follow this one."""
        mine = self.ref.last_file
        if mine == ref.last_file:
            self._ref = ref
            return True
        if mine not in ref.records:
            return False
        engine, codec = self.engine, self.engine.state.codec
        engine.observer = NoObserver()
        for record in self._read(ref.records[ref.records.index(mine) + 1 :]):
            for entries in record.entries:
                known = dict(codec.dictionaries()).get(entries.type)
                if known is not None and len(known) != entries.first:
                    return False  # this process assigned dictionary ids that were never written
            restore_entries_of(codec, [record])
            self._watermarks.note_written(record.entries)
            replay(engine, [record])
        self._ref = ref
        engine.observer = _Journal(self._record)
        return True

    def _read(self, names: Sequence[str]) -> list[EpochRecord]:
        found = []
        for name in names:
            record = record_at(memoryview(self._files.read(name)), 0)
            if record is None:
                raise damaged(self._files.shown(name), 0)
            found.append(EpochRecord.decode(record.payload))
        return found

    # --- an epoch ---

    def apply(self, epoch: int, encoded: Encoded) -> ShardDone:
        """Commit inserted and deleted given rows, as columns of ordinals.

        The epoch is durable after `sync`. If this raises anything, the shard must be dropped.
        """
        self._epoch = epoch
        try:
            layers = self.engine.apply_ordinals(encoded)
        except BaseException:
            with suppress(StateError):  # the error that led here matters more
                self.sync()
            raise
        done = self._done
        assert done is not None
        self._done = None
        done.bootstrapped = any(layer.choice == "bootstrap" for layer in layers)
        ref = done.ref
        enough = max(_LEAST_LOG, ref.snapshot.data_bytes // _LOG_SHARE)
        if ref.log_bytes > enough or len(ref.records) - ref.held > _MOST_RECORDS:
            ref = self._snapshot(self._epoch, ref.records[-_KEPT:], self._saved_entries)
        self._ref = done.ref = ref
        return done

    def sync(self) -> None:
        """Return when what `apply` has written is on the disk.

        If this raises anything, the shard must be dropped.
        """
        if self._unsynced is None:
            return
        (file, syncing, name), self._unsynced = self._unsynced, None
        try:
            self._files.end_sync(syncing, name)
        finally:
            self._files.close(file)
        self._files.sync_folder()

    def migrate(self, epoch: int, program: Program) -> ShardDone:
        """Commit a change of the program, and write a snapshot of the new state.

        No records lead to it from the old one. If this raises anything, the shard must be dropped.
        """
        self._epoch = epoch
        self.engine.apply({}, {}, program=program)
        done = self._done
        assert done is not None
        self._done = None
        done.bootstrapped = any(la.choice == "bootstrap" for la in self.engine.last_epoch.layers)
        self._ref = done.ref = self._snapshot(epoch, (), ())
        self.sync()
        return done

    def _record(self) -> None:
        """Write the record of the epoch that is about to be committed."""
        entries = self._watermarks.new_entries()
        changes = self.engine.state.given_changes()
        record = EpochRecord(self._epoch, time.time(), changes, entries)
        data = frame(self._epoch, record.encode(), 0)
        name = f"epoch-{self._epoch:012}-{secrets.token_hex(8)}.tide"
        self._write(name, data)
        self._watermarks.note_written(entries)
        before = self.ref
        ref = replace(
            before, records=(*before.records, name), log_bytes=before.log_bytes + len(data)
        )
        self._done = ShardDone(ref, *self._changed())

    def _changed(self) -> tuple[dict[str, Delta], dict[str, tuple[int, int]]]:
        catalog = self.engine.catalog
        changes, given = {}, {}
        for name in self.engine.program.relations:
            relation = catalog.relations[name]
            delta = relation.delta
            if delta and name in self.watched:
                ordinals = relation.ordinals
                changes[name] = Delta(ordinals(delta.inserted), ordinals(delta.deleted))
            own = catalog.given[name].delta
            if own:
                given[name] = own.inserted.shape[1], own.deleted.shape[1]
        return changes, given

    def _write(self, name: str, data: bytes) -> None:
        """Write a file; `sync` waits until it is on the disk."""
        self.sync()
        file = self._files.create(name)
        try:
            self._files.write(file, data, 0, name)
            self._unsynced = file, self._files.begin_sync(file, name), name
        except BaseException:
            self._files.close(file)
            raise

    def _snapshot(
        self, epoch: int, records: tuple[str, ...], dictionaries: Sequence[Any]
    ) -> ShardRef:
        named = set(self._ref.files) if self._ref is not None else set()
        self.engine.state.keep_files(named)  # files of an older snapshot may be gone
        if any(part.lengths.file not in named for part in dictionaries):
            dictionaries = ()
        image = self.engine.state.capture(epoch)
        number = secrets.randbits(60)  # a unique name
        writer = SnapshotWriter(self._files, self._identity, number, image, dictionaries)
        try:
            found = writer.advance(_EVERYTHING)
            self._files.sync_folder()
        except BaseException:
            with suppress(StateError):  # the error that led here matters more
                writer.abandon()
            raise
        finally:
            self.engine.state.release()
        assert found is not None
        assert writer.saved is not None
        saved: SavedSnapshot = writer.saved
        writer.on_committed()
        self._saved_entries = saved.dictionaries
        return ShardRef(found, records, len(records), 0, tuple(sorted(saved.files())))
