"""Finding and changing rows in all runs of an order at once.

A *table* describes the runs of one order (store/index.py), a row of numbers for each: its size, and
the addresses of its marks, counts and words. So one call does for a few rows what else would take a
call for each run, and a change of ten rows costs microseconds.

Large runs have a *directory*: for each value of the highest bits of the first word, those above
SHIFT, the place of the first row that has it or a larger one. It leaves some fifty rows to search
instead of millions, which is four cache misses instead of twenty.

What is overwritten goes to a *log*, from which `undo` puts it back: one column for each change, of
the run, the position and the old value.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import bare
from tidelog.kernel.memory import load32, load64, store32, store64
from tidelog.kernel.packing import pack_row
from tidelog.kernel.search import count_before, gallop

# Columns of a table.
SIZE, MARKS, COUNTS, WIDE, DIRECTORY, SHIFT, WORDS = range(7)  # WIDE: counts have 64 bits
MOST_RUNS = 10  # in a table, the tail included

_FAR = 64
_DEAD_NOW = 1 << 29
_GONE = _DEAD_NOW + 1
_DEAD = (1 << 31) - 1


@njit(cache=True)
def address_of(array):
    """Return where an array begins."""
    return array.ctypes.data


@njit(cache=True)
def describe(words, marks, counts, directory, shift, row):
    """Write the row of a table that describes a run; arrays without entries are not there."""
    size = words.shape[1]
    row[SIZE] = size
    row[MARKS] = marks.ctypes.data if marks.shape[0] else 0
    row[COUNTS] = counts.ctypes.data if counts.shape[0] else 0
    row[WIDE] = counts.shape[0] and counts.itemsize == 8
    row[DIRECTORY] = directory.ctypes.data if directory.shape[0] else 0
    row[SHIFT] = shift
    for w in range(words.shape[0]):
        row[WORDS + w] = words.ctypes.data + 8 * size * w


@njit(cache=True, inline="always")
def _is_before(table, r, words, at, rows, i):
    """Return whether the row at `at` of run `r` is before row i of `rows`."""
    for w in range(words):
        held = load64(table[r, WORDS + w], at)
        if held < rows[w, i]:
            return True
        if held > rows[w, i]:
            return False
    return False


@njit(cache=True, inline="always")
def is_equal(table, r, words, at, rows, i):
    """Return whether the row at `at` of run `r` is row i of `rows`."""
    equal = True
    for w in range(words):
        equal = equal and load64(table[r, WORDS + w], at) == rows[w, i]
    return equal


@bare
def first_not_before(table, r, words, rows, i, finger):
    """Return the first position of run `r` that is not before row i of `rows`.

    Gallops from `finger`, in either direction: rows often come sorted, or close together.
    """
    size = table[r, SIZE]
    if size == 0:
        return np.int64(0)
    directory = table[r, DIRECTORY]
    step = np.int64(1)
    finger = min(finger, size - 1)
    if directory != 0:
        entry = rows[0, i] >> table[r, SHIFT]
        if entry < 0:
            return np.int64(0)
        low = load32(directory, min(entry, load32(directory, 0)) + 1)
        high = load32(directory, min(entry, load32(directory, 0)) + 2)
        if words == 1:
            return count_before(table[r, WORDS], low, high, rows[0, i])
    elif _is_before(table, r, words, finger, rows, i):
        low = finger
        probe = low + 1
        while probe < size and _is_before(table, r, words, probe, rows, i):
            low = probe
            step = step << 1 if step < _FAR else size  # far away: halve all that is left
            probe = low + step
        high = min(probe, size)
        low += 1
    else:
        high = finger
        probe = high - 1
        while probe >= 0 and not _is_before(table, r, words, probe, rows, i):
            high = probe
            step = step << 1 if step < _FAR else size
            probe = high - step
        low = max(probe, -1) + 1
    while low < high:
        middle = (low + high) >> 1
        if _is_before(table, r, words, middle, rows, i):
            low = middle + 1
        else:
            high = middle
    return low


@bare
def fill_directory(words, n, shift, directory):
    """Fill the directory of a run by its first word.

    Its first number is that of the largest entry, e; then come the places of the entries 0 .. e,
    and the end of the run.
    """
    last = words[0, n - 1] >> shift
    directory[0] = last
    following = 0
    for i in range(n):
        entry = words[0, i] >> shift
        while following <= entry:
            directory[1 + following] = i
            following += 1
    directory[2 + last] = n


@bare
def find_row(table, words, limit, rows, i, fingers):
    """Return run, position and mark of row i, if its mark is within `limit`; run -1 if not."""
    for r in range(table.shape[0]):
        at = first_not_before(table, r, words, rows, i, fingers[r])
        fingers[r] = at
        if at < table[r, SIZE] and is_equal(table, r, words, at, rows, i):
            mark = np.int64(0)
            if table[r, MARKS] != 0:
                mark = load32(table[r, MARKS], at)
            if mark <= limit:
                return np.int64(r), at, mark
    return np.int64(-1), np.int64(-1), np.int64(0)


@njit(cache=True, inline="always")
def count_of(table, r, at):
    """Return the count of a row."""
    if table[r, WIDE]:
        return load64(table[r, COUNTS], at)
    return load32(table[r, COUNTS], at)


@njit(cache=True, inline="always")
def set_count(table, r, at, count):
    """Change the count of a row."""
    if table[r, WIDE]:
        store64(table[r, COUNTS], at, count)
    else:
        store32(table[r, COUNTS], at, count)


@bare
def _find_words(table, limit, keys, n, found):
    """Do what `find` does for rows of one word, run by run: the loops are short."""
    for i in range(n):
        found[0, i] = found[1, i] = -1
        found[2, i] = found[3, i] = 0
    for r in range(table.shape[0]):
        size, address, directory = table[r, SIZE], table[r, WORDS], table[r, DIRECTORY]
        marks, counts, shift = table[r, MARKS], table[r, COUNTS], table[r, SHIFT]
        last = load32(directory, 0) if directory != 0 else np.int64(0)
        at = np.int64(0)
        for i in range(n):
            if found[0, i] >= 0:
                continue
            key = keys[i]
            if directory != 0:
                entry = max(min(key >> shift, last), 0)
                low, high = load32(directory, entry + 1), load32(directory, entry + 2)
                at = count_before(address, low, high, key)
            else:
                if at > 0 and load64(address, at - 1) >= key:
                    at = np.int64(0)  # the rows are not sorted
                at = gallop(address, at, size, key)
            if at < size and load64(address, at) == key:
                mark = load32(marks, at) if marks != 0 else np.int64(0)
                if mark <= limit:
                    found[0, i] = r
                    found[1, i] = at
                    found[2, i] = mark
                    if counts != 0:
                        found[3, i] = count_of(table, r, at)


@njit(cache=True)
def _find(table, words, limit, rows, n, found):
    """Write where each row is: run, position, mark, count; run -1 where no mark is within `limit`.

    `found` has a column for each row.
    """
    if words == 1 and n > 1:
        _find_words(table, limit, rows[0], n, found)
        return
    fingers = np.zeros(MOST_RUNS, np.int64)
    for i in range(n):
        r, at, mark = find_row(table, words, limit, rows, i, fingers)
        found[0, i] = r
        found[1, i] = at
        found[2, i] = mark
        found[3, i] = count_of(table, r, at) if r >= 0 and table[r, COUNTS] != 0 else 0


@njit(cache=True)
def find(table, words, limit, rows, n, found):
    """Do what `_find` does, for Python to call."""
    _find(table, words, limit, rows, n, found)


@njit(cache=True)
def write_marks(table, tail, words, rows, marks, start, n, from_fields, fields, log, logged):
    """Change the marks of rows that are not dead, from `start` on.

    The rows are in the layout of `from_fields`, the table in that of `fields`. `tail` is the number
    of the run whose changes need no log, since it goes as a whole, or -1. Returns how many entries
    the log has, how far it came, and which run lacks the marks that it wanted to change, or -1.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    key = np.zeros((words, 1), np.int64)
    for i in range(start, n):
        for w in range(words):
            key[w, 0] = 0
        for c in range(fields.shape[0]):
            value = (rows[from_fields[c, 0], i] >> from_fields[c, 1]) & from_fields[c, 2]
            key[fields[c, 0], 0] += value << fields[c, 1]
        r, at, old = find_row(table, words, _DEAD - 1, key, 0, fingers)
        if r < 0:
            continue
        if table[r, MARKS] == 0:
            return logged, i, r
        mark = np.int64(marks[i])
        if r == tail:
            if mark == _DEAD_NOW:
                mark = np.int64(_GONE)
        else:
            log[0, logged] = r
            log[1, logged] = at
            log[2, logged] = old
            logged += 1
        store32(table[r, MARKS], at, mark)
    return logged, n, np.int64(-1)


