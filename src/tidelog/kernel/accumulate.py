"""Groups and what they add up to: a hash table of groups, and exact sums beside it.

A group has a *head*, a row of numbers: its key, SUPPORT (the number of its rows), VALUE (the
ordinal of its result), and where its sum is: BLOCK, a place among `words`, and SHAPE, which tells
how to read it. A sum is kept in its settled form (kernel/exact.py), without the zeros at both ends,
so that a small group takes little room. Blocks come in a few sizes; those that are free form a list
of each size.

`note_groups` finds the groups of changed rows, and writes their heads to the log; `add_up` gives
each a new sum in a new block. So `finish` can end an epoch either way: it lets go of the old
blocks, or puts the old heads back and lets go of the new ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.exact import (
    LIMBS,
    SIZE,
    UNIT_EXPONENT,
    add_float,
    add_whole,
    float_ordinal_of,
    settle,
)

# Columns of a head, behind the key.
SUPPORT, VALUE, BLOCK, SHAPE, NUMBER, FIELDS = range(6)  # NUMBER: among the groups of this call
NO_NUMBER = -1

# Parts of a shape: the first limb, how many there are, and flags.
_COUNT_SHIFT = 8
_BYTE = 255
NEGATIVE, SPECIAL, VALID = 1 << 16, 1 << 17, 1 << 18
_CLASS_SHIFT = 20  # 0: no block

# What is known of the arrays, beside their sizes.
USED, FREE_HEAD, LIVE, WORDS_USED, TOUCHED, GONE, COME, FREE_BLOCK = range(8)
CLASSES = 5
STATE = FREE_BLOCK + CLASSES + 1
_SPECIAL_WORDS = 6  # three counts of 64 bits
LARGEST_BLOCK = 80

# Columns of the limbs of a group, behind the limbs: those in use, and the change of its support.
LOW, HIGH, CHANGE, ROW = range(SIZE, SIZE + 4)
PART_SHIFT = 10  # so many groups are added up at a time, as a power of 2

# Columns of the log.
LOG_SLOT, LOG_SUPPORT, LOG_VALUE, LOG_BLOCK, LOG_SHAPE, LOG = range(6)

# What is computed, as numbers.
OPERATION, IS_FLOAT, HIGH_BIAS, IS_MEAN, SCALE, MOST, OPERATION_SIZE = range(7)
COUNT_ROWS, WHOLE_SUM, FLOAT_RESULT = range(3)

_MASK = (1 << 32) - 1
_LEAST = -(1 << 63)
_MIX = -7046029254386353131


@njit(cache=True, inline="always")
def _hash_columns(columns, key, i, mask):
    mixed = np.int64(0)
    for c in range(key.shape[0]):
        mixed = (mixed ^ columns[key[c], i]) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed & mask


@njit(cache=True, inline="always")
def _hash_head(heads, width, slot, mask):
    mixed = np.int64(0)
    for c in range(width):
        mixed = (mixed ^ heads[slot, c]) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed & mask


@njit(cache=True)
def find_groups(heads, table, columns, key, n, slots):
    """Write the slot of each group, -1 for groups that are not there."""
    mask = table.shape[0] - 1
    for i in range(n):
        at = _hash_columns(columns, key, i, mask)
        slots[i] = -1
        while table[at] != 0:
            slot = np.int64(table[at]) - 1
            equal = True
            for c in range(key.shape[0]):
                equal = equal and heads[slot, c] == columns[key[c], i]
            if equal:
                slots[i] = slot
                break
            at = (at + 1) & mask


@njit(cache=True)
def note_groups(heads, table, state, columns, key, start, n, which, log, seen, lowest):
    """Find the groups of rows, new ones are made; return how many rows are done.

    It returns early when an array is full, to be called again with a larger one.
    `which` gets the number of each row's group, by first appearance. Each group is logged once.
    `seen`, if it is not empty, has a place for each value of a key of one column from `lowest` on:
    what was found there is not looked up again.
    """
    mask = table.shape[0] - 1
    width = key.shape[0]
    previous = np.int64(-1)
    is_direct = seen.shape[0] != 0
    for i in range(start, n):
        if is_direct:
            number = np.int64(seen[columns[key[0], i] - lowest]) - 1
            if number >= 0:
                which[i] = number
                continue
        slot = previous
        if slot >= 0:  # rows of a group often come together
            for c in range(width):
                if heads[slot, c] != columns[key[c], i]:
                    slot = np.int64(-1)
                    break
        if slot < 0:
            at = _hash_columns(columns, key, i, mask)
            while table[at] != 0:
                slot = np.int64(table[at]) - 1
                for c in range(width):
                    if heads[slot, c] != columns[key[c], i]:
                        slot = np.int64(-1)
                        break
                if slot >= 0:
                    break
                at = (at + 1) & mask
            if slot < 0:
                slot = state[FREE_HEAD] - 1
                is_full = slot < 0 and state[USED] == heads.shape[0]
                if (
                    is_full
                    or 2 * (state[LIVE] + 1) > table.shape[0]
                    or (state[TOUCHED] == log.shape[0])
                ):
                    return i
                if slot >= 0:
                    state[FREE_HEAD] = heads[slot, width + VALUE]
                else:
                    slot = state[USED]
                    state[USED] += 1
                for c in range(width):
                    heads[slot, c] = columns[key[c], i]
                for f in range(FIELDS):
                    heads[slot, width + f] = 0
                heads[slot, width + NUMBER] = NO_NUMBER
                table[at] = slot + 1
                state[LIVE] += 1
        if heads[slot, width + NUMBER] == NO_NUMBER:
            number = state[TOUCHED]
            if number == log.shape[0]:
                return i
            state[TOUCHED] += 1
            heads[slot, width + NUMBER] = number
            log[number, LOG_SLOT] = slot
            log[number, LOG_SUPPORT] = heads[slot, width + SUPPORT]
            log[number, LOG_VALUE] = heads[slot, width + VALUE]
            log[number, LOG_BLOCK] = heads[slot, width + BLOCK]
            log[number, LOG_SHAPE] = heads[slot, width + SHAPE]
        which[i] = heads[slot, width + NUMBER]
        if is_direct:
            seen[columns[key[0], i] - lowest] = which[i] + 1
        previous = slot
    return n


@njit(cache=True)
def order_by_part(which, n, parts, starts, order):
    """Write the rows in the order of the part that their group belongs to, and where each starts.

    A part has so many groups that their limbs fit the cache.
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
def _size_of(block_class):
    """Return the words of a block: 4, 8, 16, 32 or 80."""
    return np.int64(LARGEST_BLOCK) if block_class == CLASSES else np.int64(2) << block_class


