"""Hashes of values and rows: they give the shard of a row, and find rows that are given twice.

The hash of a number is the finaliser of splitmix64. It must never change: stored rows
are in the shards that it gave them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import kernel
from tidelog.kernel.pointers import load64

_SEED = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
INSERTED, DELETED = np.uint8(1), np.uint8(2)


@njit(cache=True, inline="always")
def _mixed(bits):
    bits = bits + _SEED
    bits = (bits ^ (bits >> _30)) * _FIRST
    bits = (bits ^ (bits >> _27)) * _SECOND
    return bits ^ (bits >> _31)


@kernel
def mix(address, n, into):
    """Write the hashes of the 64-bit numbers at an address, which may be read-only."""
    for i in range(n):
        into[i] = _mixed(np.uint64(load64(address, i)))


@kernel
def keep(hashes, seed, side, at, kept):
    """Keep the rows at one coordinate: the hash, mixed with `seed`, modulo `side`.

    Each side of a grid has its own seed.
    """
    if side & (side - _ONE) == 0:  # a division takes ten times as long
        for i in range(hashes.shape[0]):
            kept[i] &= _mixed(hashes[i] ^ seed) & (side - _ONE) == at
        return
    for i in range(hashes.shape[0]):
        kept[i] &= _mixed(hashes[i] ^ seed) % side == at


@kernel
def contested(columns, inserted, hashes, kinds, found):
    """Find the rows that are both inserted and deleted; return how many there are.

    `hashes` and `kinds` are an empty hash table, twice as large as there are rows: for each hash,
    whether its rows are inserted, deleted or both. Rows with equal hashes count as equal here, so
    the caller compares the rows that are found.
    """
    n = columns.shape[1]
    mask = np.uint64(hashes.shape[0] - 1)
    places = np.empty(n, np.int64)
    for i in range(n):
        row = np.uint64(0)
        for c in range(columns.shape[0]):
            row = _mixed(row ^ np.uint64(columns[c, i]))
        at = row & mask
        while kinds[at] != 0 and hashes[at] != row:
            at = (at + _ONE) & mask
        hashes[at] = row
        kinds[at] |= INSERTED if inserted[i] else DELETED
        places[i] = at
    count = 0
    for i in range(n):
        found[i] = kinds[places[i]] == INSERTED | DELETED
        count += found[i]
    return count
