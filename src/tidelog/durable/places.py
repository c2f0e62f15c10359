"""Folders on any file system that Arrow supports, for exports and copies of a state.

A place is a local path, or an address such as `s3://bucket/folder`. Files there are written once
and completely, and read from beginning to end. A database in use needs more operations than that,
so it must be on a local disk (durable/files.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tidelog.errors import StateError, UsageError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters or more: not a drive
PART = 1 << 20  # bytes per read and write of a copy


def is_address(place: str | Path) -> bool:
    """Return whether this is an address, not a local path.

    >>> is_address("s3://bucket/x"), is_address(Path("s3://bucket/x")), is_address("a/b:c")
    (True, True, False)
    """
    return _ADDRESS.match(str(place)) is not None


class Place:
    """A folder to write files to, or to read them from."""

    def __init__(self, place: str | Path, filesystem: Any = None) -> None:
        """Connect to a place; with a `pyarrow.fs.FileSystem`, `place` is a path in it."""
        from pyarrow import ArrowInvalid, fs

        self._name = str(place)
        self._fs: Any = filesystem
        self._folder = self._name
        if filesystem is None and not is_address(place):
            self._fs, self._folder = fs.LocalFileSystem(), str(Path(place).absolute())
        elif filesystem is None:
            try:
                self._fs, self._folder = fs.FileSystem.from_uri(self._name)
            except (ArrowInvalid, OSError, ImportError) as error:
                raise UsageError(
                    f"`{place}` is not an address that Arrow supports: {_first_line(error)}"
                    "\n  help: use s3://bucket/folder, gs://, abfs://, hdfs:// or file://"
                ) from error

    def __str__(self) -> str:
        return self._name

    def shown(self, name: str) -> str:
        """Return the path of a file, for messages."""
        return f"{self._name.rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """Return the names of all files and folders in it; none if the folder does not exist."""
        from pyarrow import fs

        with self._named("list", ""):
            selector = fs.FileSelector(self._folder, allow_not_found=True)
            return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def make(self) -> None:
        """Create the folder; raise UsageError if it is not empty."""
        if self.names():
            raise UsageError(f"`{self}` is not empty")
        with self._named("create", ""):
            self._fs.create_dir(self._folder, recursive=True)

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return name in self.names()

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        with self.output(name) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.input(name) as file:
            data: bytes = file.read()
            return data

    def put(self, name: str, source: BinaryIO, size: int) -> None:
        """Write a file with the next `size` bytes of another one."""
        with self.output(name) as file:
            while size:
                part = source.read(min(PART, size))
                if not part:
                    raise StateError(
                        f"cannot write `{self.shown(name)}`: the file to copy is too short"
                    )
                file.write(part)
                size -= len(part)

    @contextmanager
    def output(self, name: str) -> Iterator[Any]:
        """Open a new Arrow file for writing."""
        with self._named("write", name), self._fs.open_output_stream(self._path(name)) as file:
            yield file

    @contextmanager
    def input(self, name: str) -> Iterator[Any]:
        """Open an Arrow file for reading."""
        with self._named("read", name), self._fs.open_input_file(self._path(name)) as file:
            yield file

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    @contextmanager
    def _named(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = self.shown(name) if name else self._name
            raise StateError(f"cannot {what} `{where}`: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the first line of the message of an error."""
    return str(error).strip().partition("\n")[0]
