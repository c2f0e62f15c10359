"""Finding a place in a sorted array."""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.memory import load64

FEW = 64


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


@njit(cache=True, inline="always")
def count_before(address, low, high, target):
    """Return the first position in [low, high) whose word is at least `target`, or `high`.

    For a range of some ten rows, as a directory leaves: all of them are looked at. No branch
    depends on what is read, so that nothing is guessed wrongly, several rows are compared at once,
    and the processor begins with the next search while this one waits for memory.
    """
    while high - low > FEW:
        middle = (low + high) >> 1
        if load64(address, middle) < target:
            low = middle + 1
        else:
            high = middle
    found = low
    for at in range(low, high):
        found += np.int64(load64(address, at) < target)
    return found
