"""Collecting the output of joins: distinct head rows, sorted, with their multiplicities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.runtime.workers import Workers
from tidelog.store.run import Words
from tidelog.store.sorting import sort_words

Sums = NDArray[np.int64]

_LARGE = 1 << 15  # rows: several workers add them up
_SAMPLE = 256


class Tally:
    """Distinct rows and the sum of their weights."""

    def __init__(self, words: int, rows: Words | None = None, sums: Sums | None = None) -> None:
        """Take over sorted, distinct rows and their weights, if there are some."""
        self.rows: Words = np.empty((words, 0), np.int64) if rows is None else rows
        self.sums: Sums = np.empty(0, np.int64) if sums is None else sums

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
        own = np.ascontiguousarray(self.rows)
        n = kernel.merge_sums(own, self.sums, len(self), rows, sums, rows.shape[1], into, total)
        self.rows, self.sums = np.ascontiguousarray(into[:, :n]), total[:n].copy()

    def nonzero(self) -> Tally:
        """Return the rows whose weights do not cancel out."""
        keep = self.sums != 0
        if keep.all():
            return self
        out = Tally(self.rows.shape[0])
        out.rows, out.sums = np.ascontiguousarray(self.rows[:, keep]), self.sums[keep]
        return out


def united(tallies: Sequence[Tally], workers: Workers) -> Tally:
    """Return the sum of tallies. Each worker adds up a part of the rows."""
    if len(tallies) < 2:
        return tallies[0]
    tallies = sorted(tallies, key=lambda tally: int(tally.rows[0, 0]))
    words = tallies[0].rows.shape[0]
    if all(a.rows[0, -1] < b.rows[0, 0] for a, b in itertools.pairwise(tallies)):
        return _in_a_row(tallies, workers)
    total = sum(map(len, tallies))
    count = workers.count if total >= _LARGE else 1
    # Keys between which there are about as many rows of all tallies together.
    step = 1 + total // _SAMPLE
    sample = np.sort(np.concatenate([tally.rows[0, ::step] for tally in tallies]))
    keys = [sample[len(sample) * i // count] for i in range(1, count)]
    cuts = [
        [0, *(int(np.searchsorted(tally.rows[0], key)) for key in keys), len(tally)]
        for tally in tallies
    ]

    def add_up(part: int, is_stopped: Callable[[], bool]) -> Tally:
        waiting = []
        for tally, cut in zip(tallies, cuts, strict=True):
            own = slice(cut[part], cut[part + 1])
            waiting.append(Tally(words, tally.rows[:, own], tally.sums[own]))
        while len(waiting) > 1:
            waiting.sort(key=len, reverse=True)
            last = waiting.pop()
            waiting[-1].merge(np.ascontiguousarray(last.rows), last.sums)
        return waiting[0]

    parts = workers.map(add_up, range(count))
    return parts[0] if count == 1 else _in_a_row(parts, workers)


def _in_a_row(tallies: Sequence[Tally], workers: Workers) -> Tally:
    """Return the sum of tallies whose rows come one after the other."""
    words = len(tallies[0].rows)
    ends = np.cumsum([len(tally) for tally in tallies]).tolist()
    rows, sums = np.empty((words, ends[-1]), np.int64), np.empty(ends[-1], np.int64)

    def put(number: int, is_stopped: Callable[[], bool]) -> None:
        own = slice(ends[number] - len(tallies[number]), ends[number])
        rows[:, own], sums[own] = tallies[number].rows, tallies[number].sums

    if ends[-1] >= _LARGE:
        workers.map(put, range(len(tallies)))
    else:
        for number in range(len(tallies)):
            put(number, lambda: False)
    return Tally(words, rows, sums)


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
