"""The entries of a dictionary that come from files: made when somebody wants them.

A database that is opened for a few rows wants a few symbols, and making a million of them takes a
second. So the list of entries begins as a list of nothing, and an entry is made from its bytes
when it is first asked for; its number is found in a hash table of these bytes (kernel/names.py).
Who asks for many gets all of them at once: that is quicker than one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import names as kernel

_MANY = 8  # when one in so many was asked for, all are made


class Pieces(Protocol):
    """Entries as bytes, one after the other."""

    content: NDArray[np.uint8]
    ends: NDArray[np.int64]

    def made(self, piece: int) -> Any:
        """Return an entry."""

    def all_made(self) -> list[Any]:
        """Return all entries."""

    def bytes_of(self, item: Any) -> bytes:
        """Return the bytes of what may be an entry."""


class Items(list[Any]):
    """The entries of a dictionary, by number. Many have a hold of this list, so it stays the same.

    As long as nothing is in files it is a list like any other, and as quick.
    """

    def keep(self, size: int, read: Callable[[], Pieces]) -> KeptItems:
        """Have room for the next entries, which are in files."""
        self.__class__ = KeptItems
        assert isinstance(self, KeptItems)
        self._begin(size, read)
        return self


class KeptItems(Items):
    """Entries of which some are in files. Whoever holds one of its methods may hold it for long."""

    def _begin(self, size: int, read: Callable[[], Pieces]) -> None:
        self._first = len(self)
        self._stop = self._first + size
        self.extend([None] * size)
        self._read: Callable[[], Pieces] | None = read
        self._held: Pieces | None = None
        self._slots: NDArray[np.int32] | None = None
        self._asked = 0

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            if (number.start or 0) < self._stop:
                KeptItems.make_all(self)
            return list.__getitem__(self, number)
        item = list.__getitem__(self, number)
        if item is None and number >= self._first and self._read is not None:
            # Another thread may make all meanwhile: then it is a list like any other.
            KeptItems.ask(self)
            pieces = KeptItems._pieces(self)
            item = list.__getitem__(self, number)
            if item is None and pieces is not None:
                item = pieces.made(number - self._first)
                self[number] = item
        return item

    def __iter__(self) -> Iterator[Any]:
        self.make_all()
        return list.__iter__(self)

    def number_of(self, item: Any) -> int | None:
        """Return the number of an entry that is in files; None if there is no such entry.

        Not when all are made: then whoever holds the list knows their numbers.
        """
        pieces = self._pieces()
        assert pieces is not None, "all are made"
        if self._slots is None:
            n = len(pieces.ends)
            self._slots = np.zeros(1 << (2 * n).bit_length(), np.int32)
            kernel.enter_pieces(pieces.content, pieces.ends, self._slots)
        wanted = np.frombuffer(pieces.bytes_of(item), np.uint8)
        found = kernel.find_piece(pieces.content, pieces.ends, self._slots, wanted)
        return None if found < 0 else int(found) + self._first

    def make_all(self) -> None:
        """Make all entries that are in files."""
        pieces = KeptItems._pieces(self)
        if pieces is not None:
            self[self._first : self._stop] = pieces.all_made()
            self._read = self._held = self._slots = None
            self.__class__ = Items  # type: ignore[assignment]

    def ask(self) -> None:
        """Count one that asks for an entry, and make all if these are many."""
        self._asked += 1
        if self._asked * _MANY > self._stop - self._first:
            KeptItems.make_all(self)

    def _pieces(self) -> Pieces | None:
        """Return the entries as bytes; None when all are made."""
        held, read = self._held, self._read
        if held is None and read is not None:
            held = self._held = read()
        return held
