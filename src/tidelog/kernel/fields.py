"""Splitting the text of a file into fields, and hashing those that are symbols.

A chunk of a file is split by one call. What is not plain text of the expected shape ends the call
with `UNUSUAL`: then the file is read by another reader, which is exact and knows all errors.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import inlined, kernel_without_gil
from tidelog.kernel.dictionary import hash_bytes
from tidelog.kernel.pointers import load64

PLAIN, NOT_ASCII, UNUSUAL = 0, 1, 2
SYMBOL, NUMBER, UNSIGNED = 0, 1, 2
_DIGITS = 18  # of a number that surely fits a word

_NEWLINE, _RETURN, _MINUS, _ZERO = 10, 13, 45, 48
_ONES = 0x0101010101010101
_HIGH = -0x7F7F7F7F7F7F7F80  # the high bit of each byte


@inlined
def _has_byte(word, repeated):
    """Return whether a byte of the word is the one that `repeated` has eight times."""
    other = word ^ repeated
    return (other - np.int64(_ONES)) & ~other & np.int64(_HIGH) != 0


@inlined
def _number(data, start, stop, is_signed, values, at):
    """Write the value of plain digits; return whether they are such."""
    is_negative = is_signed and start < stop and data[start] == _MINUS
    if is_negative:
        start += 1
    if start == stop or stop - start > _DIGITS:
        return False
    value = np.int64(0)
    for i in range(start, stop):
        digit = np.int64(data[i]) - _ZERO
        if digit < 0 or digit > 9:
            return False
        value = 10 * value + digit
    values[at] = -value if is_negative else value
    return True


@kernel_without_gil
def split_lines(data, start, limit, size, delimiter, kinds, starts, stops, hashes, values, found):
    """Split the lines of data[:size] that begin from `start` on and before `limit`.

    There is room for eight bytes behind `size`. A line ends with a line feed, or at `size`. `kinds`
    has the kind of each field of a line. Place and hash of each symbol go to `starts`, `stops` and
    `hashes`, each number to `values`, line by line. `found` gets how many symbols and numbers there
    are, and where the lines end.
    """
    address = data.ctypes.data
    delimiters, newlines = np.int64(_ONES) * delimiter, np.int64(_ONES) * np.int64(_NEWLINE)
    returns = np.int64(_ONES) * np.int64(_RETURN)
    last = kinds.shape[0] - 1
    symbols = numbers = seen = np.int64(0)
    at = start
    while at < limit:
        for field in range(last + 1):
            begin = at
            while at + 8 <= size:
                word = load64(address + at, np.int64(0))
                if (
                    _has_byte(word, delimiters)
                    or _has_byte(word, newlines)
                    or _has_byte(word, returns)
                ):
                    break
                seen |= word
                at += 8
            while at < size:
                byte = np.int64(data[at])
                if byte == delimiter or byte == _NEWLINE or byte == _RETURN:  # noqa: PLR1714, SIM109
                    break
                seen |= byte
                at += 1
            if field < last:
                if at == size or data[at] != delimiter:
                    return UNUSUAL
            elif at < size and data[at] != _NEWLINE:
                return UNUSUAL
            if kinds[field] == SYMBOL:
                starts[symbols], stops[symbols] = begin, at
                hashes[symbols] = hash_bytes(data, begin, at)
                symbols += 1
            elif _number(data, begin, at, kinds[field] == NUMBER, values, numbers):
                numbers += 1
            else:
                return UNUSUAL
            at += 1
    found[0], found[1], found[2] = symbols, numbers, min(at, size)
    return NOT_ASCII if seen & np.int64(_HIGH) != 0 else PLAIN
