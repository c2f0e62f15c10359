"""The groups of an aggregate: a hash table of their keys, and what an epoch does to them.

A group has a *head*, a row of numbers: its key, SUPPORT (the number of its rows), VALUE (the
ordinal of its result), BLOCK and SHAPE (where its sum is, kernel/accumulate.py). The hash table has
the numbers of heads, plus 1. Free heads form a list.

`note_groups` finds the groups of changed rows, and copies their heads to the undo array before
anything is changed. A group that has lost its last row is removed when the epoch ends, and a new
group if the epoch is aborted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import bare_helper, bare_kernel, kernel

# Columns of a head, after the key.
SUPPORT, VALUE, BLOCK, SHAPE, NUMBER, FIELDS = range(6)  # NUMBER: among the groups of this call
NO_NUMBER = -1

# Fields of the state.
USED, FREE_HEAD, LIVE, WORDS_USED, TOUCHED, DELETED, INSERTED, BEYOND, FREE_BLOCK = range(9)
BLOCK_SIZES = 5  # from FREE_BLOCK + 1 on: the free blocks of each size
STATE = FREE_BLOCK + BLOCK_SIZES + 1

# Columns of the undo array.
UNDO_SLOT, UNDO_SUPPORT, UNDO_VALUE, UNDO_BLOCK, UNDO_SHAPE, UNDO_SIZE = range(6)

_MIX = -7046029254386353131


@njit(cache=True, inline="always")
def _hash_columns(columns, key, i, mask):
    mixed = np.int64(0)
    for c in range(key.shape[0]):
        mixed = (mixed ^ columns[key[c], i]) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed & mask


@njit(cache=True, inline="always")
def hash_head(heads, width, slot, mask):
    """Return the place in the hash table where the search for a group starts."""
    mixed = np.int64(0)
    for c in range(width):
        mixed = (mixed ^ heads[slot, c]) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed & mask


@bare_kernel
def find_groups(heads, table, columns, key, n, slots):
    """Write the slot of each group, or -1 if there is no such group."""
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


@bare_kernel
def note_groups(heads, table, state, columns, key, start, n, which, undo, seen, lowest):
    """Find the groups of rows, and add the new ones; return how many rows are done.

    Returns early when an array is full; the caller enlarges it and calls again. `which` gets the
    number of each row's group, by first appearance. Each group gets one undo entry. `seen`, if it
    is not empty, caches the groups of a key of one column, by its value, from `lowest` on.
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
        if slot >= 0:  # rows of a group often follow each other
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
                    or (state[TOUCHED] == undo.shape[0])
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
            if number == undo.shape[0]:
                return i
            state[TOUCHED] += 1
            heads[slot, width + NUMBER] = number
            undo[number, UNDO_SLOT] = slot
            undo[number, UNDO_SUPPORT] = heads[slot, width + SUPPORT]
            undo[number, UNDO_VALUE] = heads[slot, width + VALUE]
            undo[number, UNDO_BLOCK] = heads[slot, width + BLOCK]
            undo[number, UNDO_SHAPE] = heads[slot, width + SHAPE]
        which[i] = heads[slot, width + NUMBER]
        if is_direct:
            seen[columns[key[0], i] - lowest] = which[i] + 1
        previous = slot
    return n


@bare_helper
def remove_group(heads, table, state, width, slot):
    """Remove a group from the hash table, and close the gap: later groups move up."""
    mask = table.shape[0] - 1
    at = hash_head(heads, width, slot, mask)
    while np.int64(table[at]) != slot + 1:
        at = (at + 1) & mask
    table[at] = 0
    gap = at
    at = (at + 1) & mask
    while table[at] != 0:
        home = hash_head(heads, width, np.int64(table[at]) - 1, mask)
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            table[at] = 0
            gap = at
        at = (at + 1) & mask
    heads[slot, width + SUPPORT] = -1
    heads[slot, width + VALUE] = state[FREE_HEAD]
    state[FREE_HEAD] = slot + 1
    state[LIVE] -= 1


@kernel
def enter_all(heads, used, table):
    """Enter the groups into an empty hash table."""
    width = heads.shape[1] - FIELDS
    mask = table.shape[0] - 1
    for slot in range(used):
        if heads[slot, width + SUPPORT] >= 0:
            at = hash_head(heads, width, slot, mask)
            while table[at] != 0:
                at = (at + 1) & mask
            table[at] = slot + 1
