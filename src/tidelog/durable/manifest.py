"""The manifest: the file that names all files of a state.

It has two lines. The first has the format, and the length and the CRC-32 of the second, which is
JSON. A new manifest is written to another file, synced, and renamed over the old one, so that after
a crash either the old or the new one exists. Files that it does not name are not part of the state.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace

from tidelog.durable.files import Files
from tidelog.errors import StateError

NAME = "MANIFEST"
_NEW = "MANIFEST.new"
FORMAT = 4
OLDEST_FORMAT = 1  # the oldest format that can be read
FACTS_ARE_RULES = 3  # the first format in which given rows are stored without the program's facts
_KNOWN = tuple(str(number) for number in range(OLDEST_FORMAT, FORMAT + 1))


@dataclass(frozen=True)
class Segment:
    """One file of the log."""

    name: str
    first: int
    """Its first epoch."""
    last: int = -1
    """Its last epoch; -1 while it is being written."""
    bytes: int = -1
    """Its size; -1 while it is being written."""
    time: float = 0.0
    """When its last epoch was committed, in seconds since 1970."""


@dataclass(frozen=True)
class SnapshotRef:
    """The file with the index of a snapshot (durable/saved.py)."""

    name: str
    bytes: int
    crc: int
    epoch: int
    data_bytes: int
    """The size of all arrays that the index names."""


@dataclass(frozen=True)
class Manifest:
    """The files of a state, and its program."""

    identity: str
    program: str
    program_name: str
    snapshot: SnapshotRef
    segments: tuple[Segment, ...]
    written_by: str = ""
    format: int = FORMAT
    """The format of the state. A writer converts an older format to the current one."""

    def with_segments(self, segments: tuple[Segment, ...]) -> Manifest:
        """Return the manifest with another list of log segments."""
        return replace(self, segments=segments)


class UncertainManifestError(StateError):
    """The old or the new manifest may be on disk, so no file that either names may be removed."""


def write(files: Files, manifest: Manifest, before: Manifest | None) -> None:
    """Replace the manifest `before`; when this returns, the new one is on disk.

    If this raises StateError, the old manifest is in place, except for UncertainManifestError.
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
            raise UncertainManifestError(str(second)) from error
        raise StateError(str(error)) from error


class _UnsyncedError(Exception):
    """The manifest was renamed, but the folder could not be synced."""


def encoded(manifest: Manifest) -> bytes:
    """Return the content of the manifest file."""
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
    damaged = StateError(f"`{shown}` is damaged: its content does not match its checksum")
    if len(words) != 5 or words[:2] != ["tidelog", "state"]:
        raise damaged
    if words[2] not in _KNOWN:
        if words[2].isdecimal() and 0 < len(words[2]) < 4:
            raise StateError(
                f"`{shown}` has format {words[2]};"
                f" this version of Tidelog reads formats {OLDEST_FORMAT} to {FORMAT}"
                "\n  help: export it with the version that wrote it, and import the result"
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
