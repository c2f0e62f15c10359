"""Arrays in files, each with its checksum, read by mapping the file.

A data file begins with 64 bytes that name it; then come arrays, each at a multiple of 64 bytes,
as they are in memory, little-endian. The file itself does not describe them. An `Extent`, stored in
the index of a snapshot (durable/saved.py), has the file, the position, the shape, the type and the
CRC-32 of an array.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.files import Files
from tidelog.durable.framing import damaged

ALIGNMENT = 64
PART = 1 << 20  # bytes per write
_HEADER = struct.Struct("<8sI20s32s")
_MAGIC = b"TIDEDATA"
FORMAT = 1  # of data files; it is older than the format of the manifest
_TYPES = ("<i8", "<i4", "|u1")

Steps = Generator[int, None, "Extent"]
"""Writes an array: yields the size of each part after writing it, and returns the extent."""


@dataclass(frozen=True)
class Extent:
    """The location, shape, type and checksum of an array in a file."""

    file: str
    at: int
    shape: tuple[int, ...]
    dtype: str
    crc: int

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * int(self.dtype[2:])

    def as_data(self) -> list[Any]:
        """Return the extent as a list for JSON."""
        return [self.file, self.at, list(self.shape), self.dtype, self.crc]

    @classmethod
    def from_data(cls, data: list[Any]) -> Extent:
        """Return the extent from the result of `as_data`."""
        file, at, shape, dtype, crc = data
        return cls(file, at, tuple(shape), dtype, crc)


class DataFile:
    """A data file that is being written."""

    def __init__(self, files: Files, name: str, identity: str) -> None:
        self._files, self.name = files, name
        self._file: int | None = files.create(name)
        header = _HEADER.pack(_MAGIC, FORMAT, b"", identity.encode())
        try:
            files.write(self._file, header, 0, name)
        except BaseException:
            self.close()
            raise
        self.end = len(header)

    def put(self, array: NDArray[Any]) -> Steps:
        """Write an array."""
        array = np.ascontiguousarray(array)
        flat = array.reshape(-1).data.cast("B") if array.size else memoryview(b"")
        parts = (flat[start : start + PART] for start in range(0, len(flat), PART))
        return self._put(parts, array.shape, array.dtype.str)

    def put_parts(
        self, n: int, dtype: np.dtype[Any], part: Callable[[int, int], NDArray[Any]]
    ) -> Steps:
        """Write an array of n numbers; `part(start, stop)` returns some of them."""
        at_once = PART // dtype.itemsize
        parts = (
            part(start, min(n, start + at_once)).data.cast("B") for start in range(0, n, at_once)
        )
        return self._put(parts, (n,), dtype.str)

    def _put(self, parts: Iterable[memoryview], shape: tuple[int, ...], dtype: str) -> Steps:
        assert self._file is not None
        assert dtype in _TYPES, f"arrays of {dtype} cannot be written to a data file"
        at = self.end = self.end + -self.end % ALIGNMENT
        crc = 0
        for part in parts:
            self._files.write(self._file, part, self.end, self.name)
            crc = zlib.crc32(part, crc)
            self.end += len(part)
            yield len(part)
        return Extent(self.name, at, shape, dtype, crc)

    def sync(self) -> None:
        """Return when everything written so far is on disk."""
        if self._file is not None:
            self._files.sync(self._file, self.name)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._files.close(self._file)
            self._file = None


class Arrays:
    """Reads arrays from data files. Each file is mapped into memory once."""

    def __init__(self, files: Files, identity: str, *, verify: bool = True) -> None:
        self._files, self._identity, self._verify = files, identity, verify
        self._maps: dict[str, mmap.mmap] = {}
        self.mapped = 0
        """The total size of the arrays read, in bytes."""

    def read(self, extent: Extent) -> NDArray[Any]:
        """Return an array. Writes to it are private to this process: the file is not changed."""
        if not extent.nbytes:
            return np.zeros(extent.shape, extent.dtype)
        data = self._map(extent.file)
        end = extent.at + extent.nbytes
        shown = self._files.shown(extent.file)
        if extent.at < 0 or end > len(data):
            raise damaged(shown, min(extent.at, len(data)))
        flat = memoryview(data)[extent.at : end]
        if self._verify and zlib.crc32(flat) != extent.crc:
            raise damaged(shown, extent.at)
        self.mapped += extent.nbytes
        return np.frombuffer(flat, extent.dtype).reshape(extent.shape)

    def hold(self, names: Iterable[str]) -> None:
        """Map files now, so that their arrays can be read after the files have been removed."""
        for name in names:
            self._map(name)

    def _map(self, name: str) -> mmap.mmap:
        found = self._maps.get(name)
        if found is None:
            found = self._files.map(name)
            header = _HEADER.pack(_MAGIC, FORMAT, b"", self._identity.encode())
            if found[: len(header)] != header:
                raise damaged(self._files.shown(name), 0)
            self._maps[name] = found
        return found
