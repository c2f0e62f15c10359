"""The end of a short epoch (kernel/epoch.py), for each order: tail, marks and counts."""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel.compiling import bare_helper
from tidelog.kernel.described import view2
from tidelog.kernel.descriptors import COUNTS, MARKS, SIZE, WORDS, set_count
from tidelog.kernel.epoch_rows import MOST
from tidelog.kernel.marks import DEAD, DEAD_NOW
from tidelog.kernel.pointers import load32, store32


@bare_helper
def commit_deaths(indexes, x):
    """Bury the rows of an order that have died; note what has changed in closed runs."""
    closed = indexes[x, e.CLOSED]
    runs = view2(indexes[x, e.RUNS], closed + 2, indexes[x, e.RUN_WIDTH])
    log = view2(indexes[x, e.LOG], np.int64(3), np.int64(e.LOG_ROWS))
    undo = view2(indexes[x, e.UNDO], np.int64(3), MOST)
    logged = indexes[x, e.LOGGED]
    some_open = False
    for i in range(indexes[x, e.NOTED]):
        r, at = undo[0, i], undo[1, i]
        if r == closed:
            some_open = True
            continue
        store32(runs[r, MARKS], at, np.int64(DEAD))
        log[0, logged], log[1, logged], log[2, logged] = r, at, 1
        logged += 1
    if indexes[x, e.COUNTS_NOTED]:
        undo = view2(indexes[x, e.COUNTS_UNDO], np.int64(3), MOST)
        for i in range(indexes[x, e.COUNTS_NOTED]):
            if undo[0, i] != closed:
                log[0, logged], log[1, logged], log[2, logged] = undo[0, i], undo[1, i], 0
                logged += 1
    indexes[x, e.LOGGED] = logged
    if some_open:
        _close_gaps(indexes, x, runs, closed)
    indexes[x, e.NOTED] = indexes[x, e.COUNTS_NOTED] = 0


@bare_helper
def _close_gaps(indexes, x, runs, closed):
    """Take the dead rows out of the open run."""
    words, marks, counts = indexes[x, e.X_WORDS], runs[closed, MARKS], runs[closed, COUNTS]
    held = view2(runs[closed, WORDS], words, np.int64(e.OPEN_ROWS))
    kept = 0
    for i in range(runs[closed, SIZE]):
        if load32(marks, i) == DEAD_NOW:
            store32(marks, i, np.int64(0))
            continue
        if kept != i:
            for w in range(words):
                held[w, kept] = held[w, i]
            if counts != 0:
                store32(counts, kept, load32(counts, i))
        kept += 1
    runs[closed, SIZE] = kept


@bare_helper
def commit_tail(indexes, x):
    """Move the tail of an order into its open run."""
    closed, words = indexes[x, e.CLOSED], indexes[x, e.X_WORDS]
    runs = view2(indexes[x, e.RUNS], closed + 2, indexes[x, e.RUN_WIDTH])
    tail = closed + 1
    rows = view2(runs[tail, WORDS], words, MOST)
    held = view2(runs[closed, WORDS], words, np.int64(e.OPEN_ROWS))
    counts, new_counts = runs[closed, COUNTS], runs[tail, COUNTS]
    old, new = runs[closed, SIZE] - 1, runs[tail, SIZE] - 1
    runs[closed, SIZE] += runs[tail, SIZE]
    runs[tail, SIZE] = 0
    while new >= 0:  # merged from the end, so that nothing is overwritten too early
        at = old + new + 1
        is_old = False
        if old >= 0:
            for w in range(words):
                if held[w, old] != rows[w, new]:
                    is_old = held[w, old] > rows[w, new]
                    break
        if is_old:
            for w in range(words):
                held[w, at] = held[w, old]
            if counts != 0:
                store32(counts, at, load32(counts, old))
            old -= 1
        else:
            for w in range(words):
                held[w, at] = rows[w, new]
            if counts != 0:
                store32(counts, at, load32(new_counts, new))
            new -= 1


@bare_helper
def abort_order(indexes, x):
    """Put an order back as it was."""
    closed = indexes[x, e.CLOSED]
    runs = view2(indexes[x, e.RUNS], closed + 2, indexes[x, e.RUN_WIDTH])
    undo = view2(indexes[x, e.UNDO], np.int64(3), MOST)
    for i in range(indexes[x, e.NOTED]):  # no row has two entries
        store32(runs[undo[0, i], MARKS], undo[1, i], undo[2, i])
    if indexes[x, e.COUNTS_NOTED]:
        undo = view2(indexes[x, e.COUNTS_UNDO], np.int64(3), MOST)
        for i in range(indexes[x, e.COUNTS_NOTED]):
            set_count(runs, undo[0, i], undo[1, i], undo[2, i])
    runs[closed + 1, SIZE] = 0
    indexes[x, e.NOTED] = indexes[x, e.COUNTS_NOTED] = 0
