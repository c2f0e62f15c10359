"""The row-by-row parts of the level repair (maintain/repair.py).

`lose` takes lost instantiations from counts. `offer` lets found ones reach their heads, which are
rows of the relation or rows that wait to be settled. Rows wait in a hash table: `keys` has their
words, `waiting` their tentative level (-1 for a free place), count and nothing else.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.table import MOST_RUNS, WIDE, count_of, find_row, set_count

# Rows of the `waiting` array.
LEVEL, COUNT = range(2)

_DEAD_NOW = 1 << 29
_FLAG = 1 << 30
_DEAD = (1 << 31) - 1
_NEVER = np.int64(_DEAD_NOW)  # the level of rows that are not there
_MOST_NARROW = (1 << 31) - 1
_MIX = np.int64(-7046029254386353131)  # odd, its bits spread: 2**64 divided by the golden ratio


@njit(cache=True, inline="always")
def find(table, words, rows, i, fingers):
    """Return run and position of the row that is not dead, and its mark; run -1 for none."""
    r, at, mark = find_row(table, words, _DEAD - 1, rows, i, fingers)
    return r, at, mark if r >= 0 else _NEVER


@njit(cache=True)
def lose(table, words, rows, fires, n, log, logged, lost):
    """Take one from the count of each row whose level is that of the instantiation.

    Writes to `lost` the places (in `rows`) of rows that reach 0. Returns how many these are and how
    many entries the log has; -1 if a count would be negative.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    zeros = 0
    for i in range(n):
        r, at, mark = find(table, words, rows, i, fingers)
        if r < 0 or mark != fires[i]:
            continue  # only what fired at the row's own level was counted
        count = count_of(table, r, at)
        log[0, logged] = r
        log[1, logged] = at
        log[2, logged] = count
        logged += 1
        if count <= 0:
            return -1, logged
        set_count(table, r, at, count - 1)
        if count == 1:
            lost[zeros] = i
            zeros += 1
    return zeros, logged


@njit(cache=True)
def old_levels(table, words, rows, n, marks):
    """Write the flagged mark of each row of a bucket: its old level, or that it was not there."""
    fingers = np.zeros(MOST_RUNS, np.int64)
    for i in range(n):
        _, _, mark = find(table, words, rows, i, fingers)
        marks[i] = _FLAG | (mark if mark <= _DEAD_NOW else _NEVER)


@njit(cache=True)
def place(keys, waiting, words, rows, i):
    """Return where the row is in the hash table, or the free place where it belongs."""
    mixed = np.int64(0)
    for w in range(words):
        mixed = (mixed ^ rows[w, i]) * _MIX
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    last = waiting.shape[1] - 1  # a power of two, less one
    at = mixed & last
    while waiting[LEVEL, at] >= 0:
        same = True
        for w in range(words):
            if keys[w, at] != rows[w, i]:
                same = False
                break
        if same:
            return at
        at = (at + 1) & last
    return at


@njit(cache=True)
def offer(table, tail, words, rows, fires, n, start, level, keys, waiting, used, log, logged):
    """Let instantiations reach their heads: a smaller level wins, an equal one adds to the count.

    A flagged row is in the bucket and has `level`. Goes from `start` until the hash table is half
    full, or a count outgrows 32 bits; returns how far it came, how many places are used and how
    many entries the log has.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    room = waiting.shape[1] >> 1
    for i in range(start, n):
        if used >= room:
            return i, used, logged
        r, found, mark = find(table, words, rows, i, fingers)
        held = mark
        if mark >= _FLAG:
            held = np.int64(level)
        elif mark >= _DEAD_NOW:
            held = _NEVER
        at = place(keys, waiting, words, rows, i)
        is_waiting = waiting[LEVEL, at] >= 0
        current = held
        if is_waiting:
            current = min(current, waiting[LEVEL, at])
        if fires[i] < current:
            if not is_waiting:
                used += 1
                for w in range(words):
                    keys[w, at] = rows[w, i]
            waiting[LEVEL, at] = fires[i]
            waiting[COUNT, at] = 1
        elif fires[i] == current:
            if is_waiting and waiting[LEVEL, at] == current:
                waiting[COUNT, at] += 1
            else:
                count = count_of(table, r, found)
                if count >= _MOST_NARROW and not table[r, WIDE]:
                    return i, used, logged
                if r != tail:
                    log[0, logged] = r
                    log[1, logged] = found
                    log[2, logged] = count
                    logged += 1
                set_count(table, r, found, count + 1)
    return n, used, logged


@njit(cache=True)
def take(keys, waiting, words, level, rows, counts):
    """Write the rows that wait for `level`, and their counts; return how many there are.

    They stay in the table, where later offers, never below their level, find them settled.
    """
    n = 0
    for at in range(waiting.shape[1]):
        if waiting[LEVEL, at] == level:
            for w in range(words):
                rows[w, n] = keys[w, at]
            counts[n] = waiting[COUNT, at]
            n += 1
    return n


@njit(cache=True)
def level_above(waiting, level):
    """Return the lowest level above `level` that rows wait for, and how many do; -1 for none."""
    lowest = np.int64(-1)
    n = 0
    for at in range(waiting.shape[1]):
        held = waiting[LEVEL, at]
        if held > level:
            if lowest < 0 or held < lowest:
                lowest = held
                n = 0
            if held == lowest:
                n += 1
    return lowest, n


@njit(cache=True)
def rehash(keys, waiting, words, into_keys, into):
    """Move all rows to a larger table."""
    for at in range(waiting.shape[1]):
        if waiting[LEVEL, at] >= 0:
            to = place(into_keys, into, words, keys, at)
            for w in range(words):
                into_keys[w, to] = keys[w, at]
            into[LEVEL, to] = waiting[LEVEL, at]
            into[COUNT, to] = waiting[COUNT, at]
