"""Atomic files: each is written completely or not at all.

A file is written beside its target under a hidden name, and then renamed. Readers of the folder see
the old file or the new one.

`write_all` is for the results of a run: all files, or none. A full disk or a missing permission
leaves the old files as they were. Several files cannot be renamed in one step. If the machine stops
in between, some files are new and some are old, but each is complete. Nothing is synced to disk,
because results can be computed again.

`replace_file` is for what cannot be computed again. It syncs the file before the rename, so that
the file is complete even after a crash of the machine. The files of a durable database are written
by `Files` in durable/files.py instead, where tests can make any call fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError
from tidelog.runtime.workers import ALONE, Workers


def write_all(files: Mapping[Path, Sequence[bytes]], workers: Workers = ALONE) -> None:
    """Write all `files`, making folders as needed; raise UsageError and write none otherwise.

    Their content is in parts. Workers share the files.
    """

    def fill(new: tuple[Path, Path, Path], is_stopped: Callable[[], bool]) -> None:
        path, temporary, _ = new
        with _named(path), open(temporary, "xb") as file:
            file.writelines(files[path])

    with contextlib.ExitStack() as on_failure:
        ready: list[tuple[Path, Path, Path]] = []
        direct: list[tuple[Path, Sequence[bytes]]] = []
        for path, data in files.items():
            with _named(path):
                # A link stays a link; what it points to is replaced.
                target = path.resolve()
                if target.is_dir():
                    raise UsageError(f"cannot write `{path}`: it is a folder")
                if target.exists() and not target.is_file():
                    direct.append((target, data))  # a device or a pipe cannot be replaced
                    continue
                _make_folders(target.parent, on_failure)
                temporary = target.with_name(f".tidelog-{secrets.token_hex(8)}.tmp")
                on_failure.callback(_remove, temporary, os.unlink)
                ready.append((path, temporary, target))
        workers.map(fill, ready)
        for _, temporary, target in ready:
            with _named(target):
                os.replace(temporary, target)
        for target, data in direct:
            with _named(target):
                target.write_bytes(b"".join(data))
        on_failure.pop_all()


def _make_folders(folder: Path, on_failure: contextlib.ExitStack) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir()
        on_failure.callback(_remove, new, os.rmdir)


def _remove(path: Path, remove: Callable[[Path], None]) -> None:
    # The path may not exist, and a folder may have files of others by now. Neither may hide the
    # error that led here.
    with contextlib.suppress(OSError):
        remove(path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror or error}") from None


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Replace the file at `path` by the one that `write` creates at a hidden path."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with _named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(temporary)
            _sync(temporary)
            os.replace(temporary, path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a file by one with this text."""
    replace_file(path, lambda target: _write_text(target, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file, and return when it is on the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a crash of the machine."""
    _sync(folder)


def sync_together(paths: Sequence[Path]) -> None:
    """Sync files and folders. At the same time, as a file system writes its log once for all."""
    with ThreadPoolExecutor(max(1, len(paths))) as threads:
        for _ in threads.map(_sync, paths):  # raises what a sync has raised
            pass


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of writers that were killed."""
    if folder.is_dir():
        for path in folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def file_name(name: str) -> str:
    """Return a file name without special characters.

    >>> file_name("a/b c")
    'a_b_c'
    """
    return re.sub(r"[^\w.-]", "_", name)
