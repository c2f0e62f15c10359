"""The state of one shard: an engine, and files that bring it back in any process.

Files are written once, under names that nobody else uses, and count when somebody names them: a
snapshot, and for each epoch since a record of the given rows that changed. So several processes can
do the same epoch, and the one whose files are named has done it. What names them is a `ShardRef`;
there is no manifest here, no log that grows, and no lock.

A shard that is kept in memory knows its *version*, the name of the last record in it. If that is
one of those that a `ShardRef` names, it catches up by the records behind it; if not, it is of no
use, and the files are opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.epochs import EpochRecord, Role
from tidelog.durable.extents import Arrays, Extent
from tidelog.durable.files import Files
from tidelog.durable.framing import damaged, frame, record_at
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.saved import Saved, load_index
from tidelog.durable.snapshot import SnapshotWriter
from tidelog.durable.tables import Watermarks
from tidelog.engine import saving
from tidelog.engine.kernel import KernelEngine
from tidelog.errors import StateError, UsageError
from tidelog.logic.program import Program
from tidelog.store.versions import Delta
from tidelog.values.types import Row

Array = NDArray[np.int64]
Encoded = Mapping[str, tuple[Array, Array]]

_EVERYTHING = 1 << 62  # bytes
_LEAST_LOG = 4 << 20  # bytes of records before a snapshot is thought of
_LOG_SHARE = 4  # a snapshot is written when the records are so large a part of it
_MOST_RECORDS = 200
_KEPT = 8  # records behind a snapshot, for shards in memory that are a little late


@dataclass(frozen=True)
class ShardRef:
    """The files that are a shard."""

    snapshot: SnapshotRef
    records: tuple[str, ...]
    """The last records, from before the snapshot on."""
    held: int
    """How many of them the snapshot has in it."""
    log_bytes: int = 0
    """The size of the others."""
    files: tuple[str, ...] = ()
    """All files of the snapshot."""

    @property
    def version(self) -> str:
        """What tells this state from all others."""
        return self.records[-1] if self.records else self.snapshot.name

    def names(self) -> set[str]:
        """Return all files that must stay."""
        return {self.snapshot.name, *self.files, *self.records}

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**vars(self), "snapshot": vars(self.snapshot)}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> ShardRef:
        """Return what `as_data` returned."""
        snapshot = SnapshotRef(**data["snapshot"])
        records, files = tuple(data["records"]), tuple(data["files"])
        return ShardRef(snapshot, records, data["held"], data["log_bytes"], files)


@dataclass
class ShardDone:
    """What an epoch did in a shard."""

    ref: ShardRef
    changes: dict[str, Delta] = field(default_factory=dict)
    """What changed in the relations that are watched, as columns of ordinals."""
    given: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many given rows of each relation came and went."""
    bootstrapped: bool = False
    """Whether some stratum was evaluated anew."""


