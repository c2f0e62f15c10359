"""Find the rows of a set that are missing from a subset, by counting (store/complement.py).

An interval of keys in which both have the same number of rows is skipped. Any other one is split at
a row in its middle. So each missing row costs the O(log n) intervals around it, and rows that are
in both sets cost nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import helper, kernel
from tidelog.kernel.descriptors import MARKS, WORDS
from tidelog.kernel.pointers import load32, load64
from tidelog.kernel.scan import BLOCK

# What is known about the live rows of a run: the address of the counts of its tree's nodes, or 0 if
# all rows are alive, and the number of blocks.
NODES, BLOCKS = range(2)

# What is returned in `found`.
WRITTEN, STEPS = range(2)


@njit(cache=True, inline="always")
def _is_alive(runs, r, at, limit):
    return runs[r, MARKS] == 0 or load32(runs[r, MARKS], at) <= limit


@helper
def _count(runs, trees, r, limit, start, stop):
    """Return how many rows of [start, stop) are alive: O(log n)."""
    if trees[r, NODES] == 0 or start >= stop:
        return stop - start
    found = np.int64(0)
    first, last = -(-start // BLOCK), stop // BLOCK
    if first >= last:
        for i in range(start, stop):
            found += np.int64(_is_alive(runs, r, i, limit))
        return found
    for i in range(start, first * BLOCK):
        found += np.int64(_is_alive(runs, r, i, limit))
    for i in range(last * BLOCK, stop):
        found += np.int64(_is_alive(runs, r, i, limit))
    left, right = trees[r, BLOCKS] + first, trees[r, BLOCKS] + last
    while left < right:
        if left & 1:
            found += load64(trees[r, NODES], left)
            left += 1
        if right & 1:
            right -= 1
            found += load64(trees[r, NODES], right)
        left >>= 1
        right >>= 1
    return found


@helper
def _first_not_before(runs, r, words, key, low, high):
    """Return the first position in [low, high) of a run that is not before `key`."""
    while low < high:
        middle = (low + high) >> 1
        before = False
        for w in range(words):
            held = load64(runs[r, WORDS + w], middle)
            if held != key[w]:
                before = held < key[w]
                break
        if before:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def complement(whole, whole_trees, part, part_trees, words, limit, stack, key, out, found):
    """Write the rows of `whole` that are not in `part`, unsorted; `part` is a subset of `whole`.

    `stack` has a row of (start, stop) for each run of both, the first with all their rows. Writes
    no more rows than `out` has room for; if there are more, WRITTEN is beyond its end.
    """
    runs, others = whole.shape[0], part.shape[0]
    written = steps = 0
    depth = 1
    while depth > 0:
        depth -= 1
        steps += 1
        in_whole = np.int64(0)
        in_part = np.int64(0)
        for r in range(runs):
            in_whole += _count(
                whole, whole_trees, r, limit, stack[depth, 2 * r], stack[depth, 2 * r + 1]
            )
        for r in range(others):
            at = 2 * (runs + r)
            in_part += _count(part, part_trees, r, limit, stack[depth, at], stack[depth, at + 1])
        if in_whole == in_part:
            continue
        if in_part == 0:
            for r in range(runs):
                for i in range(stack[depth, 2 * r], stack[depth, 2 * r + 1]):
                    if _is_alive(whole, r, i, limit):
                        if written < out.shape[1]:
                            for w in range(words):
                                out[w, written] = load64(whole[r, WORDS + w], i)
                        written += 1
            continue
        # Split at the middle of the run with the most rows. If no run has more than one, split at
        # the last row. So there are rows on both sides in any case.
        chosen = np.int64(-1)
        most = np.int64(0)
        for r in range(runs):
            size = stack[depth, 2 * r + 1] - stack[depth, 2 * r]
            if size == 0:
                continue
            middle = (stack[depth, 2 * r] + stack[depth, 2 * r + 1]) >> 1
            later = size > most
            if size == 1 and most == 1:
                later = _first_not_before(whole, r, words, key, middle, middle + 1) == middle
            if later:
                chosen = r
                most = size
                for w in range(words):
                    key[w] = load64(whole[r, WORDS + w], middle)
        if chosen < 0:
            written = out.shape[1] + 1  # `part` has rows that are not in `whole`
            break
        for r in range(runs + others):
            start, stop = stack[depth, 2 * r], stack[depth, 2 * r + 1]
            if r < runs:
                at = _first_not_before(whole, r, words, key, start, stop)
            else:
                at = _first_not_before(part, r - runs, words, key, start, stop)
            stack[depth, 2 * r], stack[depth, 2 * r + 1] = at, stop
            stack[depth + 1, 2 * r], stack[depth + 1, 2 * r + 1] = start, at
        depth += 2
    found[WRITTEN], found[STEPS] = written, steps
