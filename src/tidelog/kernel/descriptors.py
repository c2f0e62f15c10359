"""Finding and changing rows in all runs of an order at once.

A *descriptor* is a row of numbers that tells kernels where a run is (store/run.py): its size, and
the addresses of its marks, counts and words. Kernels get the descriptors of all `runs` of an order.
So one call suffices where there would be one for each run, and a change of ten rows costs
microseconds.

Large runs have a *directory*: for each value of the highest bits of the first word, those above
SHIFT, the position of the first row with that value or a larger one. It leaves about fifty rows to
search instead of millions, which is four cache misses instead of twenty.

Overwritten values go to an *undo* array, from which `put_back` restores them. It has one column for
each change: the run, the position and the old value. `noted` is the number of its columns in use.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import ONE, ZERO, bare_helper, bare_kernel, inlined, kernel
from tidelog.kernel.marks import DEAD, DEAD_NOW, GONE, KNOWN
from tidelog.kernel.pointers import load32, load64, store32, store64
from tidelog.kernel.rows import pack_row
from tidelog.kernel.search import count_before, gallop

# Columns of a descriptor.
SIZE, MARKS, COUNTS, WIDE, DIRECTORY, SHIFT, WORDS = range(7)  # WIDE: counts have 64 bits
MOST_RUNS = 10  # of an order, including the tail

NO_DIRECTORY = np.zeros(0, np.int32)
_FAR = 64


@kernel
def address_of(array):
    """Return the address of an array."""
    return array.ctypes.data


@kernel
def describe(words, marks, counts, directory, shift, row):
    """Write the descriptor of a run; an empty array stands for none."""
    size = words.shape[1]
    row[SIZE] = size
    row[MARKS] = marks.ctypes.data if marks.shape[0] else 0
    row[COUNTS] = counts.ctypes.data if counts.shape[0] else 0
    row[WIDE] = counts.shape[0] and counts.itemsize == 8
    row[DIRECTORY] = directory.ctypes.data if directory.shape[0] else 0
    row[SHIFT] = shift
    for w in range(words.shape[0]):
        row[WORDS + w] = words.ctypes.data + 8 * size * w


@inlined
def _is_before(runs, r, words, at, rows, i):
    """Return whether the row at `at` of run `r` is before row i of `rows`."""
    for w in range(words):
        held = load64(runs[r, WORDS + w], at)
        if held < rows[w, i]:
            return True
        if held > rows[w, i]:
            return False
    return False


@inlined
def is_equal(runs, r, words, at, rows, i):
    """Return whether the row at `at` of run `r` is row i of `rows`."""
    equal = True
    for w in range(words):
        equal = equal and load64(runs[r, WORDS + w], at) == rows[w, i]
    return equal


@bare_helper
def first_not_before(runs, r, words, rows, i, finger):
    """Return the first position of run `r` that is not before row i of `rows`.

    Gallops from `finger`, in either direction: rows are often sorted, or close together.
    """
    size = runs[r, SIZE]
    if size == 0:
        return np.int64(0)
    directory = runs[r, DIRECTORY]
    step = np.int64(1)
    finger = min(finger, size - 1)
    if directory != 0:
        entry = rows[0, i] >> runs[r, SHIFT]
        if entry < 0:
            return np.int64(0)
        low = load32(directory, min(entry, load32(directory, 0)) + 1)
        high = load32(directory, min(entry, load32(directory, 0)) + 2)
        if words == 1:
            return count_before(runs[r, WORDS], low, high, rows[0, i])
    elif _is_before(runs, r, words, finger, rows, i):
        low = finger
        probe = low + 1
        while probe < size and _is_before(runs, r, words, probe, rows, i):
            low = probe
            step = (
                step << 1 if step < _FAR else size
            )  # far away: a binary search of all that is left
            probe = low + step
        high = min(probe, size)
        low += 1
    else:
        high = finger
        probe = high - 1
        while probe >= 0 and not _is_before(runs, r, words, probe, rows, i):
            high = probe
            step = step << 1 if step < _FAR else size
            probe = high - step
        low = max(probe, -1) + 1
    while low < high:
        middle = (low + high) >> 1
        if _is_before(runs, r, words, middle, rows, i):
            low = middle + 1
        else:
            high = middle
    return low


@bare_kernel
def fill_directory(words, n, shift, directory):
    """Fill the directory of a run by its first word.

    Its first number is the largest entry, e. The positions of the entries 0 .. e follow, and then
    the end of the run.
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


