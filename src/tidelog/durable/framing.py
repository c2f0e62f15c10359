"""Records in a log, each with its checksums.

| bytes | in a record                                                        |
| ----- | ------------------------------------------------------------------ |
| 4     | `TIDE`                                                             |
| 4     | CRC-32 of the payload                                              |
| 8     | the length of the payload                                          |
| 8     | the number of the epoch                                            |
| 8     | up to where the log was known to be on the disk, in bytes          |
| 4     | CRC-32 of the 32 bytes before, and of the kind if that is not 0    |
| 4     | the kind: 0 a whole epoch, 1 its given part, 2 its view part       |
|       | the payload, and zeros up to a multiple of 8 bytes                 |

All numbers are little-endian. An epoch is one record, or two that follow each other: what was given
is on its way to the disk while the views are computed, and what became of these is written behind.

The last record may be *torn*: the machine stopped while it was being
written, so it never committed, and is cut off. A record that is behind it, or that is known to have
been on the disk, cannot be torn: then the file is damaged.
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
    """One record of a log, and where it is; or the two parts of an epoch, as one."""

    epoch: int
    payload: memoryview
    synced: int
    start: int
    end: int
    kind: int = WHOLE
    view: memoryview | None = None
    """The payload of the view part, if the record is a given part and that is there."""

    @property
    def is_complete(self) -> bool:
        """Whether all of an epoch is here."""
        return self.kind == WHOLE or self.view is not None

    @property
    def payloads(self) -> tuple[memoryview, ...]:
        """What there is of the epoch."""
        return (self.payload,) if self.view is None else (self.payload, self.view)


def frame(epoch: int, payload: bytes, synced: int, kind: int = WHOLE) -> bytes:
    """Return a record, ready to be appended."""
    head = _HEADER.pack(_MAGIC, zlib.crc32(payload), len(payload), epoch, synced)
    check = _CHECK.pack(_checksum(head, kind), kind)
    return b"".join((head, check, payload, _FILL[-len(payload) % 8]))


def _checksum(head: bytes | memoryview, kind: int) -> int:
    """Return the checksum of a header. Whole records have the one that they had in format 1."""
    crc = zlib.crc32(head)
    return zlib.crc32(_KINDS[kind], crc) if kind else crc


def record_at(data: memoryview, at: int, base: int = 0) -> Record | None:
    """Return the record that begins here; None if there is no whole one.

    `base` is where the data is in its file.
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
    """Yield the records of a part of a file, which begins at `base`.

    The first `durable` bytes of the file are known to have been on the disk.
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


def joined(records: Iterable[Record], name: str) -> Iterator[Record]:
    """Yield the records of whole epochs, and of those in two parts the two as one.

    The last epoch may lack its view part; any other that does is damaged.
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
    """Return the error of a file that has changed since it was written."""
    return StateError(
        f"`{name}` is damaged at byte {at}: it is not what was written"
        "\n  help: put the folder back from a copy; nothing was changed"
    )


def _is_followed(data: memoryview, at: int, base: int) -> bool:
    """Return whether a later record was written when this place was known to be on the disk."""
    text = bytes(data[at:])
    place = text.find(_MAGIC, 1)
    while place >= 0:
        record = record_at(data, at + place)
        if record is not None and record.synced > base + at:
            return True
        place = text.find(_MAGIC, place + 1)
    return False
