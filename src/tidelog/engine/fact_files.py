"""Large files of facts become columns of ordinals, without a Python object for a line or a symbol.

Files are read in chunks of whole lines. Workers read and split chunks ahead (kernel/fields.py),
while this thread looks up the symbols of those before, in the order of the files: so ids do not
depend on the number of threads. The memory of a chunk is used again, since fresh memory costs as
much time as reading.

A file that is not plain is left out. Then it is read by `FactsFile.read`, which knows all errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.io.facts import FactsFile
from tidelog.io.lines import BOM
from tidelog.kernel import fields as kernel
from tidelog.runtime.workers import Workers
from tidelog.store.codec import Codec
from tidelog.values.types import Kind

Array = NDArray[np.int64]

CHUNK = 1 << 21
LONGEST = 1 << 16  # bytes of a line; another reader takes files with longer ones
_ROOM_BEHIND = 8  # bytes that the kernel may look at
_KINDS = {
    Kind.SYMBOL: kernel.SYMBOL,
    Kind.NUMBER: kernel.NUMBER,
    Kind.UNSIGNED: kernel.UNSIGNED,
}
_SIGN = np.int64(-(1 << 63))


class _Open(NamedTuple):
    """A file whose chunks are read."""

    name: str
    file: FactsFile
    descriptor: int
    size: int
    kinds: Array


class _Room:
    """Memory for a chunk and what is found in it."""

    def __init__(self, chunk: int) -> None:
        size = 1 + chunk + LONGEST
        self.bytes = np.empty(size + _ROOM_BEHIND, np.uint8)
        self.data = self.bytes[:]
        self.data.setflags(write=False)  # as other texts: it is part of a kernel's signature
        # A field takes a byte at least, but for an empty one at the end.
        self.starts, self.stops, self.hashes, self.values = (
            np.empty(size + 1, np.int64) for _ in range(4)
        )
        self.found = np.zeros(3, np.int64)


def encoded_files(
    files: Mapping[str, FactsFile], codec: Codec, workers: Workers, chunk: int = CHUNK
) -> dict[str, Array]:
    """Return the rows of plain files, by relation, as columns of ordinals."""
    parts: dict[str, list[Array]] = {}
    with ExitStack() as stack:
        opened = []
        for name, file in files.items():
            with suppress(OSError):
                opened.append(_opened(name, file, stack))
                parts[name] = []
        tasks = [(one, begin) for one in opened for begin in range(0, one.size, chunk)]
        window = workers.count + 1
        rooms = [_Room(chunk) for _ in range(min(window, len(tasks)))]

        def split(number: int) -> _Room | None:
            room = rooms[number % window]
            file, begin = tasks[number]
            with suppress(OSError, UnicodeDecodeError):
                return room if _split(room, file, begin, chunk) else None
            return None

        chunks = workers.ahead(split, range(len(tasks)), window)
        stack.callback(chunks.close)
        for (of, _), room in zip(tasks, chunks, strict=True):
            if room is None:
                parts.pop(of.name, None)
            elif of.name in parts:
                parts[of.name].append(_ordinals(room, of.kinds, codec))
    none = {name: np.empty((len(files[name].relation.columns), 0), np.int64) for name in parts}
    return {name: np.concatenate([none[name], *found], axis=1) for name, found in parts.items()}


def _opened(name: str, file: FactsFile, stack: ExitStack) -> _Open:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    kinds = [_KINDS[field.type.kind] for field in file.relation.columns]
    return _Open(name, file, descriptor, os.fstat(descriptor).st_size, np.array(kinds, np.int64))


def _split(room: _Room, file: _Open, begin: int, chunk: int) -> bool:
    """Split the lines that begin in a chunk; return whether they are plain."""
    # With the byte before, which may end a line.
    first = max(0, begin - 1)
    stop = min(file.size, begin + chunk + LONGEST)
    size = _read(room.bytes, file.descriptor, first, stop)
    if size < stop - first:
        return False  # the file is shorter now
    has_bom = begin == 0 and room.bytes[: len(BOM)].tobytes() == BOM
    start = len(BOM) if has_bom else 0
    limit = min(size, max(begin - first + chunk, start + 1))
    if begin > 0 or file.file.format.headers:
        ends = np.flatnonzero(room.bytes[start : min(size, LONGEST)] == ord("\n"))
        if not len(ends):  # no line begins here, if this is the end of the last one
            room.found[:] = 0
            return stop == file.size and size <= LONGEST
        start += int(ends[0]) + 1
    delimiter = ord(file.file.format.delimiter)
    status = kernel.split_lines(
        room.data, start, limit, size, delimiter, file.kinds,
        room.starts, room.stops, room.hashes, room.values, room.found,
    )  # fmt: skip
    end = int(room.found[2])
    if status == kernel.UNUSUAL:
        return False
    if stop < file.size and end > start and room.bytes[end - 1] != ord("\n"):
        return False  # its last line is too long
    if status == kernel.NOT_ASCII:
        str(room.data[start:end].data, "utf-8")
    return True


def _read(into: NDArray[np.uint8], descriptor: int, start: int, stop: int) -> int:
    """Read bytes of a file; return how many there were."""
    size = 0
    while size < stop - start:
        read = os.preadv(descriptor, [into[size : stop - start].data], start + size)
        if not read:
            break
        size += read
    return size


def _ordinals(room: _Room, kinds: Array, codec: Codec) -> Array:
    """Return the rows of a chunk as columns of ordinals. New symbols get new ids."""
    symbols, numbers = int(room.found[0]), int(room.found[1])
    is_symbol = kinds == kernel.SYMBOL
    width = int(is_symbol.sum())
    rows = symbols // width if width else numbers // len(is_symbol)
    out = np.empty((len(is_symbol), rows), np.int64)
    if width:
        starts, stops = room.starts[:symbols], room.stops[:symbols]
        ids = codec.symbols.numbers(room.data, starts, stops, room.hashes[:symbols])
        for i in np.flatnonzero(ids < 0).tolist():  # of few texts
            text = room.data[starts[i] : stops[i]].tobytes().decode()
            ids[i] = codec.symbols.number(text)
        out[is_symbol] = ids.reshape(-1, width).T
    if width < len(is_symbol):
        out[~is_symbol] = room.values[:numbers].reshape(-1, len(is_symbol) - width).T
        out[kinds == kernel.UNSIGNED] ^= _SIGN
    return out
