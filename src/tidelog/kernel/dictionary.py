"""Finding the entries of a dictionary by their bytes (store/kept_items.py, store/symbols.py).

The bytes of all entries, symbols or records, are *pieces* of one array. Piece i is
content[ends[i - 1] : ends[i]]; the first one begins at 0. A hash table has the numbers of pieces,
plus 1. Its size is a power of 2, and at least twice the number of pieces.

Symbols are often 80 bytes long, so they are hashed and compared in words.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import inlined, kernel, kernel_without_gil
from tidelog.kernel.pointers import load64

_MIX = -7046029254386353131
_BLOCK = 64


@inlined
def hash_bytes(content, start, stop):
    """Return a hash of content[start:stop]; its low bits are a place in a hash table."""
    address = content.ctypes.data
    mixed = np.int64(stop - start)
    at = start
    while at + 8 <= stop:
        mixed = (mixed ^ load64(address + at, np.int64(0))) * np.int64(_MIX)
        mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
        at += 8
    last = np.int64(0)
    while at < stop:
        last = (last << 8) | np.int64(content[at])
        at += 1
    mixed = (mixed ^ last) * np.int64(_MIX)
    mixed ^= (mixed >> 29) & ((np.int64(1) << 35) - 1)
    return mixed


@inlined
def _equal(a, i, b, j, size):
    """Return whether `size` bytes of a, from i on, are those of b from j on."""
    one, other = a.ctypes.data + i, b.ctypes.data + j
    at = np.int64(0)
    while at + 8 <= size:
        if load64(one + at, np.int64(0)) != load64(other + at, np.int64(0)):
            return False
        at += 8
    while at < size:
        if a[i + at] != b[j + at]:
            return False
        at += 1
    return True


@kernel
def enter_pieces(content, ends, slots):
    """Enter all pieces into an empty hash table."""
    mask = slots.shape[0] - 1
    start = np.int64(0)
    for piece in range(ends.shape[0]):
        at = hash_bytes(content, start, ends[piece]) & mask
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = piece + 1
        start = ends[piece]


@kernel
def find_piece(content, ends, slots, wanted):
    """Return the number of the piece that has these bytes; -1 if there is none."""
    mask = slots.shape[0] - 1
    size = np.int64(wanted.shape[0])
    at = hash_bytes(wanted, np.int64(0), size) & mask
    while slots[at] != 0:
        piece = np.int64(slots[at]) - 1
        start = ends[piece - 1] if piece > 0 else np.int64(0)
        if ends[piece] - start == size and _equal(content, start, wanted, np.int64(0), size):
            return piece
        at = (at + 1) & mask
    return np.int64(-1)


@kernel_without_gil
def hash_texts(texts, starts, stops, hashes):
    """Write the hash of each text, texts[starts[i] : stops[i]]."""
    for i in range(hashes.shape[0]):
        hashes[i] = hash_bytes(texts, starts[i], stops[i])


@kernel_without_gil
def number_texts(texts, starts, stops, hashes, content, ends, slots, used, adds, numbers):
    """Write the number of the piece that equals each text; -1 if there is none.

    Text i is texts[starts[i] : stops[i]], and has hashes[i]. If it `adds`, new texts become pieces;
    there is room for all of them. Returns how many pieces there are.

    Memory is slow to answer, and can be asked many questions at once. So for a block of texts the
    hash table and the pieces are read once before they are used.
    """
    mask = slots.shape[0] - 1
    count = numbers.shape[0]
    for first in range(0, count, _BLOCK):
        stop = min(first + _BLOCK, count)
        for i in range(first, stop):
            numbers[i] = slots[hashes[i] & mask]
        for i in range(first, stop):
            numbers[i] = ends[numbers[i] - 2] if numbers[i] > 1 else np.int64(0)
        touched = np.int64(0)
        for i in range(first, stop):
            touched += content[numbers[i]] if numbers[i] < content.shape[0] else np.int64(0)
        numbers[first] = touched
        used = _number_block(
            texts, starts, stops, hashes, content, ends, slots, used, adds, numbers, first, stop
        )
    return used


@inlined
def _number_block(
    texts, starts, stops, hashes, content, ends, slots, used, adds, numbers, first, stop
):
    mask = slots.shape[0] - 1
    filled = ends[used - 1] if used > 0 else np.int64(0)
    for i in range(first, stop):
        start = starts[i]
        size = stops[i] - start
        at = hashes[i] & mask
        found = np.int64(-1)
        while slots[at] != 0:
            piece = np.int64(slots[at]) - 1
            begin = ends[piece - 1] if piece > 0 else np.int64(0)
            if ends[piece] - begin == size and _equal(content, begin, texts, start, size):
                found = piece
                break
            at = (at + 1) & mask
        if found < 0 and adds:
            for j in range(size):
                content[filled + j] = texts[start + j]
            filled += size
            ends[used] = filled
            found = np.int64(used)
            used += 1
            slots[at] = used
        numbers[i] = found
    return used
