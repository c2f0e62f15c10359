"""Read the log, possibly while another process appends to it (durable/log.py)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.durable.files import Files
from tidelog.durable.framing import Record, damaged, joined_parts, scan
from tidelog.durable.manifest import FORMAT, OLDEST_FORMAT, Segment
from tidelog.errors import StateError

COMMITTED = "COMMITTED"
MAGIC = b"TIDELOG\n"
CRC = struct.Struct("<II")
_SEGMENT = struct.Struct("<8sIIQ32s")
_PUBLISHED = struct.Struct("<8s32sQQQ")
HEADER = _SEGMENT.size + CRC.size
_TRIES = 100


@dataclass(frozen=True)
class Published:
    """The positions in a log that its writer has published."""

    first: int
    """The first epoch of the segment that is being written."""
    durable: int
    """How many bytes of the segment are known to be on disk."""
    visible: int
    """How many bytes are committed: more than `durable` if commits do not wait for the disk."""


def read_published(files: Files, identity: str) -> Published | None:
    """Return the published positions of the log of a state; None if they are not known."""
    if not files.exists(COMMITTED):
        return None
    for _ in range(_TRIES):
        data = files.read(COMMITTED)
        if len(data) != _PUBLISHED.size + CRC.size:
            return None
        if CRC.unpack_from(data, _PUBLISHED.size)[0] == zlib.crc32(data[: _PUBLISHED.size]):
            magic, owner, first, durable, visible = _PUBLISHED.unpack_from(data)
            if magic != MAGIC or owner != identity.encode():
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
    unfinished: bool = False,
    last: tuple[int, int] | None = None,
) -> Iterator[Record]:
    """Yield the records of all epochs after `since`, in order; raise StateError for damage.

    With `committed_only`, the last segment is read up to the published position. With `unfinished`,
    the last record may lack its view part; with both, that record must be on disk according to
    `published`. `last` says where the record of `since` ends: the first epoch of its segment, and
    the position in it.
    """
    if published is not None and published.first > segments[-1].first:
        raise StateError(
            f"`{files.folder}` is inconsistent: {COMMITTED} names a newer log than the manifest"
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
            if bytes(whole[:HEADER]) not in _headers(segment.first, identity):
                raise damaged(name, 0)
            data = whole[HEADER:]
        for record in joined_parts(scan(data, base, durable, name), name):
            if record.epoch != expected:
                raise damaged(name, record.start)
            if not record.is_complete:
                if is_closed:
                    raise damaged(name, record.end)
                if not unfinished:
                    return
            if committed_only and not is_closed and _is_uncommitted(record, segment, published):
                return
            if record.epoch > since:
                yield record
            expected += 1
        if is_closed and expected != segment.last + 1:
            raise damaged(name, base + len(data))


def _is_uncommitted(record: Record, segment: Segment, published: Published | None) -> bool:
    if published is None:
        return False
    limit = published.visible if record.is_complete else published.durable
    return published.first != segment.first or record.end > limit


def header(first: int, identity: str, format_: int = FORMAT) -> bytes:
    """Return the header of a segment."""
    head = _SEGMENT.pack(MAGIC, format_, 0, first, identity.encode())
    return head + CRC.pack(zlib.crc32(head), 0)


def _headers(first: int, identity: str) -> list[bytes]:
    """Return the valid headers: a segment keeps the format in which it was created."""
    return [header(first, identity, number) for number in range(OLDEST_FORMAT, FORMAT + 1)]
