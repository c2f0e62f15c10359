"""One order of a relation: its runs, sorted by the columns in that order.

`runs` hold what earlier epochs left, the largest first; `tail` holds the rows that the current
epoch has added. So the version before the epoch is the runs alone, and the version after it the
runs and the tail; which rows of them are alive is told by their marks.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import rows as kernel
from tidelog.kernel.join import DEAD
from tidelog.store.layout import Layout
from tidelog.store.run import (
    ALIVE,
    GONE,
    KNOWN,
    Counts,
    Marks,
    Run,
    Words,
    merge,
    sort_words,
    sorted_order,
)

SMALL = 512
_GROWTH = 8  # a run is merged into the next one when it is no longer this much smaller
MOST_RUNS = 4


class Index:
    """The rows of a relation in one order."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.runs: list[Run] = []
        self.tail: Run | None = None

    def repacked(self, rows: Words, layout: Layout) -> Words:
        """Return rows of another layout in this one, unsorted."""
        if layout is self.layout:
            return rows
        into = np.empty((self.layout.words, rows.shape[1]), np.int64)
        kernel.repack(rows, rows.shape[1], layout.by_column, self.layout.by_column, into)
        return into

    def sorted_run(
        self, rows: Words, layout: Layout, marks: Marks | None, counts: Counts | None
    ) -> Run:
        """Return a run of rows that are sorted in another layout."""
        if layout is self.layout:
            return Run(rows, marks, counts)
        own = self.repacked(rows, layout)
        if marks is None and counts is None:
            return Run(sort_words(own))
        order = sorted_order(own)
        return Run(
            np.ascontiguousarray(own[:, order]),
            None if marks is None else marks[order],
            None if counts is None else counts[order],
        )

    def add(self, run: Run) -> None:
        """Add rows to the tail. None of them is in the index, except dead."""
        tail = self.tail
        if tail is None:
            self.tail = run
            return
        if tail.marks is not None:
            at = tail.locate(run.words, KNOWN)
            at = at[at >= 0]
            assert (tail.marks[at] == GONE).all(), "a row is added twice"
            tail.marks[at] = DEAD  # the new ones take their place
        self.tail = merge(tail, run, KNOWN)

    def absorb_tail(self) -> None:
        """Make the tail a run like the others, and merge runs that have come close in size."""
        tail = self.tail
        if tail is not None:
            if tail.marks is not None and (tail.marks > ALIVE).any():
                tail = tail.without_dead()
            if len(tail):
                self.runs.append(tail)
        self.tail = None
        runs = self.runs
        while len(runs) > 1 and (
            len(runs) >= MOST_RUNS
            or len(runs[-1]) * _GROWTH > len(runs[-2])
            or len(runs[-2]) < SMALL
        ):
            last = runs.pop()
            runs[-1] = merge(runs[-1], last)

    @property
    def nbytes(self) -> int:
        """Return the memory of all runs."""
        return sum(run.nbytes for run in self.all_runs())

    def all_runs(self) -> list[Run]:
        """Return the runs, the tail last."""
        return self.runs if self.tail is None else [*self.runs, self.tail]

    def _check(self) -> None:
        for run in self.all_runs():
            run._check()
            assert run.words.shape[0] == self.layout.words, "a run has another layout"
        assert len(self.runs) <= MOST_RUNS, "too many runs"
