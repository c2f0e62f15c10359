"""The exact sums of groups, in blocks as small as possible.

A sum is stored in its settled form (kernel/exact.py), without the zeros at both ends, so that a
small group takes little room. Its head (kernel/groups.py) says where it is: BLOCK is a position in
`words`, and SHAPE says how to read it. Blocks come in a few sizes, each with a list of free blocks.

`add_up` gives each group of the epoch a new sum in a new block. So `finish` can end an epoch either
way: it frees the old blocks, or restores the old heads and frees the new blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import bare_helper, bare_kernel, kernel
from tidelog.kernel.exact import (
    LIMBS,
    SIZE,
    UNIT_EXPONENT,
    add_float,
    add_whole,
    float_ordinal_of,
    settle,
)
from tidelog.kernel.groups import (
    BEYOND,
    BLOCK,
    BLOCK_SIZES,
    DELETED,
    FIELDS,
    FREE_BLOCK,
    FREE_HEAD,
    INSERTED,
    LIVE,
    NO_NUMBER,
    NUMBER,
    SHAPE,
    SUPPORT,
    TOUCHED,
    UNDO_BLOCK,
    UNDO_SHAPE,
    UNDO_SLOT,
    UNDO_SUPPORT,
    UNDO_VALUE,
    USED,
    VALUE,
    WORDS_USED,
    hash_head,
    remove_group,
)

# Parts of a shape: the first limb, how many there are, and flags.
COUNT_SHIFT = 8
BYTE = 255
NEGATIVE, SPECIAL, VALID = 1 << 16, 1 << 17, 1 << 18
SIZE_SHIFT = 20  # 0: no block

_SPECIAL_WORDS = 6  # three counts of 64 bits
LARGEST_BLOCK = 80

# Columns after the limbs of a group: which limbs are in use, and the change of its support.
LOW, HIGH, CHANGE, ROW = range(SIZE, SIZE + 4)
PART_SHIFT = 10  # groups are added up 2**10 at a time

# The numbers of the results that can be computed from a sum.
OPERATION, IS_FLOAT, HIGH_BIAS, IS_MEAN, SCALE, MOST, OPERATION_SIZE = range(7)
COUNT_ROWS, WHOLE_SUM, FLOAT_RESULT = range(3)

UNIT_SHIFT = 2  # sizes and starts of blocks are multiples of 2**2 words
_MASK = (1 << 32) - 1
_LEAST = -(1 << 63)


@bare_kernel
def order_by_part(which, n, parts, starts, order):
    """Order the rows by the part that their group belongs to; write where each part starts.

    The limbs of the groups of a part fit the cache.
    """
    for p in range(parts + 1):
        starts[p] = 0
    for i in range(n):
        starts[(which[i] >> PART_SHIFT) + 1] += 1
    for p in range(parts):
        starts[p + 1] += starts[p]
    for i in range(n):
        p = which[i] >> PART_SHIFT
        order[starts[p]] = i
        starts[p] += 1
    for p in range(parts, 0, -1):
        starts[p] = starts[p - 1]
    starts[0] = 0


@njit(cache=True, inline="always")
def size_of(block_size):
    """Return the number of words of a block: 4, 8, 16, 32 or 80."""
    return np.int64(LARGEST_BLOCK) if block_size == BLOCK_SIZES else np.int64(2) << block_size


@njit(cache=True, inline="always")
def _load(words, block, shape, limbs, g):
    """Write a sum to the limbs of row g, and note which of them are in use."""
    low = shape & BYTE
    count = (shape >> COUNT_SHIFT) & BYTE
    for i in range(count):
        limb = np.int64(words[block + i])
        limbs[g, low + i] = -limb if shape & NEGATIVE else limb
    if shape & SPECIAL:
        for s in range(3):
            at = block + count + 2 * s
            limbs[g, LIMBS + s] = np.int64(words[at]) | (np.int64(words[at + 1]) << 32)
    limbs[g, LOW] = low if count != 0 else LIMBS
    limbs[g, HIGH] = low + count


@njit(cache=True, inline="always")
def _keep(words, state, limbs, sign, low, high):
    """Write settled limbs to a new block; return it and its shape."""
    special = limbs[LIMBS] != 0 or limbs[LIMBS + 1] != 0 or limbs[LIMBS + 2] != 0
    needed = high - low + (_SPECIAL_WORDS if special else 0)
    if needed == 0:
        return np.int64(0), np.int64(0)
    block_size = np.int64(1)
    while size_of(block_size) < needed:
        block_size += 1
    block = state[FREE_BLOCK + block_size] - 1
    if block >= 0:
        state[FREE_BLOCK + block_size] = np.int64(words[block])
    else:
        block = state[WORDS_USED]
        state[WORDS_USED] += size_of(block_size)
    for i in range(low, high):
        words[block + i - low] = limbs[i]
    if special:
        for s in range(3):
            at = block + high - low + 2 * s
            words[at] = limbs[LIMBS + s] & _MASK
            words[at + 1] = limbs[LIMBS + s] >> 32
    shape = low | ((high - low) << COUNT_SHIFT) | (block_size << SIZE_SHIFT)
    if sign < 0:
        shape |= NEGATIVE
    if special:
        shape |= SPECIAL
    return block, shape


@njit(cache=True, inline="always")
def _free(words, state, block, shape):
    """Put a block on the free list of its size."""
    block_size = shape >> SIZE_SHIFT
    if block_size != 0:
        words[block] = state[FREE_BLOCK + block_size]
        state[FREE_BLOCK + block_size] = block + 1


@njit(cache=True, inline="always")
def value_of(operation, support, limbs, sign, low, high):
    """Return the ordinal of a result, and whether it is within its type."""
    if operation[OPERATION] == COUNT_ROWS:
        return support, True
    if operation[OPERATION] == FLOAT_RESULT:
        exponent = UNIT_EXPONENT if operation[IS_FLOAT] != 0 else 0
        count = support if operation[IS_MEAN] != 0 else np.int64(1)
        return float_ordinal_of(limbs, sign, low, high, exponent, count, operation[SCALE]), True
    size = limbs[0] | (limbs[1] << 32)
    if high > 2:
        return np.int64(0), False
    if operation[HIGH_BIAS] != 0:
        return size ^ np.int64(_LEAST), sign >= 0
    if size == _LEAST and sign < 0:
        return size, operation[MOST] == 0
    if size < 0 or (operation[MOST] != 0 and size >= operation[MOST]):
        return np.int64(0), False
    return sign * size, True


@bare_helper
def _add_rows(limbs, operation, which, values, added, order, start, stop, first):
    """Add rows to the limbs of their groups."""
    is_ordered = order.shape[0] != 0
    is_counted, is_float = operation[OPERATION] == COUNT_ROWS, operation[IS_FLOAT] != 0
    high_bias = operation[HIGH_BIAS]
    for j in range(start, stop):
        i = order[j] if is_ordered else j
        g = which[i] - first
        one = np.int64(1) if i < added else np.int64(-1)
        limbs[g, CHANGE] += one
        if is_counted:
            continue
        if is_float:
            at = add_float(limbs, g, values[i], one)
            if at < 0:
                continue
        else:
            add_whole(limbs, g, values[i], one, high_bias)
            at = np.int64(0)
        # With `min` and `max`, in a function of its own, this took ten times as long: 46 ns a row,
        # not 5. Which of the two made the difference is not known.
        is_lower, is_higher = at < limbs[g, LOW], at + 3 > limbs[g, HIGH]
        if is_lower:
            limbs[g, LOW] = at
        if is_higher:
            limbs[g, HIGH] = at + 3


@bare_helper
def _add_partials(limbs, operation, which, partials, added, order, start, stop, first):
    """Add partial results (kernel/scan.py) to the limbs of their groups."""
    is_ordered, is_counted = order.shape[0] != 0, operation[OPERATION] == COUNT_ROWS
    for j in range(start, stop):
        i = order[j] if is_ordered else j
        g = which[i] - first
        one = np.int64(1) if i < added else np.int64(-1)
        count, high, low = partials[0, i], partials[1, i], partials[2, i]
        limbs[g, CHANGE] += one * count
        if is_counted:
            continue
        high += (low >> 32) + count * operation[HIGH_BIAS]
        limbs[g, 0] += one * (low & _MASK)
        limbs[g, 1] += one * (high & _MASK)
        limbs[g, 2] += one * (high >> 32)
        limbs[g, LOW] = 0
        limbs[g, HIGH] = max(limbs[g, HIGH], 3)


@bare_kernel
def add_up(
    heads, words, state, undo, operation, which, values, partials, added, order, start, stop,
    first, limbs, deleted, inserted,
):  # fmt: skip
    """Add rows to the groups from number `first` on, and store the new sums.

    The rows are order[start:stop], or all of [start, stop) if there is no order; those numbered
    `added` and more are subtracted. Each row has one of the `values`; or it stands for many rows,
    and has a count and a sum in two halves in `partials` (not for floats). `limbs` has a row for
    each group of the part, all zeros before and after. `deleted` and `inserted` get the result rows
    (key, value) of these groups. Groups whose sum overflows its type are counted. The caller has
    made room for a block of the largest size for each group.
    """
    width = heads.shape[1] - FIELDS
    last = min(first + limbs.shape[0], state[TOUCHED])
    for g in range(first, last):
        slot = undo[g, UNDO_SLOT]
        _load(words, heads[slot, width + BLOCK], heads[slot, width + SHAPE], limbs, g - first)
    if partials.shape[1] != 0:
        _add_partials(limbs, operation, which, partials, added, order, start, stop, first)
    else:
        _add_rows(limbs, operation, which, values, added, order, start, stop, first)
    for g in range(first, last):
        slot, row = undo[g, UNDO_SLOT], limbs[g - first]
        sign, low, high = settle(row, row[LOW], row[HIGH])
        support = heads[slot, width + SUPPORT] + row[CHANGE]
        value, is_valid = value_of(operation, support, row, sign, low, high)
        block, shape = _keep(words, state, row, sign, low, high)
        for i in range(min(row[LOW], low), max(row[HIGH], high)):
            row[i] = 0
        for i in range(LIMBS, ROW):
            row[i] = 0
        had, before = heads[slot, width + SHAPE] & VALID != 0, heads[slot, width + VALUE]
        has = support > 0 and is_valid
        if support > 0 and not is_valid:
            state[BEYOND] += 1
        heads[slot, width + SUPPORT] = support
        heads[slot, width + VALUE] = value if has else 0
        heads[slot, width + BLOCK] = block
        heads[slot, width + SHAPE] = shape | (VALID if has else 0)
        heads[slot, width + NUMBER] = NO_NUMBER
        if had and not (has and value == before):
            for c in range(width):
                deleted[c, state[DELETED]] = heads[slot, c]
            deleted[width, state[DELETED]] = before
            state[DELETED] += 1
        if has and not (had and value == before):
            for c in range(width):
                inserted[c, state[INSERTED]] = heads[slot, c]
            inserted[width, state[INSERTED]] = value
            state[INSERTED] += 1


@bare_kernel
def finish(heads, table, words, state, undo, aborts):
    """End an epoch: keep what was written to its groups, or restore what they were before."""
    width = heads.shape[1] - FIELDS
    for g in range(state[TOUCHED]):
        slot = undo[g, UNDO_SLOT]
        block, shape = heads[slot, width + BLOCK], heads[slot, width + SHAPE]
        old_block, old_shape = undo[g, UNDO_BLOCK], undo[g, UNDO_SHAPE]
        if heads[slot, width + NUMBER] == NO_NUMBER:  # else it has not been written
            if aborts:
                _free(words, state, block, shape)
            else:
                _free(words, state, old_block, old_shape)
        if aborts:
            heads[slot, width + SUPPORT] = undo[g, UNDO_SUPPORT]
            heads[slot, width + VALUE] = undo[g, UNDO_VALUE]
            heads[slot, width + BLOCK] = old_block
            heads[slot, width + SHAPE] = old_shape
            heads[slot, width + NUMBER] = NO_NUMBER
        if heads[slot, width + SUPPORT] == 0:
            remove_group(heads, table, state, width, slot)
    state[TOUCHED] = 0


@kernel
def adopt(heads, words, state, table, taken):
    """Build what a file of groups lacks: the hash table, the lists of free heads and blocks.

    The hash table is empty, and `state` says only how many heads and words are in use. `taken` has
    a zero for each smallest block that the words in use have room for.
    """
    width = heads.shape[1] - FIELDS
    mask = table.shape[0] - 1
    for slot in range(state[USED] - 1, -1, -1):
        if heads[slot, width + SUPPORT] > 0:
            state[LIVE] += 1
            at = hash_head(heads, width, slot, mask)
            while table[at] != 0:
                at = (at + 1) & mask
            table[at] = slot + 1
            block_size = heads[slot, width + SHAPE] >> SIZE_SHIFT
            if block_size != 0:
                first = heads[slot, width + BLOCK] >> UNIT_SHIFT
                for i in range(first, first + (size_of(block_size) >> UNIT_SHIFT)):
                    taken[i] = 1
        else:
            heads[slot, width + SUPPORT] = -1
            heads[slot, width + VALUE] = state[FREE_HEAD]
            state[FREE_HEAD] = slot + 1
    units = state[WORDS_USED] >> UNIT_SHIFT
    at = np.int64(0)
    while at < units:
        if taken[at] != 0:
            at += 1
            continue
        stop = at
        while stop < units and taken[stop] == 0:
            stop += 1
        while at < stop:  # the blocks of a gap are as large as possible
            block_size = np.int64(BLOCK_SIZES)
            while size_of(block_size) >> UNIT_SHIFT > stop - at:
                block_size -= 1
            _free(words, state, at << UNIT_SHIFT, block_size << SIZE_SHIFT)
            at += size_of(block_size) >> UNIT_SHIFT
