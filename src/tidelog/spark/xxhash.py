"""The hash function XXH64, as Spark's SQL function `xxhash64` computes it for one text.

The driver knows the paths of the files of an epoch. Rows have the hash of their file's path in
place of the path. An epoch hashes a few hundred short texts, so plain Python is fast enough.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SPARKS_SEED = 42


def xxhash64(data: bytes, seed: int = SPARKS_SEED) -> int:
    """Return the hash of some bytes, as an unsigned number.

    >>> hex(xxhash64(b"", 0))
    '0xef46db3751d8e999'
    """
    rest = len(data) % 32
    if len(data) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for at in range(0, len(data) - rest, 32):
            for i in range(4):
                lanes[i] = _round(lanes[i] & _MASK, _word(data, at + 8 * i, 8))
        result = sum(map(_turn, lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        result = (seed + _P5) & _MASK
    result = (result + len(data)) & _MASK
    at = len(data) - rest
    while at + 8 <= len(data):
        result = (_turn(result ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        result ^= (_word(data, at, 4) * _P1) & _MASK
        result = (_turn(result, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        result = (_turn(result ^ (byte * _P5 & _MASK), 11) * _P1) & _MASK
    for shift, prime in ((33, _P2), (29, _P3)):
        result = ((result ^ (result >> shift)) * prime) & _MASK
    return result ^ (result >> 32)


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _turn(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _round(lane: int, word: int) -> int:
    return (_turn((lane + word * _P2) & _MASK, 31) * _P1) & _MASK
