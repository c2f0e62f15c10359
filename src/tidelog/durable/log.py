"""The log: the records of epochs, in files that follow each other.

An epoch is committed when its record is on the disk. What could not be written is taken back, so
that a failed commit leaves no trace; if not even that works, the log takes nothing any more.

An epoch can be written in two parts, so that the disk works while views are computed: `begin`
writes what was given, and begins a sync; `finish` writes what became of the views, and waits for
that sync. The view part is not synced by itself, the sync of the next epoch covers it. If it is
lost, it is computed again. No later record claims that it is on the disk before that is known.

Behind the last record there are zeros, which a later record overwrites: so the file does not become
longer with each of them, and a sync has to wait for their bytes only, not for what the file system
notes of its length. That takes two thirds of the time. They are cut off when the log is closed.

`COMMITTED` is a small file beside the log which says up to where it is committed, for readers in
other processes. It is overwritten in place and never synced: after a crash it may be behind. Once
it is there it is written as memory that this process shares with the file, which takes no call of
the system. Who reads it meanwhile may get half of it, sees that by its checksum, and reads again.
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
_ROOM = 1 << 16  # bytes of zeros: for some hundred small epochs
_LONG = 1 << 16  # bytes of a view part that does not wait for the next epoch to be synced


@dataclass
class _Begun:
    """An epoch whose given part is written."""

    epoch: int
    end: int
    """Where the given part ends."""
    sync: Syncing | None
    """The sync that was begun; None if it is known to have ended."""
    is_found: bool = False
    """Whether it was found in the log: then it may be committed, and stays if `finish` fails."""


class Log:
    """The segment that is being written."""

    def __init__(self, files: Files, identity: str, segment: Segment, file: int, end: int) -> None:
        self._files = files
        self.segment = segment
        self._file = file
        self.end = end
        self.cut = 0
        """How many bytes of an epoch that was not whole were cut off."""
        self.epoch = segment.first - 1
        """The last epoch in the log."""
        self._room = end  # so long is the file
        self._durable = end
        self._durable_epoch = self.epoch
        self._begun: _Begun | None = None
        self._tail = b""  # the last view part, from `_durable` on, while nobody has synced it
        self._time = 0.0
        self.broken = ""
        """Why nothing can be written any more; empty while all is well."""
        self._syncing = threading.Lock()  # one at a time; epochs are appended meanwhile
        self._state = threading.Lock()
        self._published: mmap.mmap | None = None
        self._owner = _OWNER.pack(MAGIC, identity.encode(), segment.first)

    @classmethod
    def create(cls, files: Files, name: str, first: int, identity: str) -> Log:
        """Begin a new segment. It counts when a manifest names it."""
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
        """Go on behind the last record of a segment; what is behind it is cut off.

        If that record lacks its view part, its epoch is to be finished or to be taken back.
        """
        file = files.open(segment.name)
        end = HEADER if last is None else last.end
        cut = 0
        try:
            if files.size(segment.name) > end:
                cut = len(files.read_from(segment.name, end).rstrip(b"\0"))
                files.truncate(file, end, segment.name)
            files.sync(file, segment.name)  # nobody knows whether it was
        except BaseException:
            files.close(file)
            raise
        if last is not None and not last.is_complete:
            log = cls(files, identity, segment, file, last.start)
            log._begun = _Begun(last.epoch, end, None, is_found=True)
            log.epoch = log._durable_epoch = last.epoch - 1
        else:
            log = cls(files, identity, segment, file, end)
            if last is not None:
                log.epoch = log._durable_epoch = last.epoch
        log.cut = cut
        return log

    def append(self, epoch: int, payload: bytes, time: float, *, sync: bool) -> None:
        """Add the record of an epoch; with `sync` it is on the disk when this returns.

        If that fails the log is as it was.
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
        """Write the given part of an epoch, and begin to bring it to the disk.

        If that fails the log is as it was. Else `finish` or `undo` has to follow.
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
        """Add the view part of the epoch that was begun, whose given part is on the disk then.

        If that fails the log is as it was before the epoch, or as it was found.
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
            if not begun.is_found:
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
        """Take back the epoch that was begun, if there is one."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if begun.is_found:
            self.cut += begun.end - self.end
        try:
            if begun.sync is not None:
                with suppress(StateError):  # what it was about is cut off
                    self._files.end_sync(begun.sync, self.segment.name)
        finally:
            self._take_back()

    def _write(self, data: bytes, at: int) -> int:
        """Write a record, and zeros behind it if there is no room for it; return its end."""
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
                f"nothing can be written any more: {self.broken}"
                "\n  help: close the database and open it again"
            )

    def _take_back(self) -> None:
        """Cut off a record that is only there in part, or that may not be on the disk.

        A sync that fails may have dropped all that it was to bring to the disk, the view part
        before it as well: that is written again.
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
        """Return when an epoch is on the disk. Threads that wait for each other share one sync."""
        with self._syncing:
            if self._durable_epoch >= epoch:
                return
            self._check_usable()
            with self._state:
                end, last = self.end, self.epoch
            try:
                self._files.sync(self._file, self.segment.name)
            except BaseException as error:
                # What was committed since the last sync may be lost, and views show it already.
                self.broken = f"committed epochs may not be on the disk ({error})"
                raise
            with self._state:
                self._durable, self._durable_epoch, self._tail = end, last, b""

    def sync(self) -> None:
        """Return when everything is on the disk, the last view part as well."""
        self.sync_to(self.epoch)
        if not self._tail:
            return
        self._check_usable()
        try:
            self._files.sync(self._file, self.segment.name)
        except BaseException:
            self._take_back()  # there is nothing behind the view part; it is written once more
            raise
        with self._state:
            self._durable, self._tail = self.end, b""

    @property
    def durable_epoch(self) -> int:
        """The last epoch that is known to be on the disk."""
        return self._durable_epoch

    def publish(self) -> None:
        """Tell readers in other processes what is committed."""
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
        """Return the segment as it is when nothing more is written to it."""
        return Segment(self.segment.name, self.segment.first, self.epoch, self.end, self._time)

    def close(self) -> None:
        """Close the files; the zeros behind the last record go.

        An epoch that was found, and neither finished nor taken back, stays as it is.
        """
        if self._room > self.end and not self.broken and self._begun is None:
            with suppress(StateError):  # they do no harm
                self._files.truncate(self._file, self.end, self.segment.name)
        self._files.close(self._file)
        if self._published is not None:
            self._published.close()
            self._published = None
