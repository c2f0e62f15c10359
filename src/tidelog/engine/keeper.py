"""Keeps a database in files: a log of epochs, and snapshots in the background of them.

An epoch is journaled before it is kept in memory: if its record cannot be written, nothing has
happened. Now and then a snapshot is begun, so that the log that has to be replayed stays short. It
is written in bounded steps, one at each commit; when all of it is on the disk the manifest is
replaced, and what nobody needs any more is removed. A snapshot that fails costs nothing but the
attempt: the log has everything.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from tidelog import __version__
from tidelog.durable import manifest as manifests
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.durable.log import Log
from tidelog.durable.log_reading import HEADER, read_records
from tidelog.durable.manifest import Manifest, SnapshotRef, UnsureError
from tidelog.durable.saved import Saved, load_index
from tidelog.durable.snapshot import Image, SnapshotWriter
from tidelog.engine import saving
from tidelog.engine.journal import Journal
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.retention import largest_number, replayed_bytes, retained, unused
from tidelog.engine.settings import Settings
from tidelog.engine.state_report import Opened, StateReport
from tidelog.errors import StateError
from tidelog.logic.program import Program

_EVERYTHING = 1 << 62  # bytes
_MOST_HELD = 2  # files that hold so much more than is used of them are not used again
_PAUSE = 8  # a snapshot that failed is tried again when the log is so much longer


class Keeper:
    """The files of one database that is open for writing."""

    def __init__(
        self, files: Files, lock: WriterLock, settings: Settings, engine: KernelEngine
    ) -> None:
        self._files, self._lock, self._settings = files, lock, settings
        self._engine = engine
        self._manifest: Manifest
        self._saved: Saved
        self._journal = Journal(engine, in_parts=settings.durability == "commit")
        self._writer: SnapshotWriter | None = None
        self._image: Image | None = None
        self._not_before = 0
        self._problem = ""
        self._number = largest_number(files.names())
        self._tending = threading.RLock()  # snapshots are the business of one thread at a time
        self._closed = threading.Event()
        self._syncer: threading.Thread | None = None
        self.opened: Opened

    @property
    def _log(self) -> Log:
        """The file of the log that is being written."""
        return self._journal.log

    # --- the beginning ---

    @classmethod
    def create(
        cls,
        files: Files,
        lock: WriterLock,
        settings: Settings,
        engine: KernelEngine,
        program: Program,
        epoch: int = 0,
        before: Manifest | None = None,
    ) -> Keeper:
        """Put the state of a new engine into a folder, in the place of the one `before`."""
        keeper = cls(files, lock, settings, engine)
        keeper._start_anew(program, epoch, before)
        return keeper

    def _start_anew(self, program: Program, epoch: int, before: Manifest | None) -> None:
        identity = secrets.token_hex(16)
        image = saving.image_of(self._engine, epoch)
        self._journal.watermarks.all_written()
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
            if not isinstance(error, UnsureError):
                with suppress(StateError):  # the error that led here matters more
                    writer.abandon()
            if log is not None:
                log.close()
            raise
        finally:
            saving.release(self._engine)
        writer.counts_from_now_on()
        self._manifest, self._saved, self._journal.log = manifest, writer.saved, log
        self.opened = Opened(epoch, epoch, 0, 0, 0, "", 0.0)
        self._begin()

    @classmethod
    def open(
        cls,
        files: Files,
        lock: WriterLock,
        settings: Settings,
        make: Callable[[Callable[[KernelEngine], None]], KernelEngine],
        manifest: Manifest,
    ) -> Keeper:
        """Go on where a state was left; `make` makes an engine, which is restored from files.

        Raises OtherShapeError if the relations are kept in another way by now.
        """
        start = time.perf_counter()
        saved = load_index(files, manifest.snapshot)
        arrays = Arrays(files, manifest.identity, verify=settings.verify)
        engine = make(lambda new: saving.restore(new, saved, arrays))
        keeper = cls(files, lock, settings, engine)
        keeper._manifest, keeper._saved = manifest, saved
        epochs = keeper._replay()
        epoch = saved.epoch + epochs
        engine.last_epoch = engine.last_epoch._replace(epoch=epoch)
        keeper._journal.since_snapshot = replayed_bytes(manifest, keeper._log.end)
        seconds = time.perf_counter() - start
        cut, mapped = keeper._log.cut, manifest.snapshot.data_bytes
        keeper.opened = Opened(epoch, saved.epoch, mapped, epochs, cut, "", seconds)
        keeper._begin()
        return keeper

    def _replay(self) -> int:
        """Do the epochs after the snapshot again, and go on behind them; return how many."""
        files, manifest, journal = self._files, self._manifest, self._journal
        found = saving.read_log(files, manifest)
        begun = [] if found.begun is None else [found.begun]
        codec = self._engine._catalog.codec
        saving.restore_entries_of(codec, [*found.records, *begun])
        journal.watermarks.all_written()  # and no more: what comes from here on is in no file
        journal.is_from_files = True
        saving.resume(self._engine, self._saved)
        if found.records:
            saving.replay(self._engine, found.records)
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
        """Do what can wait until an epoch is kept. Nothing here can fail the epoch."""
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
        except StateError as error:  # readers are behind, and nothing is lost
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
        """Begin a snapshot if the log is long, or write a part of the one that was begun."""
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
        self._image = saving.image_of(
            self._engine, self._log.epoch, use_files=held < _MOST_HELD * used
        )
        self._writer = SnapshotWriter(
            self._files, self._manifest.identity, self._next_number(), self._image,
            self._saved.tables,
        )  # fmt: skip

    def _advance(self, budget: int) -> None:
        writer = self._writer
        assert writer is not None
        ref = writer.advance(budget)
        if ref is not None:
            self._finish(writer, ref)

    def _finish(self, writer: SnapshotWriter, ref: SnapshotRef) -> None:
        segments = retained(self._manifest, self._settings, ref.epoch, self._log.epoch)
        manifest = replace(self._manifest, snapshot=ref, segments=segments, written_by=__version__)
        manifests.write(self._files, manifest, self._manifest)
        assert writer.saved is not None
        assert self._image is not None
        writer.counts_from_now_on()
        saving.release(self._engine)
        self._writer = self._image = None
        self._manifest, self._saved = manifest, writer.saved
        self._journal.since_snapshot = replayed_bytes(manifest, self._log.end)
        self._not_before, self._problem = 0, ""
        self._remove_unused()

    def _give_up(self, error: StateError) -> None:
        """Forget a snapshot that could not be written; the log has everything."""
        self._problem = str(error)
        unsure = isinstance(error, UnsureError)
        if unsure:
            self._log.broken = f"it is not known which manifest is on the disk ({error})"
        least = max(self._journal.since_snapshot, self._settings.snapshot_bytes)
        self._not_before = _PAUSE * least
        writer, self._writer = self._writer, None
        saving.release(self._engine)
        self._image = None
        if writer is not None and not unsure:
            with suppress(StateError):  # what is left is removed when it is opened next
                writer.abandon()

    def snapshot(self) -> None:
        """Write a snapshot now, all of it."""
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
        """Go on in a new file of the log, so that old ones can be removed."""
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
        """Remove files that the manifest does not need; those that cannot be are left alone."""
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
        """Take nothing more: an epoch is in the log, and could not be kept in memory."""
        self._log.broken = f"the last epoch is on the disk, but not in memory ({error})"

    @property
    def oldest_epoch(self) -> int:
        """The first epoch whose changes after it are all known."""
        return self._manifest.segments[0].first - 1

    def records(self, since: int) -> Iterator[EpochRecord]:
        """Yield the records of all committed epochs after `since`."""
        last = self._journal.last_record
        if last is not None and last.epoch == self._log.epoch == since + 1:
            yield last  # without a look at the log
            return
        segments = self._manifest.segments
        for record in read_records(self._files, self._manifest.identity, segments, since, None):
            if record.epoch > self._log.epoch:
                return
            yield EpochRecord.decode(*record.payloads)

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
        """Merge everything, write a snapshot, and forget the log up to the retention."""
        if self._writer is not None:  # it has a hold of runs that are about to go
            self._advance(_EVERYTHING)
        self._settings = replace(self._settings, retain_epochs=retain_epochs, retain_seconds=0.0)
        saving.compact(self._engine)
        self.snapshot()

    def close(self) -> None:
        """Have everything on the disk, and let others write."""
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
