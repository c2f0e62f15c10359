"""Writes the state of a database: a log of epochs, and snapshots in the background.

The journal writes each epoch to the log before the engine commits it: if that fails, the epoch is
aborted. When the log is long a snapshot starts, so that there is less to replay. It is written
in bounded steps, one at each commit. When all of it is on the disk, the manifest is replaced, and
files that are not needed any more are removed. If a snapshot fails, nothing is lost: the log has
everything.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from tidelog import __version__
from tidelog.durable import manifest as manifests
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.durable.log import Log
from tidelog.durable.log_reading import HEADER, read_published, read_records
from tidelog.durable.manifest import Manifest, SnapshotRef, UncertainManifestError
from tidelog.durable.saved import SavedSnapshot, load_index
from tidelog.durable.snapshot import Image, SnapshotWriter
from tidelog.engine.kernel import KernelEngine
from tidelog.errors import StateError
from tidelog.persist.journal import Journal
from tidelog.persist.replay import read_log, replay, restore_entries_of
from tidelog.persist.retention import largest_number, replayed_bytes, retained, unused
from tidelog.persist.settings import Settings
from tidelog.persist.state_report import Opened, StateReport

_EVERYTHING = 1 << 62  # bytes
_MOST_HELD = 2  # files this many times larger than their used part are rewritten
_PAUSE = 8  # after a failure the log must grow by this factor before the next attempt


class StateWriter:
    """Writes the epochs and snapshots of one open database."""

    def __init__(
        self, files: Files, lock: WriterLock, settings: Settings, engine: KernelEngine
    ) -> None:
        self._files, self._lock, self._settings = files, lock, settings
        self._engine = engine
        self._manifest: Manifest
        self._saved: SavedSnapshot
        self._journal = Journal(engine, in_parts=settings.durability == "commit")
        self._writer: SnapshotWriter | None = None
        self._image: Image | None = None
        self._image_program = engine.program
        self._not_before = 0
        self._problem = ""
        self._number = largest_number(files.names())
        self._tending = threading.RLock()  # one thread at a time writes snapshots
        self._closed = threading.Event()
        self._syncer: threading.Thread | None = None
        self.opened: Opened

    @property
    def _log(self) -> Log:
        """The segment of the log that is being written."""
        return self._journal.log

    # --- the beginning ---

    @classmethod
    def create(
        cls,
        files: Files,
        lock: WriterLock,
        settings: Settings,
        engine: KernelEngine,
        epoch: int = 0,
        before: Manifest | None = None,
    ) -> StateWriter:
        """Write the state of a new engine to a folder, in the place of the one `before`."""
        writer = cls(files, lock, settings, engine)
        writer._write_first(epoch, before)
        return writer

    def _write_first(self, epoch: int, before: Manifest | None) -> None:
        """Write the first snapshot and the manifest, all of it at once."""
        program = self._engine.program
        identity = secrets.token_hex(16)
        image = self._engine.state.capture(epoch)
        self._journal.watermarks.note_all_written()
        writer = SnapshotWriter(self._files, identity, self._next_number(), image)
        log = None
        try:
            ref = writer.advance(_EVERYTHING)
            assert ref is not None
            assert writer.saved is not None
            log = Log.create(self._files, self._log_name(), epoch + 1, identity)
            manifest = Manifest(
                identity, program.text, program.name, ref, (log.segment,), __version__
            )
            manifests.write(self._files, manifest, before)
        except BaseException as error:
            if not isinstance(error, UncertainManifestError):
                with suppress(StateError):  # the error that led here matters more
                    writer.abandon()
            if log is not None:
                log.close()
            raise
        finally:
            self._engine.state.release()
        writer.on_committed()
        self._manifest, self._saved, self._journal.log = manifest, writer.saved, log
        self.opened = Opened(epoch, epoch, 0, 0, 0, "", 0.0)
        self._begin()

    @classmethod
    def open(
        cls,
        files: Files,
        lock: WriterLock,
        settings: Settings,
        engine: KernelEngine,
        manifest: Manifest,
    ) -> StateWriter:
        """Restore an empty engine from files, and continue from there.

        Raises OtherShapeError, and leaves the engine empty, if this version stores the relations
        differently.
        """
        start = time.perf_counter()
        saved = load_index(files, manifest.snapshot)
        arrays = Arrays(files, manifest.identity, verify=settings.verify)
        engine.restore(saved, arrays)
        writer = cls(files, lock, settings, engine)
        writer._manifest, writer._saved = manifest, saved
        epochs = writer._replay()
        epoch = saved.epoch + epochs
        writer._journal.since_snapshot = replayed_bytes(manifest, writer._log.end)
        seconds = time.perf_counter() - start
        cut, mapped = writer._log.cut, manifest.snapshot.data_bytes
        writer.opened = Opened(epoch, saved.epoch, mapped, epochs, cut, "", seconds)
        writer._begin()
        return writer

    def _replay(self) -> int:
        """Replay the epochs after the snapshot, and open the log for more; return how many."""
        files, manifest, journal = self._files, self._manifest, self._journal
        found = read_log(files, manifest)
        begun = [] if found.begun is None else [found.begun]
        restore_entries_of(self._engine.state.codec, [*found.records, *begun])
        journal.watermarks.note_all_written()  # later entries are in no file
        journal.is_from_files = True
        self._engine.resume(self._saved)
        if found.records:
            replay(self._engine, found.records)
        if manifest.format < manifests.FORMAT:  # older versions cannot read what follows
            self._manifest = replace(manifest, format=manifests.FORMAT)
            manifests.write(files, self._manifest, manifest)
        journal.log = Log.resume(files, manifest.identity, manifest.segments[-1], found.last)
        epochs = len(found.records)
        try:
            for given in begun:
                epochs += journal.complete(given, committed=found.is_committed)
        except BaseException:
            self._log.close()
            raise
        return epochs

    def _begin(self) -> None:
        self._publish()
        self._remove_unused()
        self._journal.attach()

    # --- an epoch ---

    def committed(self) -> None:
        """Do the work that follows a commit. Errors here do not fail the epoch."""
        self._publish()
        if self._settings.durability == "periodic":
            self._start_syncing()
        with self._tending:
            try:
                self._tend()
            except StateError as error:
                self._give_up(error)

    def make_durable(self, epoch: int) -> None:
        """Return when an epoch is on the disk. Threads that wait share one sync."""
        if self._log.durable_epoch < epoch:
            self._log.sync_to(epoch)
            self._publish()

    def _publish(self) -> None:
        try:
            self._log.publish()
        except StateError as error:  # readers lag behind; nothing is lost
            self._problem = str(error)

    def _start_syncing(self) -> None:
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._sync_now_and_then, daemon=True)
            self._syncer.start()

    def _sync_now_and_then(self) -> None:
        while not self._closed.wait(self._settings.sync_seconds):
            try:
                self.make_durable(self._log.epoch)
            except StateError:
                return  # the log is broken: the next commit says so

    # --- snapshots ---

    def _tend(self) -> None:
        """Start a snapshot if the log is long, or write a part of the one under way."""
        if self._writer is None:
            least = max(self._settings.snapshot_bytes, self._manifest.snapshot.data_bytes // 8)
            if self._journal.since_snapshot < max(least, self._not_before):
                if self._log.end > self._settings.segment_bytes:
                    self._rotate()
                return
            self._start_snapshot()
        self._advance(self._settings.step_bytes)

    def _start_snapshot(self) -> None:
        self._rotate()
        held, used = self._saved.held_bytes(self._files), self._manifest.snapshot.data_bytes
        self._image = self._engine.state.capture(
            self._log.epoch, use_files=held < _MOST_HELD * used
        )
        self._image_program = self._engine.program
        self._writer = SnapshotWriter(
            self._files, self._manifest.identity, self._next_number(), self._image,
            self._saved.dictionaries,
        )  # fmt: skip

    def _advance(self, budget: int) -> None:
        writer = self._writer
        assert writer is not None
        ref = writer.advance(budget)
        if ref is not None:
            self._finish(writer, ref)

    def _finish(self, writer: SnapshotWriter, ref: SnapshotRef) -> None:
        segments = retained(self._manifest, self._settings, ref.epoch, self._log.epoch)
        program = self._image_program
        manifest = replace(
            self._manifest, snapshot=ref, segments=segments, written_by=__version__,
            program=program.text, program_name=program.name,
        )  # fmt: skip
        manifests.write(self._files, manifest, self._manifest)
        assert writer.saved is not None
        assert self._image is not None
        writer.on_committed()
        self._engine.state.release()
        self._writer = self._image = None
        self._manifest, self._saved = manifest, writer.saved
        self._journal.since_snapshot = replayed_bytes(manifest, self._log.end)
        self._not_before, self._problem = 0, ""
        self._remove_unused()

    def _give_up(self, error: StateError) -> None:
        """Abandon a snapshot that could not be written; the log has everything."""
        self._problem = str(error)
        unsure = isinstance(error, UncertainManifestError)
        if unsure:
            self._log.broken = f"it is not known which manifest is on the disk ({error})"
        least = max(self._journal.since_snapshot, self._settings.snapshot_bytes)
        self._not_before = _PAUSE * least
        writer, self._writer = self._writer, None
        self._engine.state.release()
        self._image = None
        if writer is not None and not unsure:
            with suppress(StateError):  # the next opening removes what is left
                writer.abandon()

    def snapshot(self) -> None:
        """Write a whole snapshot now."""
        with self._tending:
            try:
                if self._writer is None:
                    self._start_snapshot()
                elif self._image is not None and self._image.epoch < self._log.epoch:
                    self._advance(_EVERYTHING)
                    self._start_snapshot()
                self._advance(_EVERYTHING)
            except StateError as error:
                self._give_up(error)
                raise

    def _rotate(self) -> None:
        """Continue the log in a new segment, so that old ones can be removed."""
        if self._log.end == HEADER:
            return
        self._log.sync()
        log = Log.create(
            self._files, self._log_name(), self._log.epoch + 1, self._manifest.identity
        )
        segments = (*self._manifest.segments[:-1], self._log.closed_segment(), log.segment)
        try:
            manifest = self._manifest.with_segments(segments)
            manifests.write(self._files, manifest, self._manifest)
        except BaseException:
            log.close()
            raise
        old, self._journal.log, self._manifest = self._log, log, manifest
        old.close()
        self._publish()

    def _remove_unused(self) -> None:
        """Remove files that the manifest does not need, as far as that is possible."""
        try:
            for name in unused(self._files.names(), self._manifest, self._saved):
                self._files.remove(name)
        except StateError as error:
            self._problem = str(error)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _log_name(self) -> str:
        return f"log-{self._next_number():08}.tide"

    # --- the past ---

    @property
    def epoch(self) -> int:
        """The last epoch in the log."""
        return self._log.epoch

    def lost(self, error: BaseException) -> None:
        """Refuse further epochs: one is in the log, and could not be committed in memory."""
        self._log.broken = f"the last epoch is on the disk, but not in memory ({error})"

    @property
    def oldest_epoch(self) -> int:
        """The first epoch whose changes after it are all retained."""
        return self._manifest.segments[0].first - 1

    def records(self, since: int) -> Iterator[EpochRecord]:
        """Yield the records of all committed epochs after `since`."""
        last = self._journal.last_record
        if last is not None and last.epoch == self._log.epoch == since + 1:
            yield last  # without reading the log
            return
        segments = self._manifest.segments
        for record in read_records(self._files, self._manifest.identity, segments, since, None):
            if record.epoch > self._log.epoch:
                return
            yield EpochRecord.decode(*record.payloads)

    def published_records(self, since: int) -> Iterator[EpochRecord]:
        """Yield the records of the epochs after `since`; any thread may read them, at any time."""
        manifest = self._manifest
        published = read_published(self._files, manifest.identity)
        for record in read_records(
            self._files, manifest.identity, manifest.segments, since, published,
            committed_only=True,
        ):  # fmt: skip
            yield EpochRecord.decode(*record.payloads)

    @property
    def files(self) -> Files:
        """The files of the state."""
        return self._files

    @property
    def retained_epochs(self) -> int:
        """How many past epochs are retained at least."""
        return self._settings.retain_epochs

    def report(self) -> StateReport:
        """Return what the files hold."""
        segments = self._manifest.segments
        return StateReport(
            str(self._files.folder),
            self._log.epoch,
            self._log.durable_epoch,
            self._manifest.snapshot.epoch,
            self.oldest_epoch,
            self._manifest.snapshot.data_bytes,
            sum(self._log.end if s.last < 0 else s.bytes for s in segments),
            len(self._saved.files()) + len(segments) + 3,
            self._problem,
        )

    # --- the end ---

    def compact(self, retain_epochs: int) -> None:
        """Merge all runs, write a snapshot, and remove the log except `retain_epochs`."""
        if self._writer is not None:  # it reads runs that are about to be replaced
            self._advance(_EVERYTHING)
        self._settings = replace(self._settings, retain_epochs=retain_epochs, retain_seconds=0.0)
        self._engine.state.compact()
        self.snapshot()

    def close_log(self) -> None:
        """Close the files, and keep the lock: another writer takes over."""
        self._closed.set()
        self._journal.is_closed = True
        self._log.close()

    def close(self) -> None:
        """Sync the log, and release the folder."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._journal.is_closed = True
        if self._syncer is not None:
            self._syncer.join()
        try:
            if not self._log.broken:
                self._log.sync()
                self._publish()
        finally:
            if self._writer is not None:
                self._give_up(StateError("the database was closed before it was written"))
            self._log.close()
            self._lock.release()
