"""The frames of log records, with their checksums.

| bytes | content                                                            |
| ----- | ------------------------------------------------------------------ |
| 4     | `TIDE`                                                             |
| 4     | CRC-32 of the payload                                              |
| 8     | the length of the payload                                          |
| 8     | the number of the epoch                                            |
| 8     | how many bytes of the log were known to be on disk                 |
| 4     | CRC-32 of the 32 bytes before, and of the kind if that is not 0    |
| 4     | the kind: 0 a whole epoch, 1 its given part, 2 its view part       |
|       | the payload, and zeros up to a multiple of 8 bytes                 |

All numbers are little-endian. An epoch is one record, or two consecutive ones: the given part is
synced while the views are computed, and the view part is written when they are.

The last record may be *torn*: the machine stopped while it was written. It was never committed, and
is cut off. An invalid record is damage, not torn, if it is known to have been on disk: from the
file `COMMITTED`, or from a later record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tidelog.errors import StateError

_HEADER = struct.Struct("<4sIQQQ")
_CHECK = struct.Struct("<II")
_MAGIC = b"TIDE"
OVERHEAD = _HEADER.size + _CHECK.size
WHOLE, GIVEN, VIEW = range(3)  # kinds of records
_KINDS = tuple(kind.to_bytes(4, "little") for kind in range(3))
_FILL = tuple(bytes(n) for n in range(8))


@dataclass(frozen=True)
class Record:
    """A record of a log and its position; or the two parts of an epoch, joined."""

    epoch: int
    payload: memoryview
    synced: int
    start: int
    end: int
    kind: int = WHOLE
    view: memoryview | None = None
    """The payload of the view part, if the record is a given part that has one."""

    @property
    def is_complete(self) -> bool:
        """Whether this is a whole epoch."""
        return self.kind == WHOLE or self.view is not None

    @property
    def payloads(self) -> tuple[memoryview, ...]:
        """The payloads of the parts that exist."""
        return (self.payload,) if self.view is None else (self.payload, self.view)


def frame(epoch: int, payload: bytes, synced: int, kind: int = WHOLE) -> bytes:
    """Return a record, ready to be appended."""
    head = _HEADER.pack(_MAGIC, zlib.crc32(payload), len(payload), epoch, synced)
    check = _CHECK.pack(_checksum(head, kind), kind)
    return b"".join((head, check, payload, _FILL[-len(payload) % 8]))


def _checksum(head: bytes | memoryview, kind: int) -> int:
    """Return the checksum of a header. For a whole record it is the same as in format 1."""
    crc = zlib.crc32(head)
    return zlib.crc32(_KINDS[kind], crc) if kind else crc


def record_at(data: memoryview, at: int, base: int = 0) -> Record | None:
    """Return the record at a position of the data; None if there is no valid one.

    `base` is the position of the data in its file.
    """
    if at + OVERHEAD > len(data):
        return None
    head = data[at : at + _HEADER.size]
    magic, crc, length, epoch, synced = _HEADER.unpack(head)
    check, kind = _CHECK.unpack_from(data, at + _HEADER.size)
    if magic != _MAGIC or kind > VIEW or _checksum(head, kind) != check:
        return None
    start = at + OVERHEAD
    stop = start + length
    end = stop + -length % 8
    if end > len(data) or zlib.crc32(data[start:stop]) != crc or any(data[stop:end]):
        return None
    return Record(epoch, data[start:stop], synced, base + at, base + end, kind)


def scan(data: memoryview, base: int, durable: int, name: str) -> Iterator[Record]:
    """Yield the records of a part of a file that begins at `base`; raise StateError for damage.

    The first `durable` bytes of the file are known to have been on disk.
    """
    at = 0
    while at < len(data):
        record = record_at(data, at, base)
        if record is None:
            if base + at < durable or _is_followed(data, at, base):
                raise damaged(name, base + at)
            return
        yield record
        at = record.end - base
    if base + at < durable:
        raise damaged(name, base + at)


def joined_parts(records: Iterable[Record], name: str) -> Iterator[Record]:
    """Yield the epochs of a log: two parts of one epoch are joined.

    Only the last epoch may lack its view part. Otherwise the file is damaged.
    """
    given: Record | None = None
    for record in records:
        if (record.kind == VIEW) != (given is not None):
            raise damaged(name, record.start)
        if given is not None:
            if record.epoch != given.epoch:
                raise damaged(name, record.start)
            yield replace(given, end=record.end, view=record.payload)
            given = None
        elif record.kind == GIVEN:
            given = record
        else:
            yield record
    if given is not None:
        yield given


def damaged(name: str, at: int) -> StateError:
    """Return the error for a file that has changed since it was written."""
    return StateError(
        f"`{name}` is damaged at byte {at}: its content does not match its checksum"
        "\n  help: restore the folder from a copy; nothing was changed"
    )


def _is_followed(data: memoryview, at: int, base: int) -> bool:
    """Return whether a later record says that this position was on disk when it was written."""
    text = bytes(data[at:])
    place = text.find(_MAGIC, 1)
    while place >= 0:
        record = record_at(data, at + place)
        if record is not None and record.synced > base + at:
            return True
        place = text.find(_MAGIC, place + 1)
    return False
