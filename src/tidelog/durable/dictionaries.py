"""Dictionaries as arrays in files: the symbols, records and sets of each dictionary id.

Dictionaries only grow, so entries that are written never change. The log has the new entries of
each epoch, a snapshot those since the previous snapshot. A record entry has the ordinals of its
fields. A set is a tree (store/sets.py), and the entries of its dictionary are the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.store.codec import Codec
from tidelog.values.types import PRIMITIVES, Kind, Type, decimal_type, record_type, set_type

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SET = re.compile(r"set\((.*)\)")


@dataclass(frozen=True)
class Entries:
    """Consecutive entries of one dictionary."""

    type: Type
    first: int
    """The dictionary id of the first entry."""
    count: int
    lengths: NDArray[np.int64]
    """The length of each symbol in bytes; for records and set nodes one number, their width."""
    content: NDArray[Any]
    """The concatenated bytes of all symbols, or fields of all records or nodes."""


def pack(type_: Type, first: int, items: Any) -> Entries:
    """Return entries of a dictionary as arrays."""
    content: NDArray[Any]
    match type_.kind:
        case Kind.SYMBOL:
            parts = [item.encode("utf-8", "surrogatepass") for item in items]
            content = np.frombuffer(b"".join(parts), np.uint8)
            lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        case Kind.RECORD:
            width = len(items[0]) if items else 0
            flat = chain.from_iterable(items)
            content = np.fromiter(flat, np.int64, width * len(items))
            lengths = np.array([width], np.int64)
        case _:
            nodes = np.asarray(items, np.int64)
            content = nodes.reshape(-1)
            lengths = np.array([nodes.shape[1]], np.int64)
    return Entries(type_, first, len(items), lengths, content)


def unpack(entries: Entries) -> Any:
    """Return the entries in the form that a dictionary stores."""
    if entries.type.kind is Kind.SET:
        return entries.content.reshape(entries.count, -1)
    return pieces([entries]).all_made()


class _Symbols:
    """Symbols as bytes (store/kept_items.py)."""

    def __init__(self, parts: Sequence[Entries]) -> None:
        self.content: NDArray[np.uint8] = _joined([part.content for part in parts])
        self.ends = np.cumsum(_joined([part.lengths for part in parts]))

    def made(self, piece: int) -> str:
        """Return a symbol."""
        start = int(self.ends[piece - 1]) if piece else 0
        data = self.content[start : int(self.ends[piece])].tobytes()
        return data.decode("utf-8", "surrogatepass")

    def all_made(self) -> list[str]:
        """Return all symbols."""
        ends = self.ends.tolist()
        data = self.content.tobytes()
        return [
            data[start:end].decode("utf-8", "surrogatepass")
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def bytes_of(self, item: str) -> bytes:
        """Return the bytes of a symbol."""
        return item.encode("utf-8", "surrogatepass")


class _Records:
    """Records as the bytes of the ordinals of their fields."""

    def __init__(self, parts: Sequence[Entries]) -> None:
        count = sum(part.count for part in parts)
        self._rows: NDArray[np.int64] = _joined([part.content for part in parts])
        self._width = int(parts[0].lengths[0])
        self.content = self._rows.view(np.uint8)
        self.ends = np.arange(1, count + 1) * (8 * self._width)

    def made(self, piece: int) -> tuple[int, ...]:
        """Return a record."""
        return tuple(self._rows[piece * self._width : (piece + 1) * self._width].tolist())

    def all_made(self) -> list[tuple[int, ...]]:
        """Return all records."""
        flat, width = self._rows.tolist(), self._width
        if not width:
            return [()] * len(self.ends)
        return list(zip(*(flat[i::width] for i in range(width)), strict=True))

    def bytes_of(self, item: tuple[int, ...]) -> bytes:
        """Return the bytes of a record."""
        return np.array(item, np.int64).tobytes()


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def pieces(parts: Sequence[Entries]) -> _Symbols | _Records:
    """Return all entries of a dictionary, given in order, as pieces of bytes."""
    if parts[0].type.kind is Kind.SYMBOL:
        return _Symbols(parts)
    return _Records(parts)


def restore(codec: Codec, entries: Entries) -> None:
    """Add entries to their dictionary, except those that it has already."""
    is_set = entries.type.kind is Kind.SET
    dictionary = codec.sets(entries.type) if is_set else codec.dictionary(entries.type)
    known = len(dictionary) - entries.first
    assert known >= 0, f"entries of {entries.type} are missing"
    if known < entries.count:
        dictionary.extend(unpack(entries)[known:])


class Watermarks:
    """How many entries of each dictionary have been written."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._written: dict[Type, int] = {}
        self._total = -1  # the size of all dictionaries when there was nothing new

    def new_entries(self) -> list[Entries]:
        """Return the entries that have not been written."""
        found: list[Entries] = []
        total = self._codec.size
        if total == self._total:
            return found
        for type_, dictionary in self._codec.dictionaries():
            first = self._first(type_)
            if len(dictionary) > first:
                items = dictionary.entries(first, len(dictionary))
                found.append(pack(type_, first, items))
        if not found:
            self._total = total
        return found

    def note_written(self, entries: Sequence[Entries]) -> None:
        """Record that entries have been written."""
        for part in entries:
            self._written[part.type] = part.first + part.count

    def note_unwritten(self, entries: Sequence[Entries]) -> None:
        """Record that entries were removed again: their epoch was aborted."""
        for part in entries:
            self._written[part.type] = part.first
        self._total = -1

    def note_all_written(self) -> None:
        """Record that all entries have been written."""
        self._written = {type_: len(found) for type_, found in self._codec.dictionaries()}

    def _first(self, type_: Type) -> int:
        return self._written.get(type_, first_id(type_))


def first_id(type_: Type) -> int:
    """Return the dictionary id of the first entry: except for symbols, 0 is nil or empty."""
    return 0 if type_.kind is Kind.SYMBOL else 1


def parse_type(text: str) -> Type:
    """Return the type with this text."""
    found = PRIMITIVES.get(text)
    if found is not None:
        return found
    if decimal := _DECIMAL.fullmatch(text):
        return decimal_type(int(decimal[1]), int(decimal[2]))
    if inner := _SET.fullmatch(text):
        return set_type(parse_type(inner[1]))
    return record_type(text)
