"""Counting the points of a rectangle: a wavelet matrix.

Points are numbered by one coordinate, and have ranks by the other. The matrix has a level for each
bit of a rank, the highest first. A level sorts the points by its bit, and keeps their order
otherwise; so those that are adjacent and agree in the bits so far are a range on every level.
`before` says how many points with a 0 precede each position. Counting the points between two
positions whose rank is below a bound takes one step a level.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import ONE, ZERO, bare_kernel_without_gil, inlined
from tidelog.kernel.nesting import MOST_RESULTS


@bare_kernel_without_gil
def build(ranks, other, before):
    """Fill the levels; `ranks` are overwritten, and so is `other`, which has room for as many."""
    levels, n = before.shape[0], ranks.shape[0]
    for level in range(levels):
        shift = levels - ONE - level
        zeros = ZERO
        for i in range(n):
            before[level, i] = zeros
            zeros += ONE - ((ranks[i] >> shift) & ONE)
        before[level, n] = zeros
        for i in range(n):
            bit = (ranks[i] >> shift) & ONE
            place = zeros + i - before[level, i] if bit else before[level, i]
            other[place] = ranks[i]
        for i in range(n):
            ranks[i] = other[i]


@inlined
def _below(before, low, high, bound):
    """Count the points from `low` up to `high` whose rank is below a bound."""
    levels, n = before.shape[0], before.shape[1] - ONE
    if bound >> levels:
        return high - low
    found = ZERO
    for level in range(levels):
        left, right = np.int64(before[level, low]), np.int64(before[level, high])
        if (bound >> (levels - ONE - level)) & ONE:
            found += right - left
            zeros = np.int64(before[level, n])
            low, high = zeros + low - left, zeros + high - right
        else:
            low, high = left, right
    return found


@bare_kernel_without_gil
def multiply_by_points(before, ranges, least, behind, n, counts):
    """Multiply counts by the points of a rectangle each: a range, and ranks from `least` on.

    Returns False if there are too many.
    """
    for i in range(n):
        if counts[i] == 0 or ranges[0, i] >= ranges[1, i] or least[i] >= behind[i]:
            counts[i] = 0
            continue
        upper = _below(before, ranges[0, i], ranges[1, i], behind[i])
        found = upper - _below(before, ranges[0, i], ranges[1, i], least[i])
        if np.float64(found) * np.float64(counts[i]) > np.float64(MOST_RESULTS):
            return False
        counts[i] *= found
    return True
