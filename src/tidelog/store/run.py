"""A sorted run: rows as words, and beside each row its mark and its count.

Runs are the unit of storage. Their rows never move; a row dies by its mark (kernel/join.py), and
counts change in place. New rows go to new runs, which are merged into larger ones later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.kernel.join import DEAD, DEAD_NOW

Words: TypeAlias = NDArray[np.int64]
Marks: TypeAlias = NDArray[np.int32]
Counts: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

ALIVE = DEAD_NOW - 1  # the largest mark of a row that is alive
GONE = DEAD_NOW + 1  # came and died in this epoch: no version shows it
KNOWN = DEAD - 1  # every mark but DEAD: rows that this epoch may still change
NO_MARKS: Marks = np.zeros(0, np.int32)
NO_COUNTS: NDArray[np.int32] = np.zeros(0, np.int32)


@dataclass
class Run:
    """Sorted rows. Without marks all of them are alive at level 0; without counts none is kept."""

    words: Words
    marks: Marks | None = None
    counts: Counts | None = None
    dead: int = 0
    """How many rows have the mark DEAD: at a quarter the run is rewritten."""

    def __post_init__(self) -> None:
        # Kernels read by address, and are compiled anew for every other kind of array.
        self.words = _own(self.words, np.int64)
        if self.marks is not None:
            self.marks = _own(self.marks, np.int32)
        self.words_address = self.words.__array_interface__["data"][0]
        self.marks_address = 0 if self.marks is None else self.marks.__array_interface__["data"][0]

    def __len__(self) -> int:
        return int(self.words.shape[1])

    def rewrite(self, words: Words) -> None:
        """Replace the words by those of the same rows in another layout."""
        self.words = words
        self.words_address = words.__array_interface__["data"][0]

    @property
    def nbytes(self) -> int:
        """Return the memory of the run's arrays."""
        return sum(a.nbytes for a in (self.words, self.marks, self.counts) if a is not None)

    def need_marks(self) -> Marks:
        """Return the marks, made on first use."""
        if self.marks is None:
            self.marks = np.zeros(len(self), np.int32)
            self.marks_address = self.marks.__array_interface__["data"][0]
        return self.marks

    def without_dead(self) -> Run:
        """Return the rows that are alive."""
        counts = None if self.counts is None else self.counts[:0].copy()
        return merge(self, Run(self.words[:, :0].copy(), None, counts))

    def locate(self, rows: Words, limit: int) -> NDArray[np.int64]:
        """Return the position of each of the sorted rows, -1 for those absent or above `limit`."""
        rows = np.ascontiguousarray(rows)
        positions = np.empty(rows.shape[1], np.int64)
        marks = NO_MARKS if self.marks is None else self.marks
        kernel.locate(
            self.words, marks, self.marks is not None, limit, rows, rows.shape[1], positions
        )
        return positions

    def _check(self) -> None:
        """Assert that the rows are sorted and unique, and the arrays fit each other."""
        n = len(self)
        assert self.words.flags.c_contiguous, "words are not contiguous"
        assert self.words.dtype == np.int64, "words are not of 64 bits"
        assert self.words_address == self.words.__array_interface__["data"][0], "words have moved"
        if self.marks is not None:
            assert self.marks.flags.c_contiguous, "marks are not contiguous"
            assert self.marks.dtype == np.int32, "marks are not of 32 bits"
            address = self.marks.__array_interface__["data"][0]
            assert self.marks_address == address, "marks have moved"
        else:
            assert self.marks_address == 0, "there is an address and no marks"
        assert self.marks is None or self.marks.shape == (n,), "marks do not fit"
        assert self.counts is None or self.counts.shape == (n,), "counts do not fit"
        order = np.lexsort(self.words[::-1]) if n else np.zeros(0, np.int64)
        assert np.array_equal(order, np.arange(n)), "rows are not sorted"
        if n > 1:
            same = (self.words[:, 1:] == self.words[:, :-1]).all(axis=0)
            assert not same.any(), "rows are not unique"


def _own(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Return the array contiguous, and apart from any larger one that it is a part of."""
    array = np.ascontiguousarray(array, dtype)
    base = array.base
    return array.copy() if isinstance(base, np.ndarray) and base.size > array.size else array


def sorted_order(words: Words) -> NDArray[np.int64]:
    """Return the permutation that sorts the rows."""
    order = np.argsort(words[0])
    if words.shape[0] > 1:
        kernel.settle_ties(words, order)
    return order


def sort_words(words: Words) -> Words:
    """Return the rows sorted. One word is sorted in place."""
    if words.shape[0] == 1:
        words[0].sort()
        return words
    return np.ascontiguousarray(words[:, sorted_order(words)])


def merge(a: Run, b: Run, limit: int = ALIVE) -> Run:
    """Return the rows of both runs with marks up to `limit`. No such row is in both."""
    assert (a.counts is None) == (b.counts is None), "one run is counted and the other is not"
    size = len(a) + len(b)
    words = np.empty((a.words.shape[0], size), np.int64)
    has_marks = a.marks is not None or b.marks is not None
    has_counts = a.counts is not None
    marks = np.empty(size if has_marks else 0, np.int32)
    counts_a = a.counts if a.counts is not None else NO_COUNTS
    counts_b = b.counts if b.counts is not None else NO_COUNTS
    if counts_a.dtype != counts_b.dtype:
        counts_a, counts_b = counts_a.astype(np.int64), counts_b.astype(np.int64)
    counts = np.empty(size if has_counts else 0, counts_a.dtype)
    n = kernel.merge_runs(
        a.words, a.need_marks() if has_marks else NO_MARKS, counts_a,
        b.words, b.need_marks() if has_marks else NO_MARKS, counts_b,
        words, marks, counts, has_marks, has_counts, limit,
    )  # fmt: skip
    if n < size:
        words, marks, counts = words[:, :n].copy(), marks[:n].copy(), counts[:n].copy()
    if has_marks and not marks.any():
        has_marks = False  # all at level 0 again: forget the marks
    return Run(words, marks if has_marks else None, counts if has_counts else None)


def compact_counts(counts: NDArray[np.int64]) -> Counts:
    """Return a copy of the counts, in 32 bits if they fit."""
    if len(counts) == 0 or counts.max() <= np.iinfo(np.int32).max:
        return counts.astype(np.int32)
    return counts.copy()
