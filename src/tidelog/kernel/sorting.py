"""Radix sort of rows, by digits of their words.

The store uses it where it is faster than NumPy's sort (store/sorting.py): for rows of several words
everywhere, for single words on some processors.

Rows are distributed by one digit at a time, from the last to the first, and each pass counts the
digits of the next one. A digit has at most 9 bits. With 8 bits there are more passes. With 11 bits
the 2,048 destinations of a pass do not fit the first-level cache, and large arrays take twice as
long. Cutting large arrays into parts that fit the cache, by their first digit, did not pay.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import ONE, ZERO, bare_helper, bare_kernel_without_gil

MOST_DIGITS = 512
_DIGIT_BITS = np.int64(9)


@bare_kernel_without_gil
def sort_rows(rows, scratch, keys, places):
    """Sort rows by their first `keys` words; the other words move along.

    The sort is stable. `scratch` has the shape of `rows`, and `places` is 2 x MOST_DIGITS. All are
    overwritten. Returns whether the sorted rows are in `scratch`.
    """
    n = rows.shape[1]
    if _is_sorted(rows, keys):
        return False
    in_scratch = False
    for word in range(keys - 1, -1, -1):
        source, into = (scratch, rows) if in_scratch else (rows, scratch)
        low = high = source[word, ZERO]
        for i in range(n):
            low = min(low, source[word, i])
            high = max(high, source[word, i])
        # Unsigned, so that the distance of any two words fits.
        base = np.uint64(low)
        bits = _bit_length(np.uint64(high) - base)
        if _sort_by_word(source, into, word, base, bits, places):
            in_scratch = not in_scratch
    return in_scratch


@bare_helper
def _is_sorted(rows, keys):
    for i in range(1, rows.shape[1]):
        for word in range(keys):
            before, here = rows[word, i - 1], rows[word, i]
            if before > here:
                return False
            if before < here:
                break
    return True


@bare_helper
def _bit_length(width):
    bits = ZERO
    while bits < 64 and (width >> np.uint64(bits)) != 0:
        bits += 1
    return bits


@bare_helper
def _sort_by_word(rows, scratch, word, base, bits, places):
    """Sort rows by one of their words; return whether they are in `scratch`."""
    digits = (bits + _DIGIT_BITS - 1) // _DIGIT_BITS
    if digits == 0:
        return False
    width = (bits + digits - 1) // digits
    in_scratch = False
    now, following = places[0], places[1]
    _count(rows, word, base, width, now)
    for digit in range(digits):
        source, into = (scratch, rows) if in_scratch else (rows, scratch)
        _distribute(source, into, word, base, digit * width, width, now, following)
        now, following = following, now
        in_scratch = not in_scratch
    return in_scratch


@bare_helper
def _count(rows, word, base, width, counts):
    """Count the rows with each last digit."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    counts[: ONE << width] = 0
    for i in range(rows.shape[1]):
        counts[(np.uint64(rows[word, i]) - base) & mask] += ONE


@bare_helper
def _distribute(rows, into, word, base, shift, width, counts, following):
    """Move every row to the next place of its digit, and count the digits before that one."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    place = ZERO
    for digit in range(ONE << width):
        here = counts[digit]
        counts[digit] = place
        place += here
        following[digit] = 0
    if rows.shape[0] == 1:
        for i in range(rows.shape[1]):
            value = rows[ZERO, i]
            key = (np.uint64(value) - base) >> np.uint64(shift)
            digit = key & mask  # unsigned: Numba need not test for negative indexes
            place = counts[digit]
            into[ZERO, np.uint64(place)] = value
            counts[digit] = place + ONE
            following[(key >> np.uint64(width)) & mask] += ONE
        return
    for i in range(rows.shape[1]):
        key = (np.uint64(rows[word, i]) - base) >> np.uint64(shift)
        digit = key & mask
        place = counts[digit]
        for other in range(rows.shape[0]):
            into[other, place] = rows[other, i]
        counts[digit] = place + ONE
        following[(key >> np.uint64(width)) & mask] += ONE
