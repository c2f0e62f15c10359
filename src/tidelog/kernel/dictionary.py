"""Finding the entries of a dictionary by their bytes (store/kept_items.py).

The bytes of all entries, symbols or records, are *pieces* of one array. Piece i is
content[ends[i - 1] : ends[i]]; the first one begins at 0. A hash table has the numbers of pieces,
plus 1. Its size is a power of 2, and at least twice the number of pieces.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import kernel

_MIX = -7046029254386353131


@njit(cache=True, inline="always")
def _hash(content, start, stop, mask):
    mixed = np.int64(stop - start)
    for i in range(start, stop):
        mixed = (mixed ^ np.int64(content[i])) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed & mask


@kernel
def enter_pieces(content, ends, slots):
    """Enter all pieces into an empty hash table."""
    mask = slots.shape[0] - 1
    start = np.int64(0)
    for piece in range(ends.shape[0]):
        at = _hash(content, start, ends[piece], mask)
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = piece + 1
        start = ends[piece]


@kernel
def find_piece(content, ends, slots, wanted):
    """Return the number of the piece that has these bytes; -1 if there is none."""
    mask = slots.shape[0] - 1
    size = wanted.shape[0]
    at = _hash(wanted, np.int64(0), np.int64(size), mask)
    while slots[at] != 0:
        piece = np.int64(slots[at]) - 1
        start = ends[piece - 1] if piece > 0 else np.int64(0)
        if ends[piece] - start == size:
            equal = True
            for i in range(size):
                if content[start + i] != wanted[i]:
                    equal = False
                    break
            if equal:
                return piece
        at = (at + 1) & mask
    return np.int64(-1)
