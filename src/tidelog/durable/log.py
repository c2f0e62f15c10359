"""The write-ahead log: the records of epochs, in one file after the other (segments).

An epoch is committed when its record is on disk. A record that cannot be written completely is
removed, so that a failed commit leaves no trace. If removing it fails, the log refuses all further
writes.

An epoch can be written in two parts, so that the disk works while views are computed. `begin`
writes the given rows and begins a sync. `finish` writes the changes of the views and waits for that
sync. The view part has no sync of its own; the sync of the next epoch covers it. A lost view part
is computed again. No record says that a view part is on disk before that is known.

The last record is followed by zeros, which later records overwrite. So most records do not change
the length of the file, and a sync does not wait for the metadata of the file system. That takes two
thirds of the time. The zeros are cut off when the log is closed.

`COMMITTED` is a small file that tells readers in other processes up to where the log is committed.
It is overwritten in place and never synced, so after a crash it may be behind. It is mapped into
memory, so that updating it needs no system call. A reader that sees a partial update notices it by
the checksum, and reads again.
"""

from __future__ import annotations

import mmap
import struct
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass

from tidelog.durable.files import Files
from tidelog.durable.framing import GIVEN, VIEW, Record, frame
from tidelog.durable.log_reading import COMMITTED, CRC, HEADER, MAGIC, header
from tidelog.durable.manifest import Segment
from tidelog.durable.syncing import Syncing
from tidelog.errors import StateError

_OWNER, _PLACES = struct.Struct("<8s32sQ"), struct.Struct("<QQ")  # COMMITTED, in two parts
_ROOM = 1 << 16  # bytes of zeros: enough for a few hundred small epochs
_LONG = 1 << 16  # a view part with more bytes is synced at once


@dataclass
class _Begun:
    """An epoch of which only the given part is written."""

    epoch: int
    end: int
    """The end of the given part."""
    sync: Syncing | None
    """The running sync; None if it has ended."""
    is_recovered: bool = False
    """Whether it was in the log before. It may be committed, so a failed `finish` keeps it."""


