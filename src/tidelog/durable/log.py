"""The log: one record for each epoch, in files that follow each other.

An epoch is committed when its record is on the disk. What could not be written is taken back, so
that a failed commit leaves no trace; if not even that works, the log takes nothing any more.

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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelog.durable.files import Files
from tidelog.durable.framing import Record, damaged, frame, scan
from tidelog.durable.manifest import FORMAT, Segment
from tidelog.errors import StateError

COMMITTED = "COMMITTED"
_SEGMENT = struct.Struct("<8sIIQ32s")
_PUBLISHED = struct.Struct("<8s32sQQQ")
_OWNER, _PLACES = struct.Struct("<8s32sQ"), struct.Struct("<QQ")  # the same, in two parts
_CRC = struct.Struct("<II")
_MAGIC = b"TIDELOG\n"
HEADER = _SEGMENT.size + _CRC.size
_TRIES = 100
_ROOM = 1 << 16  # bytes of zeros: for some hundred small epochs


@dataclass(frozen=True)
class Published:
    """Up to where a log is committed."""

    first: int
    """The first epoch of the segment that this is about."""
    durable: int
    """So many bytes of the segment are known to be on the disk."""
    visible: int
    """So many bytes of it are committed: more, if commits do not wait for the disk."""


def read_published(files: Files, identity: str) -> Published | None:
    """Return up to where the log of a state is committed; None if that is not known."""
    if not files.exists(COMMITTED):
        return None
    for _ in range(_TRIES):
        data = files.read(COMMITTED)
        if len(data) != _PUBLISHED.size + _CRC.size:
            return None
        if _CRC.unpack_from(data, _PUBLISHED.size)[0] == zlib.crc32(data[: _PUBLISHED.size]):
            magic, owner, first, durable, visible = _PUBLISHED.unpack_from(data)
            if magic != _MAGIC or owner != identity.encode():
                return None
            return Published(first, durable, visible)
    return None


def read_records(
    files: Files,
    identity: str,
    segments: Sequence[Segment],
    since: int,
    published: Published | None,
    *,
    committed_only: bool = False,
    last: tuple[int, int] | None = None,
) -> Iterator[Record]:
    """Yield the records of all epochs after `since`, in order; raise StateError for damage.

    With `committed_only` the last segment is read up to where `published` says. `last` tells where
    the record of `since` ends: the first epoch of the segment, and the place in it.
    """
    if published is not None and published.first > segments[-1].first:
        raise StateError(
            f"`{files.folder}` is not in one piece: {COMMITTED} knows a newer log than the manifest"
        )
    for segment in segments:
        is_closed = segment.last >= 0
        if is_closed and segment.last <= since:
            continue
        name = files.shown(segment.name)
        durable = segment.bytes if is_closed else HEADER
        if published is not None and published.first == segment.first:
            durable = max(durable, published.durable)
        if last is not None and last[0] == segment.first:
            base, expected = last[1], since + 1
            data = memoryview(files.read_from(segment.name, base))
        else:
            base, expected = HEADER, segment.first
            whole = memoryview(files.read(segment.name))
            if bytes(whole[:HEADER]) != _header(segment.first, identity):
                raise damaged(name, 0)
            data = whole[HEADER:]
        for record in scan(data, base, durable, name):
            if record.epoch != expected:
                raise damaged(name, record.start)
            if committed_only and not is_closed and _is_ahead(record, segment, published):
                return
            if record.epoch > since:
                yield record
            expected += 1
        if is_closed and expected != segment.last + 1:
            raise damaged(name, base + len(data))


def _is_ahead(record: Record, segment: Segment, published: Published | None) -> bool:
    if published is None:
        return False
    return published.first != segment.first or record.end > published.visible


def _header(first: int, identity: str) -> bytes:
    head = _SEGMENT.pack(_MAGIC, FORMAT, 0, first, identity.encode())
    return head + _CRC.pack(zlib.crc32(head), 0)


class Log:
    """The segment that is being written."""

    def __init__(self, files: Files, identity: str, segment: Segment, file: int, end: int) -> None:
        self._files = files
        self.segment = segment
        self._file = file
        self.end = end
        self.cut = 0
        """How many bytes of a record that was not whole were cut off."""
        self.epoch = segment.first - 1
        """The last epoch in the log."""
        self._room = end  # so long is the file
        self._durable = end
        self._durable_epoch = self.epoch
        self._time = 0.0
        self.broken = ""
        """Why nothing can be written any more; empty while all is well."""
        self._syncing = threading.Lock()  # one at a time; epochs are appended meanwhile
        self._state = threading.Lock()
        self._published: mmap.mmap | None = None
        self._owner = _OWNER.pack(_MAGIC, identity.encode(), segment.first)

    @classmethod
    def create(cls, files: Files, name: str, first: int, identity: str) -> Log:
        """Begin a new segment. It counts when a manifest names it."""
        file = files.create(name)
        try:
            files.write(file, _header(first, identity), 0, name)
            files.sync(file, name)
        except BaseException:
            files.close(file)
            raise
        return cls(files, identity, Segment(name, first), file, HEADER)

    @classmethod
    def resume(cls, files: Files, identity: str, segment: Segment, last: Record | None) -> Log:
        """Go on behind the last record of a segment; what is behind it is cut off."""
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
        log = cls(files, identity, segment, file, end)
        log.cut = cut
        if last is not None:
            log.epoch = log._durable_epoch = last.epoch
        return log

    def append(self, epoch: int, payload: bytes, time: float, *, sync: bool) -> None:
        """Add the record of an epoch; with `sync` it is on the disk when this returns.

        If that fails the log is as it was.
        """
        self._check_usable()
        assert epoch == self.epoch + 1, f"epoch {epoch} after {self.epoch}"
        data = frame(epoch, payload, self._durable)
        name = self.segment.name
        end = self.end + len(data)
        longer = end > self._room
        try:
            if longer:
                data += bytes(_ROOM)
            self._files.write(self._file, data, self.end, name)
            if sync:
                self._files.sync(self._file, name)
        except BaseException:
            self._take_back()
            raise
        if longer:
            self._room = end + _ROOM
        with self._state:
            self.end = end
            self.epoch, self._time = epoch, time
            if sync:
                self._durable, self._durable_epoch = self.end, epoch

    def _check_usable(self) -> None:
        if self.broken:
            raise StateError(
                f"nothing can be written any more: {self.broken}"
                "\n  help: close the database and open it again"
            )

    def _take_back(self) -> None:
        """Cut off a record that is only there in part, or that may not be on the disk."""
        name = self.segment.name
        try:
            self._files.truncate(self._file, self.end, name)
            self._room = self.end
            self._files.sync(self._file, name)
        except BaseException as error:
            self.broken = f"a failed write to the log could not be undone ({error})"

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
                self._durable, self._durable_epoch = end, last

    @property
    def durable_epoch(self) -> int:
        """The last epoch that is known to be on the disk."""
        return self._durable_epoch

    def publish(self) -> None:
        """Tell readers in other processes what is committed."""
        with self._state:
            head = self._owner + _PLACES.pack(self._durable, self.end)
            data = head + _CRC.pack(zlib.crc32(head), 0)
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
        """Close the files; the zeros behind the last record go."""
        if self._room > self.end and not self.broken:
            with suppress(StateError):  # they do no harm
                self._files.truncate(self._file, self.end, self.segment.name)
        self._files.close(self._file)
        if self._published is not None:
            self._published.close()
            self._published = None