@njit(cache=True, inline="always")
def _load(words, block, shape, limbs, g):
    """Write a sum to the limbs of row g, and which of them are in use."""
    low = shape & _BYTE
    count = (shape >> _COUNT_SHIFT) & _BYTE
    for i in range(count):
        limb = np.int64(words[block + i])
        limbs[g, low + i] = -limb if shape & NEGATIVE else limb
    if shape & SPECIAL:
        for s in range(3):
            at = block + count + 2 * s
            limbs[g, LIMBS + s] = np.int64(words[at]) | (np.int64(words[at + 1]) << 32)
    limbs[g, LOW] = low if count != 0 else LIMBS
    limbs[g, HIGH] = low + count


@njit(cache=True)
def _keep(words, state, limbs, sign, low, high):
    """Write settled limbs to a new block; return it and its shape."""
    special = limbs[LIMBS] != 0 or limbs[LIMBS + 1] != 0 or limbs[LIMBS + 2] != 0
    needed = high - low + (_SPECIAL_WORDS if special else 0)
    if needed == 0:
        return np.int64(0), np.int64(0)
    block_class = np.int64(1)
    while _size_of(block_class) < needed:
        block_class += 1
    block = state[FREE_BLOCK + block_class] - 1
    if block >= 0:
        state[FREE_BLOCK + block_class] = np.int64(words[block])
    else:
        block = state[WORDS_USED]
        state[WORDS_USED] += _size_of(block_class)
    for i in range(low, high):
        words[block + i - low] = limbs[i]
    if special:
        for s in range(3):
            at = block + high - low + 2 * s
            words[at] = limbs[LIMBS + s] & _MASK
            words[at + 1] = limbs[LIMBS + s] >> 32
    shape = low | ((high - low) << _COUNT_SHIFT) | (block_class << _CLASS_SHIFT)
    if sign < 0:
        shape |= NEGATIVE
    if special:
        shape |= SPECIAL
    return block, shape


@njit(cache=True)
def _let_go(words, state, block, shape):
    """Put a block on the list of its size."""
    block_class = shape >> _CLASS_SHIFT
    if block_class != 0:
        words[block] = state[FREE_BLOCK + block_class]
        state[FREE_BLOCK + block_class] = block + 1


@njit(cache=True)
def _value(operation, support, limbs, sign, low, high):
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


@njit(cache=True)
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
        # Written only where they change: to write them for every row takes ten times as long.
        is_lower, is_higher = at < limbs[g, LOW], at + 3 > limbs[g, HIGH]
        if is_lower:
            limbs[g, LOW] = at
        if is_higher:
            limbs[g, HIGH] = at + 3