class Log:
    """The segment that is being written."""

    def __init__(self, files: Files, identity: str, segment: Segment, file: int, end: int) -> None:
        self._files = files
        self.segment = segment
        self._file = file
        self.end = end
        self.cut = 0
        """How many bytes of an incomplete epoch were cut off."""
        self.epoch = segment.first - 1
        """The last epoch in the log."""
        self._room = end  # the length of the file, including zeros
        self._durable = end
        self._durable_epoch = self.epoch
        self._begun: _Begun | None = None
        self._tail = b""  # the last view part, from `_durable` on, until it is synced
        self._time = 0.0
        self.broken = ""
        """Why the log refuses writes; empty if it does not."""
        self._syncing = threading.Lock()  # one sync at a time; epochs can be appended meanwhile
        self._state = threading.Lock()
        self._published: mmap.mmap | None = None
        self._owner = _OWNER.pack(MAGIC, identity.encode(), segment.first)

    @classmethod
    def create(cls, files: Files, name: str, first: int, identity: str) -> Log:
        """Create a segment. It becomes part of the state when a manifest names it."""
        file = files.create(name)
        try:
            files.write(file, header(first, identity), 0, name)
            files.sync(file, name)
        except BaseException:
            files.close(file)
            raise
        return cls(files, identity, Segment(name, first), file, HEADER)

    @classmethod
    def resume(cls, files: Files, identity: str, segment: Segment, last: Record | None) -> Log:
        """Open a segment to append after its last record; the rest of the file is cut off.

        If that record lacks its view part, `finish` or `undo` must be called first.
        """
        file = files.open(segment.name)
        end = HEADER if last is None else last.end
        cut = 0
        try:
            if files.size(segment.name) > end:
                cut = len(files.read_from(segment.name, end).rstrip(b"\0"))
                files.truncate(file, end, segment.name)
            files.sync(file, segment.name)  # it is unknown whether the last writer did
        except BaseException:
            files.close(file)
            raise
        if last is not None and not last.is_complete:
            log = cls(files, identity, segment, file, last.start)
            log._begun = _Begun(last.epoch, end, None, is_recovered=True)
            log.epoch = log._durable_epoch = last.epoch - 1
        else:
            log = cls(files, identity, segment, file, end)
            if last is not None:
                log.epoch = log._durable_epoch = last.epoch
        log.cut = cut
        return log

    def append(self, epoch: int, payload: bytes, time: float, *, sync: bool) -> None:
        """Add the record of an epoch; with `sync` it is on disk when this returns.

        If this fails, the log is unchanged.
        """
        self._check_usable()
        assert epoch == self.epoch + 1, f"epoch {epoch} after {self.epoch}"
        try:
            end = self._write(frame(epoch, payload, self._durable), self.end)
            if sync:
                self._files.sync(self._file, self.segment.name)
        except BaseException:
            self._take_back()
            raise
        with self._state:
            self.end = end
            self.epoch, self._time = epoch, time
            if sync:
                self._durable, self._durable_epoch, self._tail = self.end, epoch, b""

    def begin(self, epoch: int, payload: bytes) -> None:
        """Write the given part of an epoch, and begin to sync it.

        If this fails, the log is unchanged. Otherwise `finish` or `undo` must follow.
        """
        self._check_usable()
        assert epoch == self.epoch + 1, f"epoch {epoch} after {self.epoch}"
        try:
            end = self._write(frame(epoch, payload, self._durable, GIVEN), self.end)
            sync = self._files.begin_sync(self._file, self.segment.name)
        except BaseException:
            self._take_back()
            raise
        self._begun = _Begun(epoch, end, sync)

    def finish(self, payload: bytes, time: float) -> None:
        """Add the view part of the epoch; its given part is on disk when this returns.

        If this fails, the log is as before the epoch, or as it was when it was opened.
        """
        begun = self._begun
        assert begun is not None
        data = frame(begun.epoch, payload, self._durable, VIEW)
        try:
            end = self._write(data, begun.end)
            sync, begun.sync = begun.sync, None
            if sync is not None:
                self._files.end_sync(sync, self.segment.name)
            is_long = len(data) > _LONG
            if is_long:
                self._files.sync(self._file, self.segment.name)
        except BaseException:
            if not begun.is_recovered:
                self.undo()
            raise
        self._begun = None
        with self._state:
            self.end = end
            self.epoch, self._time = begun.epoch, time
            self._durable, self._durable_epoch = begun.end, begun.epoch
            self._tail = data
            if is_long:
                self._durable, self._tail = end, b""

    def undo(self) -> None:
        """Remove the given part of the epoch that has begun, if there is one."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if begun.is_recovered:
            self.cut += begun.end - self.end
        try:
            if begun.sync is not None:
                with suppress(StateError):  # what it synced is cut off next
                    self._files.end_sync(begun.sync, self.segment.name)
        finally:
            self._take_back()

    def _write(self, data: bytes, at: int) -> int:
        """Write a record, followed by zeros if the file has to grow; return its end."""
        end = at + len(data)
        if end > self._room:
            self._files.write(self._file, data + bytes(_ROOM), at, self.segment.name)
            self._room = end + _ROOM
        else:
            self._files.write(self._file, data, at, self.segment.name)
        return end

    def _check_usable(self) -> None:
        if self.broken:
            raise StateError(
                f"the database accepts no more writes: {self.broken}"
                "\n  help: close the database and open it again"
            )

    def _take_back(self) -> None:
        """Cut off a record that is incomplete, or that may not be on disk.

        A failed sync may have dropped all data it had to write, including the view part of the
        previous epoch. So that part is written again.
        """
        name = self.segment.name
        try:
            self._files.truncate(self._file, self.end, name)
            self._room = self.end
            if self._tail:
                self._files.write(self._file, self._tail, self._durable, name)
            self._files.sync(self._file, name)
        except BaseException as error:
            self.broken = f"a failed write to the log could not be undone ({error})"
            return
        if self._tail:
            with self._state:
                self._durable, self._tail = self.end, b""

    def sync_to(self, epoch: int) -> None:
        """Return when an epoch is on disk. Threads that wait at the same time share one sync."""
        with self._syncing:
            if self._durable_epoch >= epoch:
                return
            self._check_usable()
            with self._state:
                end, last = self.end, self.epoch
            try:
                self._files.sync(self._file, self.segment.name)
            except BaseException as error:
                # Epochs since the last sync may be lost, and views already show them.
                self.broken = f"committed epochs may not be on disk ({error})"
                raise
            with self._state:
                self._durable, self._durable_epoch, self._tail = end, last, b""

    def sync(self) -> None:
        """Return when everything is on disk, including the last view part."""
        self.sync_to(self.epoch)
        if not self._tail:
            return
        self._check_usable()
        try:
            self._files.sync(self._file, self.segment.name)
        except BaseException:
            self._take_back()  # cuts nothing off, but writes the view part again
            raise
        with self._state:
            self._durable, self._tail = self.end, b""

    @property
    def durable_epoch(self) -> int:
        """The last epoch that is known to be on disk."""
        return self._durable_epoch

    def publish(self) -> None:
        """Publish the committed positions to readers in other processes."""
        with self._state:
            head = self._owner + _PLACES.pack(self._durable, self.end)
            data = head + CRC.pack(zlib.crc32(head), 0)
            if self._published is not None:
                self._published[:] = data
                return
            has_file = self._files.exists(COMMITTED)
            file = self._files.open(COMMITTED) if has_file else self._files.create(COMMITTED)
            try:
                self._files.write(file, data, 0, COMMITTED)
                self._published = self._files.share(file, len(data), COMMITTED)
            finally:
                self._files.close(file)

    def closed_segment(self) -> Segment:
        """Return the segment with its end, for when it is complete."""
        return Segment(self.segment.name, self.segment.first, self.epoch, self.end, self._time)

    def close(self) -> None:
        """Cut off the zeros after the last record, and close the files.

        A recovered epoch that was neither finished nor undone stays in the file.
        """
        if self._room > self.end and not self.broken and self._begun is None:
            with suppress(StateError):  # the zeros do no harm
                self._files.truncate(self._file, self.end, self.segment.name)
        self._files.close(self._file)
        if self._published is not None:
            self._published.close()
            self._published = None