@bare_helper
def find_row(runs, words, limit, rows, i, fingers):
    """Return run, position and mark of row i, if its mark is within `limit`; run -1 if not."""
    for r in range(runs.shape[0]):
        at = first_not_before(runs, r, words, rows, i, fingers[r])
        fingers[r] = at
        if at < runs[r, SIZE] and is_equal(runs, r, words, at, rows, i):
            mark = np.int64(0)
            if runs[r, MARKS] != 0:
                mark = load32(runs[r, MARKS], at)
            if mark <= limit:
                return np.int64(r), at, mark
    return np.int64(-1), np.int64(-1), np.int64(0)


@inlined
def count_of(runs, r, at):
    """Return the count of a row."""
    if runs[r, WIDE]:
        return load64(runs[r, COUNTS], at)
    return load32(runs[r, COUNTS], at)


@inlined
def set_count(runs, r, at, count):
    """Change the count of a row."""
    if runs[r, WIDE]:
        store64(runs[r, COUNTS], at, count)
    else:
        store32(runs[r, COUNTS], at, count)


@bare_helper
def _find_words(runs, limit, keys, n, found):
    """Do what `find` does for rows of one word, run by run, in short loops."""
    for i in range(n):
        found[0, i] = found[1, i] = -1
        found[2, i] = found[3, i] = 0
    for r in range(runs.shape[0]):
        size, address, directory = runs[r, SIZE], runs[r, WORDS], runs[r, DIRECTORY]
        marks, counts, shift = runs[r, MARKS], runs[r, COUNTS], runs[r, SHIFT]
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
                        found[3, i] = count_of(runs, r, at)


@kernel
def find(runs, words, limit, rows, n, found):
    """Write where each row is: run, position, mark, count; run -1 where no mark is within `limit`.

    `found` has a column for each row.
    """
    if words == 1 and n > 1:
        _find_words(runs, limit, rows[0], n, found)
        return
    fingers = np.zeros(MOST_RUNS, np.int64)
    for i in range(n):
        r, at, mark = find_row(runs, words, limit, rows, i, fingers)
        found[0, i] = r
        found[1, i] = at
        found[2, i] = mark
        found[3, i] = count_of(runs, r, at) if r >= 0 and runs[r, COUNTS] != 0 else 0


