"""All operations on the files of a state.

Every write, sync, rename and removal goes through `Files`, so that tests can make any of them fail.
Errors of the operating system become StateError, with the operation and the file. Folders that are
not on a local disk are reached through durable/places.py instead.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from tidelog.durable import syncing
from tidelog.durable.places import is_address
from tidelog.durable.syncing import Syncing
from tidelog.errors import StateError, UsageError
from tidelog.io.atomic import sync_folder

_sync = getattr(os, "fdatasync", os.fsync)  # not every system has fdatasync
Buffer = bytes | bytearray | memoryview


def _local(folder: str | Path) -> Path:
    """Return the path of a folder on a local disk; raise UsageError for a remote address."""
    if not is_address(folder):
        return Path(folder)
    scheme, _, rest = str(folder).partition(":")
    if scheme.lower() != "file":
        raise UsageError(
            f"`{folder}`: a database in use must be on a local disk"
            "\n  help: `tidelog state copy` copies a database to a local disk, and back"
        )
    path = unquote(rest)
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise UsageError(f"`{folder}` is on another machine, `{host}`")
        path = slash + path
    return Path(path)


class Files:
    """The files of one folder on a local disk."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = _local(folder)

    # --- operations that change files ---

    def make_folder(self) -> None:
        """Create the folder if it does not exist."""
        with self._named("create", ""):
            self.folder.mkdir(parents=True, exist_ok=True)

    def create(self, name: str) -> int:
        """Return a new, empty file, open for writing. An existing file is truncated."""
        with self._named("create", name):
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def open(self, name: str) -> int:
        """Return a file open for reading and writing."""
        with self._named("open", name):
            return os.open(self.folder / name, os.O_RDWR)

    def write(self, file: int, data: Buffer, at: int, name: str) -> None:
        """Write all of `data` at a position of a file."""
        try:  # without `_named`, which takes longer than the write: every commit runs this
            written = os.pwrite(file, data, at)
            if written < memoryview(data).nbytes:
                view = memoryview(data).cast("B")
                while written < len(view):
                    written += os.pwrite(file, view[written:], at + written)
        except OSError as error:
            raise self._failed("write", name, error) from error

    def sync(self, file: int, name: str) -> None:
        """Return when everything written to a file is on disk."""
        try:
            _sync(file)
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def begin_sync(self, file: int, name: str) -> Syncing:
        """Begin to sync a file; `end_sync` waits until it is done."""
        try:
            return syncing.begin(file)
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def end_sync(self, begun: Syncing, name: str) -> None:
        """Return when everything written before `begin_sync` is on disk."""
        try:
            begun.wait()
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def truncate(self, file: int, size: int, name: str) -> None:
        """Cut a file to a size."""
        with self._named("truncate", name):
            os.ftruncate(file, size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file of the new name."""
        with self._named("rename", old):
            os.replace(self.folder / old, self.folder / new)

    def sync_folder(self) -> None:
        """Return when the directory entries of all files are on disk."""
        with self._named("sync", ""):
            sync_folder(self.folder)

    def remove(self, name: str) -> None:
        """Remove a file if it exists. Processes that have it mapped can still read it."""
        with self._named("remove", name):
            (self.folder / name).unlink(missing_ok=True)

    # --- operations that only read ---

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(file)

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return (self.folder / name).exists()

    def names(self) -> list[str]:
        """Return the names of all files."""
        with self._named("list", ""):
            return sorted(os.listdir(self.folder)) if self.folder.exists() else []

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self._named("stat", name):
            return (self.folder / name).stat().st_size

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._named("read", name):
            return (self.folder / name).read_bytes()

    def read_from(self, name: str, at: int) -> bytes:
        """Return the content of a file from a position on."""
        with self._named("read", name), open(self.folder / name, "rb") as file:
            file.seek(at)
            return file.read()

    def map(self, name: str) -> mmap.mmap:
        """Map a file into memory. Writes to the map are private to this process."""
        with self._named("map", name), open(self.folder / name, "rb") as file:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except ValueError:
                raise OSError(errno.EINVAL, "the file is empty") from None

    def share(self, file: int, size: int, name: str) -> mmap.mmap:
        """Map the beginning of an open file into memory. Writes to the map change the file."""
        with self._named("map", name):
            return mmap.mmap(file, size)

    def shown(self, name: str) -> str:
        """Return the path of a file, for messages."""
        return str(self.folder / name)

    @contextmanager
    def _named(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(what, name, error) from error

    def _failed(self, what: str, name: str, error: OSError) -> StateError:
        reason = error.strerror or str(error)
        return StateError(f"cannot {what} `{self.shown(name)}`: {reason}")
