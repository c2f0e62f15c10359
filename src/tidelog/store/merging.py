"""Merging two runs into one, in as many steps as it takes.

A merge of large runs would make one commit slow, so each commit copies a few rows. Both runs stay
in use meanwhile. Changes of rows that have been copied already are noted, and applied at the end.
Dead rows are not copied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import ALIVE, DEAD
from tidelog.store.run import (
    NO_COUNTS,
    NO_MARKS,
    Counts,
    Marks,
    Run,
    Words,
)

_EVERYTHING = (1 << 63) - 1


class Merge:
    """The merge of two runs, under way."""

    def __init__(self, a: Run, b: Run, limit: int = ALIVE) -> None:
        assert (a.counts is None) == (b.counts is None), "one run is counted and the other is not"
        self.a, self.b = a, b
        self._limit = limit
        size = len(a) + len(b)
        self._marked = a.marks is not None or b.marks is not None
        self._counted = a.counts is not None
        wide = any(r.counts is not None and r.counts.dtype == np.int64 for r in (a, b))
        self._words: Words = np.empty((a.words.shape[0], size), np.int64)
        self._marks: Marks = np.empty(size if self._marked else 0, np.int32)
        counted = size if self._counted else 0
        self._counts: Counts = np.empty(counted, np.int64) if wide else np.empty(counted, np.int32)
        self._no_marks = NO_MARKS  # for the run that has none
        self._progress = np.zeros(4, np.int64)
        self._touched: list[tuple[Run, NDArray[np.int64]]] = []

    def note(self, run: Run, positions: NDArray[np.int64]) -> None:
        """Note that marks or counts of rows have changed since the merge began."""
        self._touched.append((run, positions))

    def advance(self, rows: int) -> Run | None:
        """Copy about this many rows; return the merged run when all are copied."""
        size = len(self.a) + len(self.b)
        self._copy(min(size, self._seen + rows))
        return self._finish() if self._seen == size else None

    @property
    def _seen(self) -> int:
        return int(self._progress[kernel.FROM_A] + self._progress[kernel.FROM_B])

    def _copy(self, stop: int) -> None:
        a, b = self.a, self.b
        if not self._marked and (a.marks is not None or b.marks is not None):
            # Rows have died, or got levels, since: those copied so far were alive at level 0.
            self._marked = True
            self._marks = np.zeros(self._words.shape[1], np.int32)
        kernel.merge_runs(
            a.words, self._own_marks(a), self._own_counts(a),
            b.words, self._own_marks(b), self._own_counts(b),
            self._words, self._marks, self._counts, self._marked, self._counted, self._limit,
            self._progress, stop,
        )  # fmt: skip

    def _own_marks(self, run: Run) -> Marks:
        if not self._marked:
            return NO_MARKS
        if run.marks is not None:
            return run.marks
        if len(self._no_marks) < len(run):
            self._no_marks = np.zeros(len(run), np.int32)
        return self._no_marks[: len(run)]

    def _own_counts(self, run: Run) -> Counts:
        if run.counts is None:
            return NO_COUNTS
        if run.counts.dtype == np.int64 and self._counts.dtype == np.int32:
            self._counts = self._counts.astype(np.int64)
        return run.counts if run.counts.dtype == self._counts.dtype else run.counts.astype(np.int64)

    def _finish(self) -> Run:
        n = int(self._progress[kernel.WRITTEN])
        words, marks, counts = self._words, self._marks, self._counts
        if n < words.shape[1]:
            words, marks, counts = words[:, :n].copy(), marks[:n].copy(), counts[:n].copy()
        # All at level 0 again: forget the marks.
        marked = self._marked and (self._progress[kernel.ALL_MARKS] != 0 or bool(self._touched))
        run = Run(words, marks if marked else None, counts if self._counted else None)
        for source, positions in self._touched:
            self._catch_up(run, source, positions)
        run.dead = 0 if run.marks is None else int((run.marks == DEAD).sum())
        return run

    def _catch_up(self, run: Run, source: Run, positions: NDArray[np.int64]) -> None:
        positions = np.sort(positions)
        at = run.locate(np.ascontiguousarray(source.words[:, positions]), DEAD)
        # Rows that died before they were copied are not in the merged run.
        positions, at = positions[at >= 0], at[at >= 0]
        if source.marks is not None:
            run.need_marks()[at] = source.marks[positions]
        if source.counts is not None:
            assert run.counts is not None
            if source.counts.dtype == np.int64 and run.counts.dtype == np.int32:
                run.counts = run.counts.astype(np.int64)
            run.counts[at] = source.counts[positions]


def merge(a: Run, b: Run, limit: int = ALIVE) -> Run:
    """Return the rows of both runs with marks up to `limit`. No such row is in both."""
    merged = Merge(a, b, limit).advance(_EVERYTHING)
    assert merged is not None
    return merged


def without_dead(run: Run) -> Run:
    """Return the rows that are alive."""
    return merge(run, nothing_like(run))


def nothing_like(run: Run) -> Run:
    """Return a run without rows that can be merged with `run`."""
    counts = None if run.counts is None else run.counts[:0].copy()
    return Run(run.words[:, :0].copy(), None, counts)
