"""The open run of an order: room for the rows of short epochs (kernel/epoch.py).

A short epoch adds its rows to the open run in place, and takes out those that die. The order's
other runs are *closed*: their rows die by their marks, and what happens to them is noted in a log.
When somebody else looks at the order, it gets a copy of the open run as its last run, and what the
log says (`Index.follow`). The copy stays as it is. If somebody else writes to the order, the copy
is a run like any other from then on, and short epochs begin another one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import descriptors as d
from tidelog.kernel import epoch_layout as e
from tidelog.store.index import MOST_RUNS, Index
from tidelog.store.lazy_run import LazyRun
from tidelog.store.run import Run, address

Array = NDArray[np.int64]


class OpenRows:
    """The arrays with which short epochs maintain one order."""

    def __init__(self, index: Index, row: Array, *, is_counted: bool) -> None:
        """Make them; `row` describes the order to the kernel (kernel/epoch_layout.py)."""
        layout = index.layout
        self.index = index
        self._row = row
        self._layout = layout
        self._words = np.zeros((layout.words, e.OPEN_ROWS), np.int64)
        self._marks = np.zeros(e.OPEN_ROWS, np.int32)
        self._counts = np.zeros(e.OPEN_ROWS if is_counted else 0, np.int32)
        self._tail_words = np.zeros((layout.words, e.MOST_ROWS), np.int64)
        self._tail_marks = np.zeros(e.MOST_ROWS, np.int32)
        self._tail_counts = np.zeros(e.MOST_ROWS if is_counted else 0, np.int32)
        self._undo = np.zeros((3, e.MOST_ROWS), np.int64)
        self._counts_undo = np.zeros((3, e.MOST_ROWS if is_counted else 0), np.int64)
        self._log = np.zeros((3, e.LOG_ROWS), np.int64)
        self._described = np.zeros((d.MOST_RUNS, d.WORDS + layout.words), np.int64)
        self._closed: list[Run] | None = None  # not attached
        self._seen: list[Array] = []
        row[:] = 0
        row[e.RUNS], row[e.RUN_WIDTH] = address(self._described), self._described.shape[1]
        row[e.X_WORDS], row[e.X_COLUMNS] = layout.words, len(layout.by_column)
        row[e.X_FIELDS] = address(layout.by_column)
        row[e.IS_COUNTED] = is_counted
        row[e.UNDO], row[e.COUNTS_UNDO] = address(self._undo), address(self._counts_undo)
        row[e.LOG] = address(self._log)

    @property
    def nbytes(self) -> int:
        """The memory of all arrays."""
        return sum(
            held.nbytes
            for held in (
                self._words, self._marks, self._counts, self._tail_words, self._tail_marks,
                self._tail_counts, self._undo, self._counts_undo, self._log, self._described,
            )
        )  # fmt: skip

    def attach(self) -> None:
        """Take the order's runs over as closed ones, if possible.

        What short epochs have added is among these runs already. Runs that are still in files are
        left there; the order can be used when somebody has read them.
        """
        index, row = self.index, self._row
        assert index.layout is self._layout, "the layout has changed"
        is_unread = any(isinstance(run, LazyRun) for run in index.runs)
        if index.is_crowded and not (is_unread or index.captures):
            index.tidy()
        runs = index.runs
        if is_unread or index.captures or len(runs) > MOST_RUNS - 1:
            row[e.CLOSED] = -1
            self._closed, self._seen = None, []
            return
        seen = [run.describe() for run in runs]
        same = len(seen) == len(self._seen) and all(
            new is old for new, old in zip(seen, self._seen, strict=True)
        )
        if same and runs == self._closed and not index.has_shown_open_rows:
            return
        self._closed, self._seen = list(runs), seen
        closed, described = len(runs), self._described
        described[:] = 0
        for number, descriptor in enumerate(seen):
            described[number] = descriptor
        for number, words, marks, counts in (
            (closed, self._words, self._marks, self._counts),
            (closed + 1, self._tail_words, self._tail_marks, self._tail_counts),
        ):
            d.describe(words, marks, counts, d.NO_DIRECTORY, 0, described[number])
            described[number, d.SIZE] = 0
        row[e.CLOSED] = closed
        row[e.NOTED] = row[e.COUNTS_NOTED] = row[e.LOGGED] = row[e.IS_AHEAD] = 0
        index.keep_open_rows()

    @property
    def descriptors(self) -> Array | None:
        """The descriptors of the closed runs and the open one, as short epochs change them."""
        closed = int(self._row[e.CLOSED])
        return None if closed < 0 else self._described[: closed + 1]

    def catch_up(self) -> None:
        """Show the order what short epochs have done since the last time."""
        row = self._row
        if not row[e.IS_AHEAD]:
            return
        closed, logged = int(row[e.CLOSED]), int(row[e.LOGGED])
        size = int(self._described[closed, d.SIZE])
        run = None
        if size:
            counts = self._counts[:size].copy() if len(self._counts) else None
            run = Run(self._words[:, :size].copy(), None, counts)
        self.index.follow(self._log[:, :logged], run)
        row[e.LOGGED] = row[e.IS_AHEAD] = 0

    def need_marks(self, number: int) -> None:
        """Give marks to a closed run."""
        assert self._closed is not None
        run = self._closed[number]
        run.need_marks()
        self._seen[number] = self._described[number] = run.describe()
        self.index.forget_descriptors()
