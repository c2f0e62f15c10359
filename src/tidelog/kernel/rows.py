"""Sorted sets of rows as arrays of words: sort, deduplicate, compare, merge, find, repack.

A set of n rows is an int64 array of shape (words, n), sorted by its words from the first to the
last; most relations need one word a row. Kernels write into arrays that the caller made, and return
how many rows they wrote. Rows of one word have loops of their own, since nearly all rows are so.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import (
    ZERO,
    bare_helper,
    bare_kernel,
    bare_kernel_without_gil,
    helper,
    kernel,
    kernel_without_gil,
)
from tidelog.kernel.pointers import load32, load64, store32, store64
from tidelog.kernel.search import gallop

_BLOCK = 2048  # rows


@njit(cache=True, inline="always")
def _compare(a, i, b, j):
    """Return -1, 0 or 1 as row i of `a` is before, equal to or after row j of `b`."""
    for w in range(a.shape[0]):
        if a[w, i] < b[w, j]:
            return -1
        if a[w, i] > b[w, j]:
            return 1
    return 0


@bare_helper
def _find(rows, low, high, keys, j):
    """Return the first position in [low, high) of `rows` not before row j of `keys`: galloping."""
    if low >= high or _compare(rows, low, keys, j) >= 0:
        return low
    before = low
    step = 1
    probe = low + 1
    while probe < high and _compare(rows, probe, keys, j) < 0:
        before = probe
        step <<= 1
        probe = before + step
    probe = min(probe, high)
    low = before + 1
    while low < probe:
        middle = (low + probe) >> 1
        if _compare(rows, middle, keys, j) < 0:
            low = middle + 1
        else:
            probe = middle
    return low


@bare_kernel
def settle_ties(rows, order):
    """Complete `order`, which sorts by the first word only: sort ties by the other words."""
    n = order.shape[0]
    start = ZERO
    while start < n:
        stop = start + 1
        while stop < n and rows[0, order[stop]] == rows[0, order[start]]:
            stop += 1
        if stop - start > 1:
            _sort_group(rows, order, start, stop)
        start = stop


@helper
def _sort_group(rows, order, start, stop):
    """Sort order[start:stop] by all words: heap sort, so that no input is slow."""
    n = stop - start
    for root in range(n // 2 - 1, -1, -1):
        _sift(rows, order, start, root, n)
    for last in range(n - 1, 0, -1):
        order[start], order[start + last] = order[start + last], order[start]
        _sift(rows, order, start, ZERO, last)


@helper
def _sift(rows, order, start, root, n):
    while True:
        child = 2 * root + 1
        if child >= n:
            return
        if (
            child + 1 < n
            and _compare(rows, order[start + child], rows, order[start + child + 1]) < 0
        ):
            child += 1
        if _compare(rows, order[start + root], rows, order[start + child]) >= 0:
            return
        order[start + root], order[start + child] = order[start + child], order[start + root]
        root = child


@bare_kernel_without_gil
def unique_sums(rows, n, weights, has_weights, counts):
    """Deduplicate sorted rows in place; add up their weights (or 1 each) in `counts`."""
    kept = 0
    i = 0
    one_word = rows.shape[0] == 1
    while i < n:
        j = i + 1
        if one_word:
            key = rows[0, i]
            while j < n and rows[0, j] == key:
                j += 1
            rows[0, kept] = key
        else:
            while j < n and _compare(rows, i, rows, j) == 0:
                j += 1
            for w in range(rows.shape[0]):
                rows[w, kept] = rows[w, i]
        if has_weights:
            total = np.int64(0)
            for k in range(i, j):
                total += weights[k]
            counts[kept] = total
        else:
            counts[kept] = j - i
        kept += 1
        i = j
    return kept


@kernel_without_gil
def remove_present(rows, counts, n, run, marks, has_marks, limit):
    """Remove the rows that are alive in `run`, in place, with counts; return how many are left."""
    kept = 0
    at = 0
    first = 0
    size = run.shape[1]
    one_word = rows.shape[0] == 1
    if one_word and not has_marks and size < _DENSE * n:
        # There are nearly as many rows as in the run, or more. So step through both, without a
        # branch that depends on the data.
        keys, held = rows.ctypes.data, run.ctypes.data
        while first < n and at < size:
            x, y = load64(keys, first), load64(held, at)
            count = counts[first]
            onward = np.int64(x <= y)
            store64(keys, kept, x)
            counts[kept] = count
            kept += np.int64(x < y)
            first += onward
            at += 1 - onward
    for i in range(first, n):
        if one_word:
            at = gallop(run.ctypes.data, at, size, rows[0, i])
            present = at < size and run[0, at] == rows[0, i]
        else:
            at = _find(run, at, size, rows, i)
            present = at < size and _compare(run, at, rows, i) == 0
        if present and (not has_marks or marks[at] <= limit):
            continue
        if kept < i:
            for w in range(rows.shape[0]):
                rows[w, kept] = rows[w, i]
            counts[kept] = counts[i]
        kept += 1
    return kept


@kernel_without_gil
def remove_seen(rows, counts, n, seen):
    """Remove rows of one word whose bits are set in `seen`, in place; return how many are left."""
    kept = 0
    for i in range(n):
        key = rows[0, i]
        is_new = np.int64((seen[key >> 6] >> (key & 63)) & 1) ^ 1
        rows[0, kept] = key
        counts[kept] = counts[i]
        kept += is_new
    return kept


@kernel_without_gil
def see(rows, seen):
    """Set the bits of rows of one word."""
    for i in range(rows.shape[1]):
        key = rows[0, i]
        seen[key >> 6] |= np.int64(1) << (key & 63)


@kernel
def largest_parts(rows, leveled_counts, shift, largest):
    """Update the three numbers of `largest`: the largest word, level and count seen."""
    for i in range(rows.shape[1]):
        largest[0] = max(largest[0], rows[0, i])
        largest[1] = max(largest[1], leveled_counts[i] >> shift)
        largest[2] = max(largest[2], leveled_counts[i] & ((np.int64(1) << shift) - 1))


@kernel_without_gil
def pack_levels(rows, leveled_counts, shift, level_bits, count_bits, into, start):
    """Write row, level and count as one number each, from `start` on."""
    for i in range(rows.shape[1]):
        level = leveled_counts[i] >> shift
        count = leveled_counts[i] & ((np.int64(1) << shift) - 1)
        into[start + i] = (((rows[0, i] << level_bits) | level) << count_bits) | count


@kernel_without_gil
def unpack_levels(packed, level_bits, count_bits, marks, counts):
    """Undo `pack_levels`: write levels and counts, and leave the rows."""
    level_mask = (np.int64(1) << level_bits) - 1
    count_mask = (np.int64(1) << count_bits) - 1
    for i in range(packed.shape[0]):
        key = packed[i]
        counts[i] = key & count_mask
        key >>= count_bits
        marks[i] = key & level_mask
        packed[i] = key >> level_bits


@kernel
def mark_bits(rows, marks):
    """Return how many bits the marks need; -1 where rows of one word leave them no room."""
    top, most = np.int64(0), np.int64(0)
    for i in range(rows.shape[1]):
        if rows[0, i] < 0 or marks[i] < 0:
            return -1
        top |= rows[0, i]
        most |= marks[i]
    bits = 0
    while most >> bits:
        bits += 1
    return bits if top >> (63 - bits) == 0 else -1


@kernel_without_gil
def add_marks(rows, marks, bits):
    """Put the marks into the lowest bits of the rows."""
    for i in range(rows.shape[1]):
        rows[0, i] = (rows[0, i] << bits) | marks[i]


@kernel_without_gil
def take_marks(rows, bits, marks):
    """Move the marks out of the rows again."""
    mask = (np.int64(1) << bits) - 1
    for i in range(rows.shape[1]):
        marks[i] = rows[0, i] & mask
        rows[0, i] >>= bits


@kernel
def split_levels(leveled_counts, shift, marks, counts):
    """Write levels and counts apart; return whether all counts fit 31 bits."""
    mask = (np.int64(1) << shift) - 1
    most = np.int64(0)
    for i in range(leveled_counts.shape[0]):
        marks[i] = leveled_counts[i] >> shift
        count = leveled_counts[i] & mask
        most = max(most, count)
        counts[i] = count
    return most < (np.int64(1) << 31)


@njit(cache=True, inline="always")
def _copy_sum(rows, sums, i, into, into_sums, out):
    """Write row i with its sum."""
    for w in range(rows.shape[0]):
        into[w, out] = rows[w, i]
    into_sums[out] = sums[i]


@bare_kernel_without_gil
def merge_sums(a, counts_a, n_a, b, counts_b, n_b, into, counts):
    """Write the union of two sets of rows, with the counts of rows in both added up."""
    i = j = out = 0
    one_word = a.shape[0] == 1
    while i < n_a and j < n_b:
        if one_word:
            order = -1 if a[0, i] < b[0, j] else (1 if a[0, i] > b[0, j] else 0)
        else:
            order = _compare(a, i, b, j)
        if order <= 0:
            _copy_sum(a, counts_a, i, into, counts, out)
            i += 1
            if order == 0:
                counts[out] += counts_b[j]
                j += 1
        else:
            _copy_sum(b, counts_b, j, into, counts, out)
            j += 1
        out += 1
    for rest in range(i, n_a):
        _copy_sum(a, counts_a, rest, into, counts, out)
        out += 1
    for rest in range(j, n_b):
        _copy_sum(b, counts_b, rest, into, counts, out)
        out += 1
    return out


_DENSE = 4

# Fields of the progress of a merge.
FROM_A, FROM_B, WRITTEN, ALL_MARKS = range(4)


@njit(cache=True, inline="always")
def _copy_kept(
    rows, from_marks, from_counts, i, into, marks, counts, has_marks, has_counts, limit, out, seen
):
    """Write row i unless it is dead; return how many are written, and the bits of their marks."""
    if has_marks:
        mark = np.int64(from_marks[i])
        if mark > limit:
            return out, seen
        marks[out] = mark
        seen |= mark
    for w in range(rows.shape[0]):
        into[w, out] = rows[w, i]
    if has_counts:
        counts[out] = from_counts[i]
    return out + 1, seen


@bare_kernel
def merge_runs(
    a, marks_a, counts_a, b, marks_b, counts_b, into, marks, counts,
    has_marks, has_counts, limit, progress, stop,
):  # fmt: skip
    """Merge two runs into a third, without the rows above `limit` (the dead).

    Continues from `progress` until `stop` rows have been read in all, or both runs are finished.
    ALL_MARKS collects the bits of all marks.
    """
    i, j, out = progress[FROM_A], progress[FROM_B], progress[WRITTEN]
    seen = progress[ALL_MARKS]
    n_a, n_b = a.shape[1], b.shape[1]
    words = a.shape[0]
    if words == 1 and not has_marks:
        # Nearly all rows go through these loops. They load from both runs and select, so no branch
        # depends on the data. They use addresses: Numba would allow for negative indexes.
        keys_a, keys_b, keys = a.ctypes.data, b.ctypes.data, into.ctypes.data
        while i < n_a and j < n_b and i + j < stop:
            x, y = load64(keys_a, i), load64(keys_b, j)
            from_a = np.int64(x <= y)
            store64(keys, out, x if x <= y else y)
            if has_counts:
                u, v = counts_a[i], counts_b[j]
                counts[out] = u if from_a else v
            out += 1
            i += from_a
            j += 1 - from_a
    elif words == 1:
        keys_a, keys_b, keys = a.ctypes.data, b.ctypes.data, into.ctypes.data
        at_a, at_b, at = marks_a.ctypes.data, marks_b.ctypes.data, marks.ctypes.data
        while i < n_a and j < n_b and i + j < stop:
            x, y = load64(keys_a, i), load64(keys_b, j)
            from_a = np.int64(x <= y)
            store64(keys, out, x if x <= y else y)
            p, q = load32(at_a, i), load32(at_b, j)
            mark = p if from_a else q
            store32(at, out, mark)
            kept = np.int64(mark <= limit)
            seen |= mark * kept
            if has_counts:
                u, v = counts_a[i], counts_b[j]
                counts[out] = u if from_a else v
            out += kept
            i += from_a
            j += 1 - from_a
    else:
        while i < n_a and j < n_b and i + j < stop:
            if _compare(a, i, b, j) <= 0:
                out, seen = _copy_kept(
                    a, marks_a, counts_a, i, into, marks, counts, has_marks, has_counts, limit,
                    out, seen,
                )  # fmt: skip
                i += 1
            else:
                out, seen = _copy_kept(
                    b, marks_b, counts_b, j, into, marks, counts, has_marks, has_counts, limit,
                    out, seen,
                )  # fmt: skip
                j += 1
    while j == n_b and i < n_a and i + j < stop:
        out, seen = _copy_kept(
            a, marks_a, counts_a, i, into, marks, counts, has_marks, has_counts, limit, out, seen
        )
        i += 1
    while i == n_a and j < n_b and i + j < stop:
        out, seen = _copy_kept(
            b, marks_b, counts_b, j, into, marks, counts, has_marks, has_counts, limit, out, seen
        )
        j += 1
    progress[FROM_A], progress[FROM_B], progress[WRITTEN] = i, j, out
    progress[ALL_MARKS] = seen


@bare_kernel
def locate(run, marks, has_marks, limit, rows, n, positions):
    """Write the position in `run` of each of the sorted `rows`, or -1; dead rows are not found."""
    at = ZERO
    size = run.shape[1]
    one_word = rows.shape[0] == 1
    found = 0
    for i in range(n):
        if one_word:
            at = gallop(run.ctypes.data, at, size, rows[0, i])
            present = at < size and run[0, at] == rows[0, i]
        else:
            at = _find(run, at, size, rows, i)
            present = at < size and _compare(run, at, rows, i) == 0
        if present and (not has_marks or marks[at] <= limit):
            positions[i] = at
            found += 1
        else:
            positions[i] = -1
    return found


@kernel_without_gil
def repack(rows, n, fields, into_fields, into):
    """Write the rows in another layout; a field is (word, shift, mask), one for each column.

    It goes column by column, for as many rows at a time as fit the cache.
    """
    for begin in range(0, n, _BLOCK):
        end = min(n, begin + _BLOCK)
        for w in range(into.shape[0]):
            for i in range(begin, end):
                into[w, i] = 0
        for c in range(fields.shape[0]):
            source, shift, mask = rows[fields[c, 0]], fields[c, 1], fields[c, 2]
            target, into_shift = into[into_fields[c, 0]], into_fields[c, 1]
            for i in range(begin, end):
                target[i] += ((source[i] >> shift) & mask) << into_shift


@kernel
def pack(columns, n, fields, into):
    """Write columns of codes as rows of words."""
    for w in range(into.shape[0]):
        for i in range(n):
            into[w, i] = 0
    for c in range(fields.shape[0]):
        source = columns[c]
        target, shift = into[fields[c, 0]], fields[c, 1]
        for i in range(n):
            target[i] += source[i] << shift


@kernel
def unpack(rows, n, fields, columns):
    """Write rows of words as columns of codes."""
    for c in range(fields.shape[0]):
        source, shift, mask = rows[fields[c, 0]], fields[c, 1], fields[c, 2]
        target = columns[c]
        for i in range(n):
            target[i] = (source[i] >> shift) & mask


@kernel
def pack_ordinals(columns, n, fields, into):
    """Write columns of ordinals as rows of words; `fields` have the bias of each column last."""
    for w in range(into.shape[0]):
        for i in range(n):
            into[w, i] = 0
    for c in range(fields.shape[0]):
        source, bias = columns[c], fields[c, 3]
        target, shift = into[fields[c, 0]], fields[c, 1]
        for i in range(n):
            target[i] += (source[i] - bias) << shift


@kernel
def unpack_ordinals(rows, n, fields, columns):
    """Write rows of words as columns of ordinals; `fields` have the bias of each column last."""
    for c in range(fields.shape[0]):
        source, shift, mask, bias = rows[fields[c, 0]], fields[c, 1], fields[c, 2], fields[c, 3]
        target = columns[c]
        for i in range(n):
            target[i] = ((source[i] >> shift) & mask) + bias


# --- one row, for kernels to call. `fields`: word, shift, mask and bias of each column ---


@helper
def pack_row(ordinals, fields, row):
    """Write the words of a row; return the first column that does not fit its field, or -1."""
    for w in range(row.shape[0]):
        row[w, 0] = 0
    for c in range(fields.shape[0]):
        code = ordinals[c, 0] - fields[c, 3]
        if code & ~fields[c, 2]:
            return np.int64(c)
        row[fields[c, 0], 0] += code << fields[c, 1]
    return np.int64(-1)
