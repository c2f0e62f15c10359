"""A sorted run: rows as words, and beside each row its mark and its count.

Runs are the unit of storage. Their rows never move; a row dies by its mark (kernel/marks.py), and
counts change in place. New rows go to new runs, which are merged into larger ones later
(store/merging.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import descriptors as d
from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import DEAD
from tidelog.store.run_tree import RunTree

Words: TypeAlias = NDArray[np.int64]
Marks: TypeAlias = NDArray[np.int32]
Counts: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

_LARGE = 4096  # rows: smaller runs need no directory
_ROWS_PER_ENTRY = 32
_MOST_NARROW = (1 << 31) - 1
NO_MARKS: Marks = np.zeros(0, np.int32)
NO_COUNTS: NDArray[np.int32] = np.zeros(0, np.int32)


class Run:
    """Sorted rows. Without marks all of them are alive at level 0; counts are optional."""

    __slots__ = (
        "_counts", "_directory", "_marks", "_shift", "dead", "descriptor", "saved", "size",
        "source", "trees", "words",
    )  # fmt: skip

    def __init__(
        self, words: Words, marks: Marks | None = None, counts: Counts | None = None, dead: int = 0
    ) -> None:
        # Kernels read by address, and need a compilation for each kind of array.
        self.words: Words = _own(words, np.int64)
        self.size: int = self.words.shape[1]
        """How many rows there are, dead ones included; faster than `len`."""
        self._directory: NDArray[np.int32] | None = None
        self._shift = 0
        self.descriptor: NDArray[np.int64] | None = None
        """What `describe` has returned; None when it is out of date."""
        self._marks = None if marks is None else _own(marks, np.int32)
        self._counts = counts
        self.dead = dead
        """How many rows have the mark DEAD: at a quarter the run is rewritten."""
        self.trees: dict[int, RunTree] = {}
        """The scan trees that have been asked for, by column."""
        self.saved: object | None = None
        """Where a file holds the words, if one does: they need not be written again."""
        self.source: Any = None  # of one that is not read yet (store/lazy_run.py)

    @property
    def marks(self) -> Marks | None:
        """The marks, or None when all rows are alive at level 0."""
        return self._marks

    @marks.setter
    def marks(self, marks: Marks | None) -> None:
        self._marks = None if marks is None else _own(marks, np.int32)
        self.descriptor = None

    @property
    def marks_address(self) -> int:
        """Where the marks are; 0 if there are none."""
        return 0 if self._marks is None else address(self._marks)

    @property
    def counts(self) -> Counts | None:
        """The counts, or None if the relation has none."""
        return self._counts

    @counts.setter
    def counts(self, counts: Counts | None) -> None:
        self._counts = counts
        self.descriptor = None

    def __len__(self) -> int:
        return self.size

    def describe(self) -> NDArray[np.int64]:
        """Return the descriptor of the run (kernel/descriptors.py)."""
        found = self.descriptor
        if found is None:
            if self.size >= _LARGE:
                self._need_directory()
            words, marks, counts, directory = self.words, self._marks, self._counts, self._directory
            found = self.descriptor = np.empty(d.WORDS + words.shape[0], np.int64)
            d.describe(
                words, NO_MARKS if marks is None else marks,
                NO_COUNTS if counts is None else counts,
                d.NO_DIRECTORY if directory is None else directory, self._shift, found,
            )  # fmt: skip
        return found

    def _need_directory(self) -> None:
        """Make the directory of a large run, if it has none (kernel/descriptors.py)."""
        n = self.size
        if self._directory is not None or n < _LARGE or n >= 1 << 31:
            return
        low, high = int(self.words[0, 0]), int(self.words[0, -1])
        if low < 0:
            return  # a raw word: its highest bits say little
        self._shift = max(0, high.bit_length() - (n // _ROWS_PER_ENTRY).bit_length())
        self._directory = np.empty((high >> self._shift) + 3, np.int32)
        d.fill_directory(self.words, n, self._shift, self._directory)

    def descriptors(self) -> NDArray[np.int64]:
        """Return the descriptors of an order that has only this run."""
        return self.describe()[None, :]

    def rewrite(self, words: Words) -> None:
        """Replace the words by those of the same rows in another layout."""
        self.words = words
        self._directory, self._shift = None, 0
        self.descriptor = None
        self.saved = None
        self.trees.clear()  # they know where their columns were

    def tree(self, column: int, field: NDArray[np.int64], bias: int) -> RunTree:
        """Return the scan tree of a column, which is at `field` in a row; made on first use."""
        found = self.trees.get(column)
        if found is None:
            found = self.trees[column] = RunTree(self, field, bias)
        return found

    @property
    def nbytes(self) -> int:
        """Return the memory of the run's arrays."""
        trees = (tree.nodes for tree in self.trees.values())
        arrays = (self.words, self.marks, self.counts, self._directory, *trees)
        return sum(a.nbytes for a in arrays if a is not None)

    def need_marks(self) -> Marks:
        """Return the marks, made on first use."""
        marks = self._marks
        if marks is None:
            marks = self._marks = np.zeros(self.size, np.int32)
            self.descriptor = None
        return marks

    def locate(self, rows: Words, limit: int) -> NDArray[np.int64]:
        """Return the position of each of the sorted rows, -1 for those absent or above `limit`."""
        rows = np.ascontiguousarray(rows)
        positions = np.empty(rows.shape[1], np.int64)
        marks = NO_MARKS if self.marks is None else self.marks
        kernel.locate(
            self.words, marks, self.marks is not None, limit, rows, rows.shape[1], positions
        )
        return positions

    def check(self) -> None:
        """Assert that the rows are sorted and unique, and the arrays fit each other."""
        n = len(self)
        assert self.words.shape[1] == n, "words do not fit"
        assert self.words.flags.c_contiguous, "words are not contiguous"
        assert self.words.dtype == np.int64, "words are not of 64 bits"
        if self.marks is not None:
            assert self.marks.flags.c_contiguous, "marks are not contiguous"
            assert self.marks.dtype == np.int32, "marks are not of 32 bits"
        assert self.marks is None or self.marks.shape == (n,), "marks do not fit"
        assert self.counts is None or self.counts.shape == (n,), "counts do not fit"
        if self.descriptor is not None:
            described, self.descriptor = self.descriptor, None
            assert np.array_equal(described, self.describe()), "the arrays have moved"
            self.descriptor = described
        dead = 0 if self.marks is None else int((self.marks == DEAD).sum())
        assert dead == self.dead, f"{dead} rows are dead, not {self.dead}"
        order = np.lexsort(self.words[::-1]) if n else np.zeros(0, np.int64)
        assert np.array_equal(order, np.arange(n)), "rows are not sorted"
        if n > 1:
            same = (self.words[:, 1:] == self.words[:, :-1]).all(axis=0)
            assert not same.any(), "rows are not unique"


