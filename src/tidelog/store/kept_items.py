"""Dictionary entries that are in files or in columns, and are decoded when they are first needed.

A database that is opened for a few rows needs a few symbols, and making a million of them takes a
second. So an entry is made from its bytes when it is first asked for; its dictionary id is found in
a hash table of these bytes (kernel/dictionary.py). A reader of many entries gets all of them made
at once, which is faster than one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import dictionary as kernel

_MANY = 8  # all entries are made when one in this many was asked for


class Pieces(Protocol):
    """Entries as bytes, one after the other."""

    @property
    def content(self) -> NDArray[np.uint8]:
        """The bytes of all entries."""

    @property
    def ends(self) -> NDArray[np.int64]:
        """The end of each entry in `content`."""

    def made(self, piece: int) -> Any:
        """Return an entry."""

    def all_made(self) -> list[Any]:
        """Return all entries."""

    def bytes_of(self, item: Any) -> bytes:
        """Return the bytes that an item would have as an entry."""


class Items(list[Any]):
    """The entries of a dictionary, by id. Others hold references to it, so it is never replaced.

    As long as nothing is in files, it is a list like any other, and as fast.
    """

    def keep(self, size: int, read: Callable[[], Pieces]) -> KeptItems:
        """Make room for the next entries, which are in files."""
        self.__class__ = KeptItems
        assert isinstance(self, KeptItems)
        self._begin(size, read)
        return self

    def keep_pieces(self, pieces: Pieces, size: int, slots: NDArray[np.int32]) -> KeptItems:
        """Let `pieces` have the first entries, with a hash table; some of them may be made."""
        if type(self) is Items:
            self.__class__ = KeptItems
        assert isinstance(self, KeptItems)
        self.hold(pieces, size, slots)
        return self


class KeptItems(Items):
    """Entries, some of which are not made. References to its methods may outlive that state."""

    _first: int
    _stop: int
    _asked: int
    _read: Callable[[], Pieces] | None
    _held: Pieces | None
    _slots: NDArray[np.int32] | None

    def hold(self, pieces: Pieces, size: int, slots: NDArray[np.int32]) -> None:
        """Take the first entries from pieces that are in memory, unless they are made already."""
        self.extend([None] * (size - len(self)))
        self._first, self._stop = 0, size
        self._read, self._held, self._slots = (lambda: pieces), pieces, slots
        self._asked = 0

    def _begin(self, size: int, read: Callable[[], Pieces]) -> None:
        self._first = len(self)
        self._stop = self._first + size
        self.extend([None] * size)
        self._read = read
        self._held = None
        self._slots = None
        self._asked = 0

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            if (number.start or 0) < self._stop:
                KeptItems.make_all(self)
            return list.__getitem__(self, number)
        item = list.__getitem__(self, number)
        if item is None and number >= self._first and self._read is not None:
            # Another thread may make all entries meanwhile: then it is a plain list.
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
        """Return the id of an entry that is in files; None if there is no such entry.

        Not to be called when all are made: then the dictionary knows their ids.
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
        """Count a request for an entry; make all entries after many requests."""
        self._asked += 1
        if self._asked * _MANY > self._stop - self._first:
            KeptItems.make_all(self)

    def _pieces(self) -> Pieces | None:
        """Return the entries as bytes; None when all are made."""
        held, read = self._held, self._read
        if held is None and read is not None:
            held = self._held = read()
        return held
