"""Collecting what joins find: head rows, sorted, each once, with how often it was found."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.store.run import Words, sort_words, sorted_order

Sums = NDArray[np.int64]


class Tally:
    """Distinct rows and the sum of their weights."""

    def __init__(self, words: int) -> None:
        self.rows: Words = np.empty((words, 0), np.int64)
        self.sums: Sums = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def add(self, rows: Words, weight: int) -> None:
        """Add rows in any order, each with the same weight. `rows` may be overwritten."""
        rows, sums = distinct(rows)
        self.merge(rows, sums * weight if weight != 1 else sums)

    def merge(self, rows: Words, sums: Sums) -> None:
        """Add sorted, distinct rows with their weights."""
        if rows.shape[1] == 0:
            return
        if len(self) == 0:
            self.rows, self.sums = rows, sums
            return
        into = np.empty((rows.shape[0], len(self) + rows.shape[1]), np.int64)
        total = np.empty(into.shape[1], np.int64)
        n = kernel.merge_sums(
            self.rows, self.sums, len(self), rows, sums, rows.shape[1], into, total
        )
        self.rows, self.sums = np.ascontiguousarray(into[:, :n]), total[:n].copy()

    def nonzero(self) -> Tally:
        """Return the rows whose weights do not cancel out."""
        keep = self.sums != 0
        if keep.all():
            return self
        out = Tally(self.rows.shape[0])
        out.rows, out.sums = np.ascontiguousarray(self.rows[:, keep]), self.sums[keep]
        return out


def distinct(rows: Words) -> tuple[Words, Sums]:
    """Return the rows sorted and each once, and how often each was there.

    `rows` is used up: it is often the buffer that the next join writes to.
    """
    n = rows.shape[1]
    if n == 1:
        return rows.copy(), np.ones(1, np.int64)
    rows = sort_words(rows)
    sums = np.empty(n, np.int64)
    kept = kernel.unique_sums(rows, n, sums, False, sums)
    return rows[:, :kept].copy(), sums[:kept].copy()


def earliest(rows: Words, fires: NDArray[np.int64]) -> tuple[Words, NDArray[np.int64], Sums]:
    """Return each row once, the smallest of its values, and how often it had that value."""
    n = rows.shape[1]
    if n == 0:
        return rows, fires, fires
    stacked = np.ascontiguousarray(np.vstack([rows, fires[None, :]]))
    order = sorted_order(stacked)
    stacked = np.ascontiguousarray(stacked[:, order])
    sums = np.empty(n, np.int64)
    kept = kernel.unique_sums(stacked, n, sums, False, sums)
    stacked, sums = stacked[:, :kept], sums[:kept]
    first = np.ones(kept, np.bool_)
    if kept > 1:
        first[1:] = (stacked[:-1, 1:] != stacked[:-1, :-1]).any(axis=0)
    return np.ascontiguousarray(stacked[:-1, first]), stacked[-1, first].copy(), sums[first].copy()
