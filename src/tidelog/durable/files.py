"""Every operation on the files of one folder, in one place.

Whatever is written, synced, renamed or removed goes through here, so that tests can let any of
these calls fail. Errors of the system come out as StateError, with the file and what was tried.
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

_sync = getattr(os, "fdatasync", os.fsync)  # not everywhere
Buffer = bytes | bytearray | memoryview


def _local(folder: str | Path) -> Path:
    """Return a folder on a local disk; raise UsageError for an address of anything else."""
    if not is_address(folder):
        return Path(folder)
    scheme, _, rest = str(folder).partition(":")
    if scheme.lower() != "file":
        raise UsageError(
            f"`{folder}`: a database that is in use lies on a local disk"
            "\n  help: `tidelog state copy` brings it to one, and back"
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

    # --- what can fail, and changes something ---

    def make_folder(self) -> None:
        """Make the folder if it does not exist."""
        with self._named("make", ""):
            self.folder.mkdir(parents=True, exist_ok=True)

    def create(self, name: str) -> int:
        """Return a new, empty file, open for writing. What was there by this name is gone."""
        with self._named("create", name):
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def open(self, name: str) -> int:
        """Return a file open for reading and writing."""
        with self._named("open", name):
            return os.open(self.folder / name, os.O_RDWR)

    def write(self, file: int, data: Buffer, at: int, name: str) -> None:
        """Write all of `data` at a place of a file."""
        try:  # each commit comes by here: `_named` would cost more than the call
            written = os.pwrite(file, data, at)
            if written < memoryview(data).nbytes:
                view = memoryview(data).cast("B")
                while written < len(view):
                    written += os.pwrite(file, view[written:], at + written)
        except OSError as error:
            raise self._failed("write", name, error) from error

    def sync(self, file: int, name: str) -> None:
        """Return when everything that was written to a file is on the disk."""
        try:
            _sync(file)
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def begin_sync(self, file: int, name: str) -> Syncing:
        """Begin to bring what was written to a file to the disk; `end_sync` waits for that."""
        try:
            return syncing.begin(file)
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def end_sync(self, begun: Syncing, name: str) -> None:
        """Return when everything that was written before a sync was begun is on the disk."""
        try:
            begun.wait()
        except OSError as error:
            raise self._failed("sync", name, error) from error

    def truncate(self, file: int, size: int, name: str) -> None:
        """Cut a file off."""
        with self._named("truncate", name):
            os.ftruncate(file, size)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of any file that has it."""
        with self._named("rename", old):
            os.replace(self.folder / old, self.folder / new)

    def sync_folder(self) -> None:
        """Return when the names of all files are on the disk."""
        with self._named("sync", ""):
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Who has it mapped keeps it."""
        with self._named("remove", name):
            (self.folder / name).unlink(missing_ok=True)

    # --- what only reads ---

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(file)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self.folder / name).exists()

    def names(self) -> list[str]:
        """Return the names of all files."""
        with self._named("list", ""):
            return sorted(os.listdir(self.folder)) if self.folder.exists() else []

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self._named("look at", name):
            return (self.folder / name).stat().st_size

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with self._named("read", name):
            return (self.folder / name).read_bytes()

    def read_from(self, name: str, at: int) -> bytes:
        """Return what is in a file from a place on."""
        with self._named("read", name), open(self.folder / name, "rb") as file:
            file.seek(at)
            return file.read()

    def map(self, name: str) -> mmap.mmap:
        """Return a file in memory. What is written there is for this process only."""
        with self._named("map", name), open(self.folder / name, "rb") as file:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except ValueError:
                raise OSError(errno.EINVAL, "it is empty") from None

    def share(self, file: int, size: int, name: str) -> mmap.mmap:
        """Return the beginning of an open file in memory. What is written there is in the file."""
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
