"""Copies of a durable database: from its folder to any place that Arrow reaches, and back.

A copy has the files that the manifest names, and the committed part of the log. The manifest is
written last: a place without one is not a copy. The database may be in use. Its writer may remove
files meanwhile, so all files are opened before the first one is copied.
"""

from __future__ import annotations

import io
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.log_reading import HEADER, read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.durable.places import Place, is_address
from tidelog.durable.saved import load_index
from tidelog.errors import StateError, UsageError

_ATTEMPTS = 20  # to open files that are being replaced


def copy_state(source: str | Path, target: str | Path, filesystem: Any = None) -> int:
    """Copy a state; return its epoch. Source or target is a folder on this machine.

    The other one may be on a `pyarrow.fs.FileSystem`.
    """
    if is_address(source) or (filesystem is not None and not (Path(source) / "MANIFEST").exists()):
        return _fetch(Place(source, filesystem), target)
    return _send(Files(source), Place(target, filesystem))


def _send(files: Files, place: Place) -> int:
    if not files.exists(manifests.NAME):
        raise UsageError(f"there is no database in `{files.folder}`")
    for attempt in range(_ATTEMPTS):
        with ExitStack() as stack:
            manifest = manifests.read(files)
            try:
                opened = _opened(files, manifest, stack)
                epoch, log_bytes = _committed(files, manifest)
            except (StateError, OSError):
                # The writer may have removed a file that the manifest named a moment ago.
                if attempt == _ATTEMPTS - 1 or manifests.read(files) == manifest:
                    raise
                continue
            place.make()
            for name, file in opened.items():
                size = file.seek(0, io.SEEK_END)
                file.seek(0)
                place.put(name, file, log_bytes if name == manifest.segments[-1].name else size)
            place.write(manifests.NAME, manifests.encoded(manifest))
            return epoch
    raise AssertionError("an attempt returns or raises")


def _opened(files: Files, manifest: Manifest, stack: ExitStack) -> dict[str, BinaryIO]:
    names = {segment.name for segment in manifest.segments} | {manifest.snapshot.name}
    names |= load_index(files, manifest.snapshot).files()
    return {name: stack.enter_context(open(files.folder / name, "rb")) for name in sorted(names)}


def _committed(files: Files, manifest: Manifest) -> tuple[int, int]:
    """Return the last epoch, and how many bytes of the last log have committed."""
    epoch, current = manifest.snapshot.epoch, manifest.segments[-1]
    end = HEADER
    published = read_published(files, manifest.identity)
    for record in read_records(
        files, manifest.identity, manifest.segments, current.first - 1, published,
        committed_only=True, unfinished=True,
    ):  # fmt: skip
        epoch, end = max(epoch, record.epoch), record.end
    return epoch, end


def _fetch(place: Place, target: str | Path) -> int:
    files = Files(target)
    names = place.names()
    if manifests.NAME not in names:
        raise UsageError(f"there is no database in `{place}`")
    if files.names():
        raise UsageError(f"`{files.folder}` is not empty")
    files.make_folder()
    for name in sorted(names, key=lambda name: name == manifests.NAME):
        file = files.create(name)
        try:
            at = 0
            with place.input(name) as source:
                while part := source.read(1 << 20):
                    files.write(file, part, at, name)
                    at += len(part)
            files.sync(file, name)
        finally:
            files.close(file)
    files.sync_folder()
    manifest = manifests.read(files)
    return _committed(files, manifest)[0]
