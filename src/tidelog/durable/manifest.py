"""The manifest: which files are the state, replaced as a whole.

A text file of two lines. The first names the format, and has the length and the CRC-32 of the
second, which is JSON. It is written beside the old one, synced, and renamed over it: after a crash
there is the old one or the new one. Everything that it does not name is of no account.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace

from tidelog.durable.files import Files
from tidelog.errors import StateError

NAME = "MANIFEST"
_NEW = "MANIFEST.new"
FORMAT = 2
OLDEST_FORMAT = 1  # of those that can be read; all have whole epochs in their logs
_KNOWN = tuple(str(number) for number in range(OLDEST_FORMAT, FORMAT + 1))


@dataclass(frozen=True)
class Segment:
    """One file of the log."""

    name: str
    first: int
    """The number of its first epoch."""
    last: int = -1
    """The number of its last epoch; -1 while it is being written."""
    bytes: int = -1
    """Its size; -1 while it is being written."""
    time: float = 0.0
    """When its last epoch was committed, in seconds since 1970."""


@dataclass(frozen=True)
class SnapshotRef:
    """Where the index of a snapshot is."""

    name: str
    bytes: int
    crc: int
    epoch: int
    data_bytes: int
    """The size of all that it names."""


@dataclass(frozen=True)
class Manifest:
    """What a state consists of."""

    identity: str
    program: str
    program_name: str
    snapshot: SnapshotRef
    segments: tuple[Segment, ...]
    written_by: str = ""
    format: int = FORMAT
    """The format of the state: a writer that finds an older one makes it this one."""

    def with_segments(self, segments: tuple[Segment, ...]) -> Manifest:
        """Return the manifest with another log."""
        return replace(self, segments=segments)


class UnsureError(StateError):
    """Nobody knows which manifest is on the disk: no file of either may be touched."""


def write(files: Files, manifest: Manifest, before: Manifest | None) -> None:
    """Put a manifest in the place of the one before; when this returns it is on the disk.

    If that fails the one before is still there, or there again.
    """
    try:
        _replace(files, manifest)
    except _UnsyncedError as error:
        try:
            if before is None:
                files.remove(NAME)
                files.sync_folder()
            else:
                _replace(files, before)
        except (_UnsyncedError, StateError) as second:
            raise UnsureError(str(second)) from error
        raise StateError(str(error)) from error


class _UnsyncedError(Exception):
    """The manifest is replaced, but perhaps not on the disk."""


def encoded(manifest: Manifest) -> bytes:
    """Return what is in the file of a manifest."""
    data = asdict(manifest)
    format_ = data.pop("format")
    body = json.dumps(data, ensure_ascii=True).encode()
    head = f"tidelog state {format_} {len(body)} {zlib.crc32(body):08x}\n".encode()
    return head + body + b"\n"


def _replace(files: Files, manifest: Manifest) -> None:
    file = files.create(_NEW)
    try:
        files.write(file, encoded(manifest), 0, _NEW)
        files.sync(file, _NEW)
    finally:
        files.close(file)
    files.rename(_NEW, NAME)
    try:
        files.sync_folder()
    except StateError as error:
        raise _UnsyncedError(str(error)) from error


def read(files: Files) -> Manifest:
    """Return the manifest; raise StateError if it is damaged, or of an unknown format."""
    head, _, body = files.read(NAME).partition(b"\n")
    words = head.decode(errors="replace").split(" ")
    shown = files.shown(NAME)
    damaged = StateError(f"`{shown}` is damaged: it is not what was written")
    if len(words) != 5 or words[:2] != ["tidelog", "state"]:
        raise damaged
    if words[2] not in _KNOWN:
        if words[2].isdecimal() and 0 < len(words[2]) < 4:
            raise StateError(
                f"`{shown}` has format {words[2]}; this Tidelog knows {' and '.join(_KNOWN)} only"
                "\n  help: export it with the Tidelog that wrote it, and import that"
            )
        raise damaged
    if body[-1:] != b"\n" or words[3:] != [str(len(body) - 1), f"{zlib.crc32(body[:-1]):08x}"]:
        raise damaged
    data = json.loads(body)
    return Manifest(
        **{
            **data,
            "format": int(words[2]),
            "snapshot": SnapshotRef(**data["snapshot"]),
            "segments": tuple(Segment(**segment) for segment in data["segments"]),
        }
    )