class Shard:
    """A shard in memory, at one version."""

    def __init__(self, files: Files, identity: str, engine: KernelEngine) -> None:
        self._files, self._identity = files, identity
        self.engine = engine
        self._watermarks = Watermarks(engine._catalog.codec)
        self._tables: Sequence[Any] = ()
        self._ref: ShardRef | None = None
        self._done: ShardDone | None = None
        self._epoch = 0
        self.watched: frozenset[str] = frozenset()
        """The relations whose changes are asked for."""

    @property
    def ref(self) -> ShardRef:
        """The files that have this state."""
        assert self._ref is not None
        return self._ref

    # --- from files ---

    @classmethod
    def create(
        cls,
        files: Files,
        identity: str,
        program: Program,
        load: Callable[[KernelEngine], None],
        epoch: int,
    ) -> tuple[Shard, ShardDone]:
        """Evaluate a program on the rows that `load` gives the engine, and write that down."""
        files.make_folder()
        shard = cls(files, identity, KernelEngine(program, {}, restore=load))
        shard._ref = shard._snapshot(epoch, (), ())
        shard._watermarks.all_written()
        shard.engine.journal = shard._journal
        given = {name: (shard.engine.given_count(name), 0) for name in program.relations}
        return shard, ShardDone(shard._ref, {}, given, bootstrapped=True)

    @classmethod
    def open(cls, files: Files, identity: str, program: Program, ref: ShardRef) -> Shard:
        """Read a shard from its files."""
        saved = load_index(files, ref.snapshot)
        arrays = Arrays(files, identity)

        def restored(engine: KernelEngine) -> None:
            try:
                saving.restore(engine, saved, arrays)
            except saving.OtherShapeError:
                raise UsageError(
                    f"`{files.folder}` was written by another version of Tidelog, which stores"
                    " relations in another way"
                    "\n  help: `tidelog pipeline rescale` evaluates it anew"
                ) from None

        shard = cls(files, identity, KernelEngine(program, {}, restore=restored))
        shard._tables = saved.tables
        records = shard._read(ref.records[ref.held :])
        engine = shard.engine
        saving.restore_entries_of(engine._catalog.codec, records)
        shard._watermarks.all_written()  # what comes from here on is in no file
        saving.resume(engine, saved)
        if records:
            saving.replay(engine, records)
        shard._ref = ref
        engine.journal = shard._journal
        return shard

    def catch_up(self, ref: ShardRef) -> bool:
        """Become the state that `ref` names, if it is a later one; return whether it is."""
        mine = self.ref.version
        if mine == ref.version:
            self._ref = ref
            return True
        if mine not in ref.records:
            return False
        engine = self.engine
        engine.journal = None
        for record in self._read(ref.records[ref.records.index(mine) + 1 :]):
            for entries in record.entries:
                table = dict(engine._catalog.codec.tables()).get(entries.type)
                if table is not None and len(table) != entries.first:
                    return False  # numbers were given here that no file knows
            saving.restore_entries_of(engine._catalog.codec, [record])
            self._watermarks.written(record.entries)
            saving.replay(engine, [record])
        self._ref = ref
        engine.journal = self._journal
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
        """Commit given rows that come and go, as columns of ordinals. They are on the disk then.

        Whatever this raises, the shard is of no use any more.
        """
        self._begin(epoch)
        return self._end(self.engine.change(encoded))

    def apply_rows(
        self, epoch: int, inserted: Mapping[str, set[Row]], deleted: Mapping[str, set[Row]]
    ) -> ShardDone:
        """Commit given rows that come and go. They are on the disk then."""
        self._begin(epoch)
        self.engine.apply(inserted, deleted)
        return self._end(self.engine.last_epoch.layers)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch

    def _end(self, layers: Sequence[Any]) -> ShardDone:
        done = self._done
        assert done is not None
        self._done = None
        done.bootstrapped = any(layer.choice == "bootstrap" for layer in layers)
        ref = done.ref
        enough = max(_LEAST_LOG, ref.snapshot.data_bytes // _LOG_SHARE)
        if ref.log_bytes > enough or len(ref.records) - ref.held > _MOST_RECORDS:
            ref = self._snapshot(self._epoch, ref.records[-_KEPT:], self._tables)
        self._ref = done.ref = ref
        return done

    def _journal(self, stated: Mapping[str, set[Row]]) -> None:
        """Write the record of the epoch that is about to be kept."""
        entries = self._watermarks.new_entries()
        whole = saving.record_of(self.engine, self._epoch, stated, entries)
        needed = [rows for rows in whole.changes if rows.role is not Role.VIEW]
        record = whole._replace(changes=needed)
        data = frame(self._epoch, record.encode(), 0)
        name = f"epoch-{self._epoch:012}-{secrets.token_hex(8)}.tide"
        self._write(name, data)
        self._watermarks.written(entries)
        before = self.ref
        ref = replace(
            before, records=(*before.records, name), log_bytes=before.log_bytes + len(data)
        )
        self._done = ShardDone(ref, *self._changed())

    def _changed(self) -> tuple[dict[str, Delta], dict[str, tuple[int, int]]]:
        catalog = self.engine._catalog
        changes, given = {}, {}
        for name in self.engine._program.relations:
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
        file = self._files.create(name)
        try:
            self._files.write(file, data, 0, name)
            self._files.sync(file, name)
        finally:
            self._files.close(file)
        self._files.sync_folder()

    def _snapshot(self, epoch: int, records: tuple[str, ...], tables: Sequence[Any]) -> ShardRef:
        named = set(self._ref.files) if self._ref is not None else set()
        for relation in self.engine._catalog.everything():
            for index in relation.indexes.values():
                for run in index.runs:  # files of an older snapshot may be gone
                    if isinstance(run.saved, Extent) and run.saved.file not in named:
                        run.saved = None
        if any(part.lengths.file not in named for part in tables):
            tables = ()
        image = saving.image_of(self.engine, epoch)
        number = secrets.randbits(60)  # nobody else writes under these names
        writer = SnapshotWriter(self._files, self._identity, number, image, tables)
        try:
            found = writer.advance(_EVERYTHING)
            self._files.sync_folder()
        except BaseException:
            with suppress(StateError):  # the error that led here matters more
                writer.abandon()
            raise
        finally:
            saving.release(self.engine)
        assert found is not None
        assert writer.saved is not None
        saved: Saved = writer.saved
        writer.counts_from_now_on()
        self._tables = saved.tables
        return ShardRef(found, records, len(records), 0, tuple(sorted(saved.files())))
