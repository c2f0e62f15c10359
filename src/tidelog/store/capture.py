"""A run as it was, while epochs go on changing it.

A snapshot takes many commits to write, and has to be of one moment. Rows of a run never move, so
its words can be read at any time. Marks and counts are overwritten in place: what an epoch has
overwritten is noted here when it commits, and put back in the copy that is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.store.lazy_run import LazyRun
from tidelog.store.run import Counts, Marks, Run, Words


class Capture:
    """The rows, marks and counts of a run at one moment. The arrays are those in use."""

    saved: Any = None
    """Where files hold all of it already."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.words: Words = run.words
        self.dead = run.dead
        self.marks: Past | None = None if run.marks is None else Past(run.marks)
        self.counts: Past | None = None if run.counts is None else Past(run.counts)

    def note_marks(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Remember marks that an epoch has overwritten, in the order in which it did."""
        if self.marks is not None:
            self.marks.note(positions, old)

    def note_counts(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Remember counts that an epoch has overwritten, in the order in which it did."""
        if self.counts is not None:
            self.counts.note(positions, old)


class SavedCapture(Capture):
    """A run that has not been read yet: whatever epochs do to it, files hold it as it was."""

    def __init__(self, run: LazyRun) -> None:
        self.run = run
        self.saved = run.source.saved
        self.marks = self.counts = None


class Past:
    """The numbers of an array at one moment."""

    def __init__(self, array: Marks | Counts) -> None:
        self._array = array
        self.dtype: np.dtype[Any] = array.dtype
        self._done = 0  # numbers before this have been read: what is noted for them is no use
        self._notes: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def note(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Remember numbers that an epoch has overwritten, in the order in which it did."""
        late = positions >= self._done
        if late.any():
            self._notes.append((positions[late], old[late]))

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Return the numbers of some rows as they were. Parts are asked for in order, once."""
        part = self._array[start:stop].copy()
        self._done = stop
        left = []
        for positions, old in reversed(self._notes):
            here = positions < stop
            # The oldest is written last, and stays.
            part[positions[here][::-1] - start] = old[here][::-1]
            if not here.all():
                left.append((positions[~here], old[~here]))
        self._notes = left[::-1]
        return part
