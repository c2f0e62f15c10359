"""One order of a relation: its runs, sorted by the columns in that order.

`runs` hold what earlier epochs left, the largest first; `tail` holds the rows that the current
epoch has added. So the version before the epoch is the runs alone, and the version after it the
runs and the tail; which rows of them are alive is told by their marks.

At each commit the tail becomes a run, and small runs are merged into larger ones. A large merge
takes many commits, each doing a bounded part of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.kernel import table as t
from tidelog.kernel.join import DEAD
from tidelog.store.layout import Layout
from tidelog.store.merging import Merge, merge, nothing_like, without_dead
from tidelog.store.run import (
    ALIVE,
    GONE,
    KNOWN,
    Counts,
    Marks,
    Run,
    Words,
    sort_marked,
    sort_words,
    sorted_order,
)

SMALL = 512
_GROWTH = 8  # a run is merged into the next one when it is no longer this much smaller
MOST_RUNS = 4
_DEAD_SHARE = 4  # a run is rewritten when one row in this many is dead
STEP = 1 << 16  # so many rows are merged at a commit, and a multiple of the rows it brings
_STEPS_PER_ROW = 16
_MOST_NARROW = (1 << 31) - 1


class _Log:
    """Marks or counts that an epoch has overwritten (kernel/table.py)."""

    __slots__ = ("columns", "used")

    def __init__(self) -> None:
        self.columns = np.empty((3, 64), np.int64)
        self.used = 0

    def room_for(self, more: int) -> NDArray[np.int64]:
        """Return the columns, with room for so many more entries."""
        needed = self.used + more
        if needed > self.columns.shape[1]:
            larger = np.empty((3, 2 * needed), np.int64)
            larger[:, : self.used] = self.columns[:, : self.used]
            self.columns = larger
        return self.columns

    def clear(self) -> None:
        """Forget all entries; a large log gives its memory back."""
        self.used = 0
        if self.columns.shape[1] > 1 << 12:
            self.columns = np.empty((3, 64), np.int64)


class Index:
    """The rows of a relation in one order."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.runs: list[Run] = []
        self.tail: Run | None = None
        self.marks_log = _Log()
        self.counts_log = _Log()
        self.merging: Merge | None = None
        self._table: NDArray[np.int64] | None = None
        self._described: list[Run] = []

    # --- rows of other orders ---

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
        if counts is None:
            assert marks is not None
            return Run(*sort_marked(own, marks))
        order = sorted_order(own)
        return Run(
            np.ascontiguousarray(own[:, order]),
            None if marks is None else marks[order],
            counts[order],
        )

    # --- reading ---

    def all_runs(self) -> list[Run]:
        """Return the runs, the tail last."""
        return self.runs if self.tail is None else [*self.runs, self.tail]

    def table(self) -> NDArray[np.int64]:
        """Return what kernels need to know of the runs, the tail last."""
        runs = self.all_runs()
        if self._table is None or self._described != runs:
            self._table = np.empty((len(runs), t.WORDS + self.layout.words), np.int64)
            for number, run in enumerate(runs):
                run.describe(self._table[number])
            self._described = list(runs)
        return self._table

    def old_table(self) -> NDArray[np.int64]:
        """Return what kernels need to know of the runs without the tail."""
        table = self.table()
        return table if self.tail is None else table[:-1]

    def forget_table(self) -> None:
        """Have the runs described anew: their arrays have changed places."""
        self._table = None

    @property
    def nbytes(self) -> int:
        """Return the memory of all runs."""
        return sum(run.nbytes for run in self.all_runs())

    # --- writing, within an epoch ---

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

    def set_marks(self, rows: Words, marks: Marks, layout: Layout) -> None:
        """Change the marks of rows of another layout that the epoch knows."""
        for run in self.all_runs():
            if run.marks is None:
                run.need_marks()
                self._table = None
        tail = -1 if self.tail is None else len(self.runs)
        n = rows.shape[1]
        log = self.marks_log
        log.used = t.write_marks(
            self.table(), tail, self.layout.words, rows, marks, n, layout.by_column,
            self.layout.by_column, log.room_for(n), log.used,
        )  # fmt: skip

    def set_counts(self, found: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Change the counts of rows that were found here."""
        n = counts.shape[0]
        if n and int(counts.max()) > _MOST_NARROW:
            self.widen_counts()
        tail = -1 if self.tail is None else len(self.runs)
        log = self.counts_log
        log.used = t.write_counts(
            self.table(), tail, found, counts, n, log.room_for(n), log.used
        )

    def widen_counts(self) -> None:
        """Keep counts in 64 bits from now on."""
        for run in self.all_runs():
            if run.counts is not None and run.counts.dtype == np.int32:
                run.counts = run.counts.astype(np.int64)
        self._table = None

    # --- the end of an epoch ---

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        marks, counts = self.marks_log, self.counts_log
        if marks.used:
            t.undo(self.table(), t.MARKS, marks.columns, marks.used)
        if counts.used:
            t.undo(self.table(), t.COUNTS, counts.columns, counts.used)
        self.tail = None
        marks.clear()
        counts.clear()

    def commit(self) -> None:
        """Make the tail a run like the others, and tidy up: a bounded amount of work."""
        tail, runs = self.tail, self.runs
        if tail is None and not self.marks_log.used and not self.counts_log.used:
            if self.merging is not None:
                self._advance(STEP)
            return
        brought = self.marks_log.used + self.counts_log.used
        self._bury()
        if tail is not None:
            brought += len(tail)
            if tail.marks is not None and int(tail.marks.max(initial=0)) > ALIVE:
                tail = without_dead(tail)
            if len(tail):
                runs.append(tail)
            self.tail = None
        self._tidy(STEP + _STEPS_PER_ROW * brought)

    def _bury(self) -> None:
        """Let the rows that died in this epoch be dead; note all changes for a merge under way."""
        marks, counts = self.marks_log, self.counts_log
        if marks.used:
            dead = np.zeros(len(self.runs), np.int64)
            over = t.bury(self.table(), marks.columns, marks.used, dead)
            assert over, "a row is still flagged"
            for number in np.flatnonzero(dead).tolist():
                self.runs[number].dead += int(dead[number])
        if self.merging is not None:
            for log in (marks, counts):
                for number in np.unique(log.columns[0, : log.used]).tolist():
                    run = self.runs[number]
                    if run is self.merging.a or run is self.merging.b:
                        here = log.columns[0, : log.used] == number
                        self.merging.note(run, log.columns[1, : log.used][here].copy())
        marks.clear()
        counts.clear()

    def _tidy(self, rows: int) -> None:
        """Merge runs that have come close in size, and rewrite runs with many dead rows."""
        if self.merging is not None:
            self._advance(rows)
        while len(self.runs) > 1 and self._are_close(*self.runs[-2:]):
            larger, smaller = self.runs[-2:]
            busy = self._is_merging(larger) or self._is_merging(smaller)
            if len(larger) + len(smaller) <= STEP and not busy:
                self.runs[-2:] = [merge(larger, smaller)]
            elif self.merging is None:
                self.merging = Merge(larger, smaller)
                self._advance(rows)
                if self.merging is not None:
                    break
            elif len(self.runs) >= MOST_RUNS:
                self._advance(len(self.merging.a) + len(self.merging.b))  # too many runs
            else:
                break
        for i, run in enumerate(self.runs):
            if run.dead * _DEAD_SHARE > len(run) and not self._is_merging(run):
                if len(run) <= STEP or run.dead == len(run):
                    self.runs[i] = without_dead(run)
                elif self.merging is None:
                    self.merging = Merge(run, nothing_like(run))
        self.runs = [run for run in self.runs if len(run)]

    def _are_close(self, larger: Run, smaller: Run) -> bool:
        return (
            len(self.runs) >= MOST_RUNS
            or len(smaller) * _GROWTH > len(larger)
            or len(larger) < SMALL
        )

    def _is_merging(self, run: Run) -> bool:
        return self.merging is not None and (run is self.merging.a or run is self.merging.b)

    def _advance(self, rows: int) -> None:
        assert self.merging is not None
        merged = self.merging.advance(rows)
        if merged is not None:
            at = self.runs.index(self.merging.a)
            self.runs = [r for r in self.runs if r is not self.merging.b]
            self.runs[at] = merged
            self.merging = None

    def _check(self) -> None:
        for run in self.all_runs():
            run._check()
            assert run.words.shape[0] == self.layout.words, "a run has another layout"
        assert len(self.runs) <= MOST_RUNS, "too many runs"
        if self.merging is not None:
            assert self.merging.a in self.runs, "a run that is merged is not here"
        table = self.table()
        self._table = None
        assert np.array_equal(table, self.table()), "the table is out of date"