def descriptors_of(runs: Sequence[Run]) -> NDArray[np.int64]:
    """Return the descriptors of runs of one order; those without rows are left out."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return np.empty((0, d.WORDS), np.int64)
    if len(runs) == 1:
        return runs[0].descriptors()
    return np.concatenate([run.descriptors() for run in runs])


def address(array: NDArray[Any]) -> int:
    """Return the address of an array."""
    found: int = d.address_of(array)  # NumPy's own functions take six times as long
    return found


def _own(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Return the array contiguous, and not as a part of a larger one."""
    base = array.base
    if base is None and array.dtype == dtype and array.flags.c_contiguous:
        return array
    array = np.ascontiguousarray(array, dtype)
    base = array.base
    return array.copy() if isinstance(base, np.ndarray) and base.size > array.size else array


def largest(numbers: NDArray[Any]) -> int:
    """Return the largest of the numbers, at least 0. One number, the usual case, is fast."""
    if numbers.shape[0] == 1:
        return max(0, int(numbers[0]))
    return int(numbers.max(initial=0))


def compact_counts(counts: Counts) -> Counts:
    """Return a copy of the counts, in 32 bits if they fit."""
    if largest(counts) <= _MOST_NARROW:
        return counts.astype(np.int32)
    return counts.copy()
