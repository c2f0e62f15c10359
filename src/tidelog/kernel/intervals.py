"""Tree surgery, and the search for intervals that contain a value (leapfrog-maintenance.md, 3.2).

`surgeries` turns changed rows into changed prefixes: a branch of the trie appears with its first
row, and vanishes with its last one. `stab` finds the rows (key.., first, last, others..) of a
sensitivity index whose key is given and whose interval contains a value. Rows with the key that
begin at or before the value are one range of a sorted run. A scan tree over `last` (kernel/scan.py)
finds those that end at or behind it in O(log n) for each.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import checked
from tidelog.kernel.compiling import ONE, bare_kernel, inlined
from tidelog.kernel.descriptors import MARKS, SIZE, WORDS
from tidelog.kernel.pointers import load32, load64
from tidelog.kernel.scan import BLOCK, GREATEST
from tidelog.kernel.search import gallop

_WORD, _SHIFT, _MASK, _PREFIX = range(4)  # of a column, by depth (store/layout.py)


@inlined
def _range_of(address, at, end, prefix, shift, value):
    """Return the range of the rows of [at, end) that have a value in their next column."""
    if at >= end:
        return end, end
    target = (load64(address, at) & prefix) + (value << shift)
    at = gallop(address, at, end, target)
    after, overflowed = checked.add(target, ONE << shift)
    return at, end if overflowed else gallop(address, at, end, after)


@bare_kernel
def surgeries(runs, count, limit, by_depth, codes, n, changed):
    """Mark the prefixes that other rows of a version do not have.

    `codes` are the columns of changed rows, in the order of the index and sorted by it, and the
    first `count` of `runs` are those of the version. `changed` gets True by depth and row, for the
    first row with a prefix.
    """
    depths = by_depth.shape[0]
    for i in range(n):
        same = i > 0  # whether the row before has the same prefix
        for depth in range(depths):
            same = same and codes[depth, i - 1] == codes[depth, i]
            changed[depth, i] = not same
        for r in range(count):
            at, end = np.int64(0), runs[r, SIZE]
            marks = runs[r, MARKS]
            for depth in range(depths):
                at, end = _range_of(
                    runs[r, WORDS + by_depth[depth, _WORD]], at, end, by_depth[depth, _PREFIX],
                    by_depth[depth, _SHIFT], codes[depth, i],
                )  # fmt: skip
                if marks != 0:
                    while at < end and load32(marks, at) > limit:
                        at += 1
                if at == end:
                    break
                changed[depth, i] = False


@inlined
def _keep(runs, words, r, at, limit, word, shift, mask, value, places, found):
    """Add the row at `at` to the places found if it is alive and its interval ends late enough."""
    marks = runs[r, MARKS]
    if marks != 0 and load32(marks, at) > limit:
        return found
    if ((load64(runs[r, WORDS + word], at) >> shift) & mask) < value:
        return found
    if found < places.shape[1]:
        for w in range(words):
            places[w, found] = load64(runs[r, WORDS + w], at)
    return found + 1


@bare_kernel
def stab(runs, trees, limit, words, by_depth, keys, n, places):
    """Find the rows whose keys are given and whose intervals contain a value.

    The rows of `keys` are those of the key's columns, and the value; n is the number of searches.
    `trees` has the address of the nodes and the number of blocks of each run's tree; 0 for a run
    that has none. Rows are written to `places`. Returns their number; if there is no room for all,
    those beyond are not written.
    """
    found = np.int64(0)
    depth = keys.shape[0] - 1
    first_word, first_shift = by_depth[depth, _WORD], by_depth[depth, _SHIFT]
    first_mask, first_prefix = by_depth[depth, _MASK], by_depth[depth, _PREFIX]
    word, shift, mask = (
        by_depth[depth + 1, _WORD], by_depth[depth + 1, _SHIFT], by_depth[depth + 1, _MASK],
    )  # fmt: skip
    stack = np.int64(0)
    for i in range(n):
        value = keys[depth, i]
        for r in range(runs.shape[0]):
            low, high = np.int64(0), runs[r, SIZE]
            for d in range(depth):
                low, high = _range_of(
                    runs[r, WORDS + by_depth[d, _WORD]], low, high, by_depth[d, _PREFIX],
                    by_depth[d, _SHIFT], keys[d, i],
                )  # fmt: skip
            if low == high:
                continue
            # Rows that begin at or before the value.
            if (first_mask == -1 and value < np.int64(2**63 - 1)) or value < first_mask:
                address = runs[r, WORDS + first_word]
                target = (load64(address, low) & first_prefix) + ((value + 1) << first_shift)
                high = gallop(address, low, high, target)
            nodes, blocks = trees[r, 0], trees[r, 1]
            start, stop = -(-low // BLOCK), high // BLOCK
            if nodes == 0 or start >= stop:
                for at in range(low, high):
                    found = _keep(
                        runs, words, r, at, limit, word, shift, mask, value, places, found
                    )
                continue
            for at in range(low, start * BLOCK):
                found = _keep(runs, words, r, at, limit, word, shift, mask, value, places, found)
            for at in range(stop * BLOCK, high):
                found = _keep(runs, words, r, at, limit, word, shift, mask, value, places, found)
            # The nodes that make up the blocks [start, stop), and below each those that qualify.
            greatest = nodes + 8 * GREATEST * 2 * blocks
            left, right = blocks + start, blocks + stop
            while left < right:
                for side in range(2):
                    node = np.int64(0)
                    if side == 0 and left & 1:
                        node = left
                        left += 1
                    elif side == 1 and right & 1:
                        right -= 1
                        node = right
                    stack = node
                    # Depth first below `node`, without a stack: the next node follows from bits.
                    while node > 0 and stack > 0:
                        if load64(greatest, stack) >= value:
                            if stack < blocks:
                                stack = 2 * stack
                                continue
                            b = stack - blocks
                            for at in range(b * BLOCK, (b + 1) * BLOCK):
                                found = _keep(
                                    runs, words, r, at, limit, word, shift, mask, value, places,
                                    found,
                                )  # fmt: skip
                        while stack != node and stack & 1:
                            stack >>= 1
                        if stack == node:
                            stack = np.int64(0)
                        else:
                            stack += 1
                left >>= 1
                right >>= 1
    return found


@bare_kernel
def unite(regions, n, united):
    """Unite the regions of each node; they are sorted by all of their columns.

    A region: its level, the values of its node, the first and the last value, whether it is
    recorded. One that is not recorded has one value. Returns how many are left.
    """
    width = regions.shape[1]
    kept = np.int64(0)
    for i in range(n):
        same = kept > 0
        for c in range(width - 3):
            same = same and regions[i, c] == united[kept - 1, c]
        first, last = regions[i, width - 3], regions[i, width - 2]
        records = regions[i, width - 1] != 0
        if same and first <= united[kept - 1, width - 2]:
            if united[kept - 1, width - 1]:
                if records:
                    united[kept - 1, width - 2] = max(united[kept - 1, width - 2], last)
                continue
            if not records:
                continue
            kept -= 1  # what is recorded takes the place of what is only visited
        for c in range(width):
            united[kept, c] = regions[i, c]
        united[kept, width - 1] = records
        kept += 1
    return kept