@kernel
def write_marks(runs, tail, words, rows, marks, start, n, from_fields, fields, undo, noted):
    """Change the marks of rows that are not dead, from `start` on.

    The rows are in the layout of `from_fields`, the runs in that of `fields`. `tail` is the number
    of the run whose changes need no undo, since an abort drops it as a whole, or -1. Returns how
    many undo entries there are, how many rows are done, and which run has no marks yet, or -1.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    key = np.zeros((words, 1), np.int64)
    for i in range(start, n):
        for w in range(words):
            key[w, 0] = 0
        for c in range(fields.shape[0]):
            value = (rows[from_fields[c, 0], i] >> from_fields[c, 1]) & from_fields[c, 2]
            key[fields[c, 0], 0] += value << fields[c, 1]
        r, at, old = find_row(runs, words, KNOWN, key, ZERO, fingers)
        if r < 0:
            continue
        if runs[r, MARKS] == 0:
            return noted, i, r
        mark = np.int64(marks[i])
        if r == tail:
            if mark == DEAD_NOW:
                mark = np.int64(GONE)
        else:
            undo[0, noted] = r
            undo[1, noted] = at
            undo[2, noted] = old
            noted += 1
        store32(runs[r, MARKS], at, mark)
    return noted, n, np.int64(-1)


@kernel
def place(ordinals, fields, runs, limit, row, found):
    """Write the row of these ordinals, and where it is, as `find` does.

    `fields` have the bias of each column last. Returns the first column whose ordinal does not fit
    its field, or -1. If there is one, where the row is remains unknown.
    """
    misfit = pack_row(ordinals, fields, row)
    if misfit < 0:
        find(runs, row.shape[0], limit, row, ONE, found)
    return misfit


@bare_kernel
def kill(runs, tail, places, n, undo, noted):
    """Delete rows that were found; return how many undo entries there are."""
    for i in range(n):
        r, at = places[0, i], places[1, i]
        if r == tail:
            store32(runs[r, MARKS], at, np.int64(GONE))
            continue
        undo[0, noted] = r
        undo[1, noted] = at
        undo[2, noted] = load32(runs[r, MARKS], at)
        noted += 1
        store32(runs[r, MARKS], at, np.int64(DEAD_NOW))
    return noted


@bare_kernel
def write_counts(runs, tail, found, counts, n, undo, noted):
    """Change the counts of rows that were found; return how many undo entries there are."""
    for i in range(n):
        r, at = found[0, i], found[1, i]
        if r < 0:
            continue
        if r != tail:
            undo[0, noted] = r
            undo[1, noted] = at
            undo[2, noted] = count_of(runs, r, at)
            noted += 1
        set_count(runs, r, at, counts[i])
    return noted


@bare_kernel
def put_back(runs, column, undo, noted):
    """Restore overwritten marks or counts, the last change first."""
    for i in range(noted - 1, -1, -1):
        r = undo[0, i]
        if column == COUNTS and runs[r, WIDE]:
            store64(runs[r, column], undo[1, i], undo[2, i])
        else:
            store32(runs[r, column], undo[1, i], undo[2, i])


@bare_kernel
def commit_deaths(runs, undo, noted, dead):
    """Turn the rows that were deleted in this epoch into tombstones; count them by run.

    Returns False if a row is still flagged.
    """
    for r in range(runs.shape[0]):
        dead[r] = 0
    for i in range(noted):
        r, at = undo[0, i], undo[1, i]
        mark = load32(runs[r, MARKS], at)
        if mark == DEAD_NOW:
            store32(runs[r, MARKS], at, np.int64(DEAD))
            dead[r] += 1
        elif mark >= DEAD_NOW and mark != DEAD:
            return False
    return True


@kernel
def merge_few(runs, first, words, limit, into, marks, counts, has_counts):
    """Merge the runs from `first` on, without the rows above `limit` (the dead).

    Returns the number of merged rows, and the bits of all their marks. Of equal rows, one is alive.
    """
    at = np.zeros(MOST_RUNS + 1, np.int64)
    out, seen = 0, np.int64(0)
    while True:
        best = -1
        for r in range(first, runs.shape[0]):
            mark = np.int64(0)
            while at[r] < runs[r, SIZE]:
                mark = np.int64(0)
                if runs[r, MARKS] != 0:
                    mark = load32(runs[r, MARKS], at[r])
                if mark <= limit:
                    break
                at[r] += 1
            if at[r] == runs[r, SIZE]:
                continue
            before = best < 0
            if not before:
                for w in range(words):
                    x, y = load64(runs[r, WORDS + w], at[r]), into[w, out]
                    if x != y:
                        before = x < y
                        break
            if before:
                best = r
                for w in range(words):
                    into[w, out] = load64(runs[r, WORDS + w], at[r])
                marks[out] = mark
        if best < 0:
            return out, seen
        if has_counts:
            counts[out] = count_of(runs, best, at[best])
        seen |= np.int64(marks[out])
        at[best] += 1
        out += 1


@bare_helper
def extreme_of(runs, words, low, high, i, largest, limit, word, shift, mask):
    """Return whether range i of rows [low, high] has live rows, and an extreme of a column.

    The rows of a range differ in this column first, so its first or last live row has the value.
    """
    found, extreme = False, np.int64(0)
    for r in range(runs.shape[0]):
        size = runs[r, SIZE]
        if size == 0:
            continue
        bound = high if largest else low
        at = first_not_before(runs, r, words, bound, i, np.int64(0))
        if largest and not (at < size and is_equal(runs, r, words, at, high, i)):
            at -= 1
        while 0 <= at < size:
            if largest:
                if _is_before(runs, r, words, at, low, i):
                    break
            elif not (
                _is_before(runs, r, words, at, high, i) or is_equal(runs, r, words, at, high, i)
            ):
                break
            if runs[r, MARKS] == 0 or load32(runs[r, MARKS], at) <= limit:
                value = (load64(runs[r, WORDS + word], at) >> shift) & mask
                if not found or (value > extreme) == largest:
                    extreme = value
                found = True
                break
            at += -1 if largest else 1
    return found, extreme


@kernel
def extremes(runs, words, low, high, n, largest, limit, word, shift, mask, values, found):
    """Write for each range of rows the smallest or largest value of a column (see `extreme_of`).

    `found` says which ranges have live rows.
    """
    for i in range(n):
        found[i], values[i] = extreme_of(
            runs, words, low, high, i, largest, limit, word, shift, mask
        )


@kernel
def rows_between(runs, words, low, high, to_end, limit, into):
    """Write the rows from `low` up to but without `high`, or up to the end, run by run.

    Returns how many there are; those that `into` has no room for are only counted.
    """
    n = 0
    for r in range(runs.shape[0]):
        size = runs[r, SIZE]
        if size == 0:
            continue
        start = first_not_before(runs, r, words, low, ZERO, ZERO)
        stop = size if to_end else first_not_before(runs, r, words, high, ZERO, start)
        for at in range(start, stop):
            if runs[r, MARKS] == 0 or load32(runs[r, MARKS], at) <= limit:
                if n < into.shape[1]:
                    for w in range(words):
                        into[w, n] = load64(runs[r, WORDS + w], at)
                n += 1
    return n
