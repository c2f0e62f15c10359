"""The dictionary of symbols, which can be numbered by columns.

A column of texts is looked up in a hash table of bytes by one kernel call, and new texts are added
there: no Python object is made for a symbol before somebody asks for it. The table has the first
symbols of the dictionary. Those that Python has added since are behind them, until the next column
comes: then the table takes them over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import dictionary as kernel
from tidelog.store.dictionary import Dictionary

Texts = NDArray[np.uint8]
Places = NDArray[np.int64]
_AT_ONCE = 1 << 16
_LEAST = 256  # texts for which the table is used


class SymbolTable:
    """Symbols as bytes, with a hash table: the `Pieces` of store/kept_items.py, and they grow."""

    def __init__(self) -> None:
        self.content: Texts = np.empty(1 << 16, np.uint8)
        self._starts = np.zeros(1 << 10, np.int64)
        self.slots = np.zeros(1 << 10, np.int32)
        self.size = 0

    @property
    def ends(self) -> NDArray[np.int64]:
        """The end of each symbol in `content`."""
        return self._starts[1 : self.size + 1]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The start of each symbol, and the end of the last one."""
        return self._starts[: self.size + 1]

    def made(self, piece: int) -> str:
        """Return a symbol."""
        start, end = self._starts[piece : piece + 2].tolist()
        return self.content[start:end].tobytes().decode("utf-8", "surrogatepass")

    def all_made(self) -> list[str]:
        """Return all symbols."""
        starts = self.starts.tolist()
        data = self.content[: starts[-1]].tobytes()
        return [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(starts)]

    def bytes_of(self, item: str) -> bytes:
        """Return the bytes of a symbol."""
        return item.encode("utf-8", "surrogatepass")

    def number(
        self, texts: Texts, starts: Places, stops: Places, hashes: Places, *, adds: bool
    ) -> Places:
        """Return the number of each text, -1 for one that is not there; or add these."""
        numbers = np.empty(len(starts), np.int64)
        for first in range(0, len(numbers), _AT_ONCE):
            own = slice(first, min(first + _AT_ONCE, len(numbers)))
            if adds:
                self._make_room(own.stop - first, int((stops[own] - starts[own]).sum()))
            self.size = kernel.number_texts(
                texts, starts[own], stops[own], hashes[own], self.content, self._starts[1:],
                self.slots, self.size, adds, numbers[own],
            )  # fmt: skip
        return numbers

    def _make_room(self, texts: int, size: int) -> None:
        used = int(self._starts[self.size])
        if used + size > len(self.content):
            larger = np.empty(max(2 * len(self.content), used + size), np.uint8)
            larger[:used] = self.content[:used]
            self.content = larger
        wanted = self.size + texts
        if wanted >= len(self._starts):
            starts = np.zeros(2 * wanted, np.int64)
            starts[: self.size + 1] = self.starts
            self._starts = starts
        if 2 * wanted > len(self.slots):
            self.slots = np.zeros(1 << (4 * wanted - 1).bit_length(), np.int32)
            kernel.enter_pieces(self.content, self.ends, self.slots)


class Symbols(Dictionary):
    """The dictionary of symbols."""

    def __init__(self) -> None:
        super().__init__()
        self._table: SymbolTable | None = None

    @property
    def table(self) -> SymbolTable | None:
        """The first symbols as bytes, if there are such."""
        return self._table

    def numbers(
        self, texts: Texts, starts: Places, stops: Places, hashes: Places | None = None
    ) -> Places:
        """Return the id of each text; -1 for one that the caller has to add with `number`.

        Text i is texts[starts[i] : stops[i]], in UTF-8.
        """
        count = len(starts)
        if self._table is None:
            if count < _LEAST or self.is_in_files:
                return np.full(count, -1, np.int64)
            self._table = SymbolTable()
        table = self._table
        if hashes is None:
            hashes = _hashes(texts, starts, stops)
        if count < _LEAST:
            return table.number(texts, starts, stops, hashes, adds=False)
        before = table.size
        if before < len(self):  # Python has added some
            added = _texts(self.items[before:])
            table.number(*added, _hashes(*added), adds=True)
        assert table.size == len(self), "a symbol occurs twice"
        found = table.number(texts, starts, stops, hashes, adds=True)
        if table.size > before:
            self.keep_pieces(table, table.size, table.slots)
        return found


def _hashes(texts: Texts, starts: Places, stops: Places) -> Places:
    hashes = np.empty(len(starts), np.int64)
    kernel.hash_texts(texts, starts, stops, hashes)
    return hashes


def _texts(items: Sequence[str]) -> tuple[Texts, Places, Places]:
    """Return the bytes of symbols, and where each of them starts and ends."""
    parts = [item.encode("utf-8", "surrogatepass") for item in items]
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=starts[1:])
    return np.frombuffer(b"".join(parts), np.uint8), starts[:-1], starts[1:]
