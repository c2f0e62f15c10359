"""Runs and sums as of one epoch, while later epochs change them.

A snapshot takes many commits to write, and has to show one epoch. Rows of a run never move, so its
words can be read at any time. Marks and counts are overwritten in place: when an epoch commits, the
values that it has overwritten are noted here, and the snapshot writes those.

The sums of groups are captured in the same way. Heads are overwritten in place, and the block of an
old sum is reused once its epoch has committed. So just before that, the undo entries of the epoch
are noted, with the words of the old sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import accumulate as k
from tidelog.kernel import groups as g
from tidelog.store.lazy_run import LazyRun
from tidelog.store.run import Counts, Marks, Run, Words

Array = NDArray[np.int64]

_BLOCK_SIZES = np.array(
    [0, *(2 << size for size in range(1, g.BLOCK_SIZES)), k.LARGEST_BLOCK], np.int64
)


class Capture:
    """The rows, marks and counts of a run at one moment. The arrays are those in use."""

    saved: Any = None
    """Where it is in files already, if it is."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.words: Words = run.words
        self.dead = run.dead
        self.marks: CapturedArray | None = None if run.marks is None else CapturedArray(run.marks)
        self.counts: CapturedArray | None = (
            None if run.counts is None else CapturedArray(run.counts)
        )

    def note_marks(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Note marks that an epoch has overwritten, in the order of the writes."""
        if self.marks is not None:
            self.marks.note(positions, old)

    def note_counts(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Note counts that an epoch has overwritten, in the order of the writes."""
        if self.counts is not None:
            self.counts.note(positions, old)


class SavedCapture(Capture):
    """A run that has not been read yet. Files hold it as it was, whatever epochs do."""

    def __init__(self, run: LazyRun) -> None:
        self.run = run
        self.saved = run.source.saved
        self.marks = self.counts = None


class RelationCapture(NamedTuple):
    """A stored relation at one moment."""

    orders: dict[tuple[int, ...], list[Capture]]
    """The runs of each order."""
    attached: list[SumsCapture]
    """What strategies keep beside the rows."""


class CapturedArray:
    """The numbers of an array at one moment."""

    def __init__(self, array: Marks | Counts) -> None:
        self._array = array
        self.dtype: np.dtype[Any] = array.dtype
        self._done = 0  # the numbers before this have been read
        self._notes: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def note(self, positions: NDArray[np.int64], old: NDArray[np.int64]) -> None:
        """Note numbers that an epoch has overwritten, in the order of the writes."""
        late = positions >= self._done
        if late.any():
            self._notes.append((positions[late], old[late]))

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Return the numbers of some rows as they were. Parts must be read in order, once."""
        part = self._array[start:stop].copy()
        self._done = stop
        left = []
        for positions, old in reversed(self._notes):
            here = positions < stop
            # The oldest value is written last, and stays.
            part[positions[here][::-1] - start] = old[here][::-1]
            if not here.all():
                left.append((positions[~here], old[~here]))
        self._notes = left[::-1]
        return part


class SumsCapture:
    """Heads and words at one moment. The arrays are those in use."""

    saved: Any = None
    """Where it is in files already, if it is."""

    def __init__(self, heads: Array, words: NDArray[np.uint32], words_used: int) -> None:
        """Note the groups; heads that are not in use have no support."""
        self.words_used = words_used
        self.heads = CapturedArray(heads.reshape(-1))
        self.words = CapturedArray(words.view(np.int32))
        self.sizes = (heads.size, len(words))
        self._width = heads.shape[1]

    def note(self, heads: Array, words: NDArray[np.uint32], undo: Array) -> None:
        """Note the groups that an epoch has changed, before their old sums are freed."""
        slots, key = undo[:, g.UNDO_SLOT], self._width - g.FIELDS
        old = heads[slots]
        support = undo[:, g.UNDO_SUPPORT]
        old[:, key + g.SUPPORT] = np.where(support > 0, support, -1)  # new ones were not there
        old[:, key + g.VALUE] = undo[:, g.UNDO_VALUE]
        old[:, key + g.BLOCK] = undo[:, g.UNDO_BLOCK]
        old[:, key + g.SHAPE] = undo[:, g.UNDO_SHAPE]
        places = slots[:, None] * self._width + np.arange(self._width)
        self.heads.note(places.reshape(-1), old.reshape(-1))
        sizes = _BLOCK_SIZES[undo[:, g.UNDO_SHAPE] >> k.SIZE_SHIFT]
        ends = np.cumsum(sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        at = np.repeat(undo[:, g.UNDO_BLOCK], sizes) + within
        self.words.note(at, words[at].view(np.int32).astype(np.int64))


class SavedSums(SumsCapture):
    """Groups that have not been read yet. Files hold them as they were, whatever epochs do."""

    def __init__(self, saved: Any) -> None:
        self.saved = saved

    def note(self, heads: Array, words: NDArray[np.uint32], undo: Array) -> None:
        """Note nothing."""
