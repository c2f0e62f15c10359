"""Rows that wait to be settled, each with its tentative level and count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import repair as kernel
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words

Levels = NDArray[np.int64]

_FIRST_SIZE = 256


class SettleQueue:
    """The waiting rows of one relation: a hash table (kernel/repair.py)."""

    def __init__(self, relation: StoredRelation) -> None:
        self._relation = relation
        self.used = 0
        self._make(_FIRST_SIZE)
        self._next: tuple[int, int] = (-1, 0)

    def _make(self, size: int) -> None:
        self.keys = np.empty((self._relation.words, size), np.int64)
        self.waiting = np.zeros((2, size), np.int64)
        self.waiting[kernel.LEVEL] = -1

    def offer(self, rows: Words, fires: Levels, level: int) -> None:
        """Apply instantiations to their heads, while the bucket of `level` is processed."""
        n, start = rows.shape[1], 0
        relation = self._relation
        primary = relation.primary
        words = relation.words
        tail = -1 if primary.tail is None else len(primary.runs)
        undo = relation.counts_undo()
        columns = undo.room_for(n)
        while True:
            start, self.used, undo.used = kernel.offer(
                primary.descriptors(), tail, words, rows, fires, n, start, level,
                self.keys, self.waiting, self.used, columns, undo.used,
            )  # fmt: skip
            if start == n:
                return
            if self.used < self.waiting.shape[1] // 2:
                primary.widen_counts()
                continue
            self.enlarge()

    def enlarge(self) -> None:
        """Enlarge the hash table, which is never more than half full."""
        keys, waiting = self.keys, self.waiting
        self._make(4 * waiting.shape[1])
        kernel.rehash(keys, waiting, self._relation.words, self.keys, self.waiting)

    def by_level(self) -> tuple[Words, Levels]:
        """Return the rows that wait above level 0, by level, and their levels."""
        at = np.flatnonzero(self.waiting[kernel.LEVEL] > 0)
        levels = self.waiting[kernel.LEVEL, at]
        order = np.argsort(levels, kind="stable")
        return np.ascontiguousarray(self.keys[:, at[order]]), levels[order]

    def level_above(self, level: int) -> int:
        """Return the lowest level above `level` that rows wait for, -1 for none."""
        lowest, n = kernel.level_above(self.waiting, level) if self.used else (-1, 0)
        self._next = (lowest, n)
        return int(lowest)

    def take(self, level: int) -> tuple[Words, Levels]:
        """Return the rows that wait for `level`, unsorted, with their counts."""
        n = self._next[1] if self._next[0] == level else 0
        rows = np.empty((self._relation.words, n), np.int64)
        counts = np.empty(n, np.int64)
        if n:
            kernel.take(self.keys, self.waiting, self._relation.words, level, rows, counts)
        return rows, counts
