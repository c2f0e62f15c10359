"""Finding a place in a sorted array."""

from __future__ import annotations

from numba import njit

from tidelog.kernel.memory import load64


@njit(cache=True, inline="always")
def gallop(address, low, high, target):
    """Return the first position in [low, high) whose word is at least `target`, or `high`.

    Steps double from `low` on, then a binary search closes in: O(log d) for a place d rows away.
    Joins move forward in small steps, so this beats a binary search over the whole range 15 times.
    """
    if low >= high or load64(address, low) >= target:
        return low
    before = low
    step = 1
    probe = low + 1
    while probe < high and load64(address, probe) < target:
        before = probe
        step <<= 1
        probe = before + step
    probe = min(probe, high)
    low = before + 1
    while low < probe:
        middle = (low + probe) >> 1
        if load64(address, middle) < target:
            low = middle + 1
        else:
            probe = middle
    return low
