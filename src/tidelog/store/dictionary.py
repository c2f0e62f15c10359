"""Dictionaries: ids of symbols and records, in the order in which they were first seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.store.kept_items import Items, KeptItems, Pieces

_TABLE = 4  # a table has at most this many entries for each id that is looked up


class Dictionary:
    """Gives ids to symbols or records, counting from `first`, and returns them by id."""

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._number_of: dict[Any, int] = {}
        self.items = Items([None] * first)
        self._kept: KeptItems | None = None  # the same list, while some entries may be in files
        self._kept_numbers = range(0)

    def number(self, item: Any) -> int:
        """Return the id of `item`; a new one if it has none."""
        number = self._number_of.get(item)
        if number is None and self._kept is not None:
            number = self._kept_number(item, self._kept)
        if number is None:
            number = self._number_of[item] = len(self.items)
            self.items.append(item)
        return number

    def find(self, item: Any) -> int | None:
        """Return the id of `item`, or None if it has none."""
        number = self._number_of.get(item)
        if number is None and self._kept is not None:
            number = self._kept_number(item, self._kept)
        return number

    def _kept_number(self, item: Any, kept: KeptItems) -> int | None:
        if type(kept) is KeptItems:
            kept.ask()
        if type(kept) is not KeptItems:  # all are made
            numbers = self._kept_numbers
            entries = kept[numbers.start : numbers.stop]
            self._number_of.update(zip(entries, numbers, strict=True))
            self._kept = None
            return self._number_of.get(item)
        number = kept.number_of(item)
        if number is not None:
            self._number_of[item] = number
        return number

    def parts_of(self, number: int) -> Sequence[int]:
        """Return the ordinals of the fields of a record."""
        parts: tuple[int, ...] = self.items[number]
        return parts

    def entries(self, first: int, stop: int) -> list[Any]:
        """Return the entries with these ids."""
        return self.items[first:stop]

    def extend(self, items: Sequence[Any]) -> None:
        """Add entries that are not there yet, with the next ids."""
        start = len(self.items)
        self.items.extend(items)
        self._number_of.update(zip(items, range(start, len(self.items)), strict=True))
        known = len(self._number_of) == len(self.items) - self._first
        assert known or self._kept is not None, "an entry occurs twice"

    def keep(self, size: int, read: Callable[[], Pieces]) -> None:
        """Add the first entries from files, which are read when they are first needed."""
        assert len(self.items) == self._first, "the dictionary is not empty"
        self._kept_numbers = range(self._first, self._first + size)
        self._kept = self.items.keep(size, read)

    def keep_pieces(self, pieces: Pieces, size: int, slots: NDArray[np.int32]) -> None:
        """Let `pieces` have the first `size` entries; new ones among them are made when needed.

        `slots` is a hash table of them (kernel/dictionary.py).
        """
        assert self._first == 0 and size >= len(self.items)
        self._kept = self.items.keep_pieces(pieces, size, slots)
        self._kept_numbers = range(size)

    @property
    def is_in_files(self) -> bool:
        """Whether some entries are in files, and not read yet."""
        return self._kept is not None

    def __len__(self) -> int:
        return len(self.items)


def distinct_ids(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct ids, and for each id its place among them.

    Dictionary ids are small, so mostly a table of all ids replaces sorting.
    """
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if high - low > _TABLE * len(ids):
        return np.unique(ids, return_inverse=True)
    ids = ids - low
    is_used = np.zeros(high - low + 1, np.bool_)
    is_used[ids] = True
    used = np.flatnonzero(is_used)
    places = np.empty(len(is_used), np.int64)
    places[used] = np.arange(len(used))
    return used + low, places[ids]
