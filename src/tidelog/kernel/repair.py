"""The row-by-row parts of the level repair (maintain/repair.py).

`lose` subtracts lost instantiations from counts. `offer` applies new ones to their heads, which are
rows of the relation or rows that wait to be settled. The latter are in a hash table: `keys` has
their words, `waiting` their tentative level (-1 for a free place) and count.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import helper, inlined, kernel
from tidelog.kernel.descriptors import MOST_RUNS, WIDE, count_of, find_row, set_count
from tidelog.kernel.marks import DEAD_NOW, FLAG, KNOWN

# Rows of the `waiting` array.
LEVEL, COUNT = range(2)

_NEVER = np.int64(DEAD_NOW)  # the level of rows that do not exist
_MOST_NARROW = (1 << 31) - 1
_MIX = np.int64(-7046029254386353131)  # odd, with spread bits: 2**64 divided by the golden ratio


@inlined
def find(runs, words, rows, i, fingers):
    """Return the run, position and mark of a row that is not dead; run -1 if there is none."""
    r, at, mark = find_row(runs, words, KNOWN, rows, i, fingers)
    return r, at, mark if r >= 0 else _NEVER


@kernel
def lose(runs, words, rows, fires, n, undo, noted, lost):
    """Subtract one from the count of each row whose level is that of the instantiation.

    Writes the positions (in `rows`) of rows that reach 0 to `lost`. Returns how many these are, or
    -1 if a count would be negative, and how many undo entries there are.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    zeros = 0
    for i in range(n):
        r, at, mark = find(runs, words, rows, i, fingers)
        if r < 0 or mark != fires[i]:
            continue  # only what fired at the row's own level was counted
        count = count_of(runs, r, at)
        undo[0, noted] = r
        undo[1, noted] = at
        undo[2, noted] = count
        noted += 1
        if count <= 0:
            return -1, noted
        set_count(runs, r, at, count - 1)
        if count == 1:
            lost[zeros] = i
            zeros += 1
    return zeros, noted


@kernel
def old_levels(runs, words, rows, n, marks):
    """Write the flagged mark of each row of a bucket: its old level, or that it did not exist."""
    fingers = np.zeros(MOST_RUNS, np.int64)
    for i in range(n):
        _, _, mark = find(runs, words, rows, i, fingers)
        marks[i] = FLAG | (mark if mark <= DEAD_NOW else _NEVER)


@helper
def place(keys, waiting, words, rows, i):
    """Return where the row is in the hash table, or the free place where it belongs."""
    mixed = np.int64(0)
    for w in range(words):
        mixed = (mixed ^ rows[w, i]) * _MIX
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    last = waiting.shape[1] - 1  # a power of two, minus one
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


@kernel
def offer(runs, tail, words, rows, fires, n, start, level, keys, waiting, used, undo, noted):
    """Apply instantiations to their heads: a smaller level wins, an equal one adds to the count.

    A flagged row is in the bucket and has `level`. Stops when the hash table is half full, or when
    a count outgrows 32 bits. Returns the instantiation to continue from, how many places are used
    and how many undo entries there are.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    room = waiting.shape[1] >> 1
    for i in range(start, n):
        if used >= room:
            return i, used, noted
        r, found, mark = find(runs, words, rows, i, fingers)
        held = mark
        if mark >= FLAG:
            held = np.int64(level)
        elif mark >= DEAD_NOW:
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
                count = count_of(runs, r, found)
                if count >= _MOST_NARROW and not runs[r, WIDE]:
                    return i, used, noted
                if r != tail:
                    undo[0, noted] = r
                    undo[1, noted] = found
                    undo[2, noted] = count
                    noted += 1
                set_count(runs, r, found, count + 1)
    return n, used, noted


@kernel
def take(keys, waiting, words, level, rows, counts):
    """Write the rows that wait for `level`, and their counts; return how many there are.

    They stay in the hash table. Later offers, never below their level, find them settled there.
    """
    n = 0
    for at in range(waiting.shape[1]):
        if waiting[LEVEL, at] == level:
            for w in range(words):
                rows[w, n] = keys[w, at]
            counts[n] = waiting[COUNT, at]
            n += 1
    return n


@kernel
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


@kernel
def rehash(keys, waiting, words, into_keys, into):
    """Move all rows to a larger hash table."""
    for at in range(waiting.shape[1]):
        if waiting[LEVEL, at] >= 0:
            to = place(into_keys, into, words, keys, at)
            for w in range(words):
                into_keys[w, to] = keys[w, at]
            into[LEVEL, to] = waiting[LEVEL, at]
            into[COUNT, to] = waiting[COUNT, at]
