"""Ranges of rows written out as columns.

A join in RANGES mode (kernel/join.py) gives what is known before its last scan, and the range of
rows that the scan would read. A column of the result is then either a known value, as often as the
range is long, or a slice of a column of the scanned rows.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import bare_kernel

# Where spreading goes on: the next range, how many of its rows are written, the rows in `into`.
NEXT, BEGUN, FILLED = range(3)
POSITION_SIZE = 3

# `places`, for each column of the result: whether it is known, the row of `ranges` or of `scanned`
# that has it, and what is added to a known value.
IS_KNOWN, PLACE, BIAS = range(3)


@bare_kernel
def spread(ranges, n, scanned, places, into, position):
    """Write columns until all ranges are written, or until `into` is full."""
    capacity = into.shape[1]
    low, high = ranges[ranges.shape[0] - 2], ranges[ranges.shape[0] - 1]
    which, begun, filled = position[NEXT], position[BEGUN], position[FILLED]
    for c in range(places.shape[0]):
        # Column by column: each is written from its beginning to its end.
        target = into[c]
        place, bias = places[c, PLACE], places[c, BIAS]
        which, begun, filled = position[NEXT], position[BEGUN], position[FILLED]
        while which < n and filled < capacity:
            at = low[which] + begun
            size = min(high[which] - at, capacity - filled)
            if places[c, IS_KNOWN]:
                value = ranges[place, which] + bias
                for i in range(size):
                    target[filled + i] = value
            else:
                source = scanned[place]
                for i in range(size):
                    target[filled + i] = source[at + i]
            filled += size
            begun += size
            if at + size == high[which]:
                which += 1
                begun = np.int64(0)
    position[NEXT], position[BEGUN], position[FILLED] = which, begun, filled