@njit(cache=True)
def add_up(
    heads, words, state, log, operation, which, values, added, order, start, stop, first, limbs,
    gone, come,
):  # fmt: skip
    """Add rows to the groups from number `first` on, and keep what becomes of these.

    The rows are order[start:stop], or all of [start, stop) if there is no order; those numbered
    `added` and more are taken away. `limbs` has a row for each group of the part; it comes and
    goes with zeros. `gone` and `come` get the result rows (key, value) that change. There is room
    for a block of the largest size for each group.
    """
    width = heads.shape[1] - FIELDS
    last = min(first + limbs.shape[0], state[TOUCHED])
    for g in range(first, last):
        slot = log[g, LOG_SLOT]
        _load(words, heads[slot, width + BLOCK], heads[slot, width + SHAPE], limbs, g - first)
    _add_rows(limbs, operation, which, values, added, order, start, stop, first)
    for g in range(first, last):
        slot, row = log[g, LOG_SLOT], limbs[g - first]
        sign, low, high = settle(row, row[LOW], row[HIGH])
        support = heads[slot, width + SUPPORT] + row[CHANGE]
        value, is_valid = _value(operation, support, row, sign, low, high)
        block, shape = _keep(words, state, row, sign, low, high)
        for i in range(min(row[LOW], low), max(row[HIGH], high)):
            row[i] = 0
        for i in range(LIMBS, ROW):
            row[i] = 0
        had, before = heads[slot, width + SHAPE] & VALID != 0, heads[slot, width + VALUE]
        has = support > 0 and is_valid
        heads[slot, width + SUPPORT] = support
        heads[slot, width + VALUE] = value if has else 0
        heads[slot, width + BLOCK] = block
        heads[slot, width + SHAPE] = shape | (VALID if has else 0)
        heads[slot, width + NUMBER] = NO_NUMBER
        if had and not (has and value == before):
            for c in range(width):
                gone[c, state[GONE]] = heads[slot, c]
            gone[width, state[GONE]] = before
            state[GONE] += 1
        if has and not (had and value == before):
            for c in range(width):
                come[c, state[COME]] = heads[slot, c]
            come[width, state[COME]] = value
            state[COME] += 1


@njit(cache=True)
def _remove(heads, table, state, width, slot):
    """Take a group out of the hash table, and close the gap: later ones move up."""
    mask = table.shape[0] - 1
    at = _hash_head(heads, width, slot, mask)
    while np.int64(table[at]) != slot + 1:
        at = (at + 1) & mask
    table[at] = 0
    gap = at
    at = (at + 1) & mask
    while table[at] != 0:
        home = _hash_head(heads, width, np.int64(table[at]) - 1, mask)
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            table[at] = 0
            gap = at
        at = (at + 1) & mask
    heads[slot, width + SUPPORT] = -1
    heads[slot, width + VALUE] = state[FREE_HEAD]
    state[FREE_HEAD] = slot + 1
    state[LIVE] -= 1


@njit(cache=True)
def finish(heads, table, words, state, log, undo):
    """End an epoch: keep what was written to the groups of the log, or put back what they were."""
    width = heads.shape[1] - FIELDS
    for g in range(state[TOUCHED]):
        slot = log[g, LOG_SLOT]
        block, shape = heads[slot, width + BLOCK], heads[slot, width + SHAPE]
        old_block, old_shape = log[g, LOG_BLOCK], log[g, LOG_SHAPE]
        if heads[slot, width + NUMBER] == NO_NUMBER:  # else it has not been written
            if undo:
                _let_go(words, state, block, shape)
            else:
                _let_go(words, state, old_block, old_shape)
        if undo:
            heads[slot, width + SUPPORT] = log[g, LOG_SUPPORT]
            heads[slot, width + VALUE] = log[g, LOG_VALUE]
            heads[slot, width + BLOCK] = old_block
            heads[slot, width + SHAPE] = old_shape
            heads[slot, width + NUMBER] = NO_NUMBER
        if heads[slot, width + SUPPORT] == 0:
            _remove(heads, table, state, width, slot)
    state[TOUCHED] = 0


@njit(cache=True)
def enter_all(heads, used, table):
    """Enter the groups into an empty hash table."""
    width = heads.shape[1] - FIELDS
    mask = table.shape[0] - 1
    for slot in range(used):
        if heads[slot, width + SUPPORT] >= 0:
            at = _hash_head(heads, width, slot, mask)
            while table[at] != 0:
                at = (at + 1) & mask
            table[at] = slot + 1
