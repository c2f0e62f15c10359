"""Groups that come from a file: what is not in it is made anew.

The file has heads and blocks as they were (kernel/groups.py, kernel/accumulate.py). The hash table
and the lists of what is free follow from them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.accumulate import SIZE_SHIFT, _let_go, _size_of
from tidelog.kernel.groups import (
    BLOCK,
    BLOCK_SIZES,
    FIELDS,
    FREE_HEAD,
    LIVE,
    SHAPE,
    SUPPORT,
    USED,
    VALUE,
    WORDS_USED,
    _hash_head,
)

UNIT_SHIFT = 2  # blocks begin at multiples of so many words, and have such sizes, as a power of 2


@njit(cache=True)
def adopt(heads, words, state, table, taken):
    """Make the hash table and the lists of free heads and blocks.

    The hash table is empty, and `state` knows only how many heads and words are in use. `taken` has
    a zero for each smallest block that the words in use have room for.
    """
    width = heads.shape[1] - FIELDS
    mask = table.shape[0] - 1
    for slot in range(state[USED] - 1, -1, -1):
        if heads[slot, width + SUPPORT] > 0:
            state[LIVE] += 1
            at = _hash_head(heads, width, slot, mask)
            while table[at] != 0:
                at = (at + 1) & mask
            table[at] = slot + 1
            block_size = heads[slot, width + SHAPE] >> SIZE_SHIFT
            if block_size != 0:
                first = heads[slot, width + BLOCK] >> UNIT_SHIFT
                for i in range(first, first + (_size_of(block_size) >> UNIT_SHIFT)):
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
        while at < stop:  # a gap, in blocks as large as it has room for
            block_size = np.int64(BLOCK_SIZES)
            while _size_of(block_size) >> UNIT_SHIFT > stop - at:
                block_size -= 1
            _let_go(words, state, at << UNIT_SHIFT, block_size << SIZE_SHIFT)
            at += _size_of(block_size) >> UNIT_SHIFT
