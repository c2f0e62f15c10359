"""Collecting the output of joins: distinct head rows, sorted, with their multiplicities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.store.run import Words, sort_words

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
    """Return the distinct rows, sorted, and how often each occurred.

    Overwrites `rows`, which is often the buffer that the next join writes to.
    """
    n = rows.shape[1]
    if n == 1:
        return rows.copy(), np.ones(1, np.int64)
    rows = sort_words(rows)
    sums = np.empty(n, np.int64)
    kept = kernel.unique_sums(rows, n, sums, False, sums)
    return rows[:, :kept].copy(), sums[:kept].copy()