@njit(cache=True)
def place(ordinals, fields, table, limit, row, found):
    """Write the row of these ordinals, and where it is as `find` does.

    `fields` have the bias of each column last. Returns the first column whose ordinal does not fit
    its field, or -1: then nothing is said of its place.
    """
    misfit = pack_row(ordinals, fields, row)
    if misfit < 0:
        _find(table, row.shape[0], limit, row, 1, found)
    return misfit


@njit(cache=True)
def kill_row(table, tail, rows, log, logged):
    """Have a row that is not dead die in this epoch; return how many entries the log has.

    If its run has no marks to be changed, returns -1 - the number of the run.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    r, at, old = find_row(table, rows.shape[0], _DEAD - 1, rows, 0, fingers)
    if r < 0:
        return logged
    if table[r, MARKS] == 0:
        return -1 - r
    if r == tail:
        store32(table[r, MARKS], at, np.int64(_GONE))
        return logged
    log[0, logged] = r
    log[1, logged] = at
    log[2, logged] = old
    store32(table[r, MARKS], at, np.int64(_DEAD_NOW))
    return logged + 1


@bare
def kill(table, tail, places, n, log, logged):
    """Have rows that were found die in this epoch; return how many entries the log has."""
    for i in range(n):
        r, at = places[0, i], places[1, i]
        if r == tail:
            store32(table[r, MARKS], at, np.int64(_GONE))
            continue
        log[0, logged] = r
        log[1, logged] = at
        log[2, logged] = load32(table[r, MARKS], at)
        logged += 1
        store32(table[r, MARKS], at, np.int64(_DEAD_NOW))
    return logged


@bare
def write_counts(table, tail, found, counts, n, log, logged):
    """Change the counts of rows that were found; return how many entries the log has."""
    for i in range(n):
        r, at = found[0, i], found[1, i]
        if r < 0:
            continue
        if r != tail:
            log[0, logged] = r
            log[1, logged] = at
            log[2, logged] = count_of(table, r, at)
            logged += 1
        set_count(table, r, at, counts[i])
    return logged


@bare
def undo(table, column, log, logged):
    """Put back the marks or counts of a log, the last change first."""
    for i in range(logged - 1, -1, -1):
        r = log[0, i]
        if column == COUNTS and table[r, WIDE]:
            store64(table[r, column], log[1, i], log[2, i])
        else:
            store32(table[r, column], log[1, i], log[2, i])


@bare
def bury(table, log, logged, dead):
    """Mark the rows of the log that died in this epoch as dead for good; count them by run.

    Returns whether all marks are those of an epoch that is over: no row is still flagged.
    """
    for r in range(table.shape[0]):
        dead[r] = 0
    for i in range(logged):
        r, at = log[0, i], log[1, i]
        mark = load32(table[r, MARKS], at)
        if mark == _DEAD_NOW:
            store32(table[r, MARKS], at, np.int64(_DEAD))
            dead[r] += 1
        elif mark >= _DEAD_NOW and mark != _DEAD:
            return False
    return True


@njit(cache=True)
def merge_few(table, first, words, limit, into, marks, counts, has_counts):
    """Merge the runs from `first` on, without the rows above `limit` (the dead).

    Returns how many rows that gives, and the bits of all their marks. Of equal rows one is alive.
    """
    at = np.zeros(MOST_RUNS + 1, np.int64)
    out, seen = 0, np.int64(0)
    while True:
        best = -1
        for r in range(first, table.shape[0]):
            mark = np.int64(0)
            while at[r] < table[r, SIZE]:
                mark = np.int64(0)
                if table[r, MARKS] != 0:
                    mark = load32(table[r, MARKS], at[r])
                if mark <= limit:
                    break
                at[r] += 1
            if at[r] == table[r, SIZE]:
                continue
            before = best < 0
            if not before:
                for w in range(words):
                    x, y = load64(table[r, WORDS + w], at[r]), into[w, out]
                    if x != y:
                        before = x < y
                        break
            if before:
                best = r
                for w in range(words):
                    into[w, out] = load64(table[r, WORDS + w], at[r])
                marks[out] = mark
        if best < 0:
            return out, seen
        if has_counts:
            counts[out] = count_of(table, best, at[best])
        seen |= np.int64(marks[out])
        at[best] += 1
        out += 1


@njit(cache=True)
def extremes(table, words, low, high, n, largest, limit, word, shift, mask, values, found):
    """Write for each range of rows [low, high] the smallest or largest value of a column.

    The rows of a range differ in this column first, so that its first or last row that is alive
    has the value. `found` tells which ranges have one.
    """
    for i in range(n):
        found[i] = False
        for r in range(table.shape[0]):
            size = table[r, SIZE]
            if size == 0:
                continue
            bound = high if largest else low
            at = first_not_before(table, r, words, bound, i, np.int64(0))
            if largest and not (at < size and is_equal(table, r, words, at, high, i)):
                at -= 1
            while 0 <= at < size:
                if largest:
                    if _is_before(table, r, words, at, low, i):
                        break
                elif not (
                    _is_before(table, r, words, at, high, i)
                    or is_equal(table, r, words, at, high, i)
                ):
                    break
                if table[r, MARKS] == 0 or load32(table[r, MARKS], at) <= limit:
                    value = (load64(table[r, WORDS + word], at) >> shift) & mask
                    if not found[i] or (value > values[i]) == largest:
                        values[i] = value
                    found[i] = True
                    break
                at += -1 if largest else 1
