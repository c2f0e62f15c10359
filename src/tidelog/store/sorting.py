"""Sorting of words: by NumPy or by radix, whichever is faster on this processor.

NumPy's AVX-512 code sorts a word in 2 to 6 ns on Intel's processors and on AMD's Zen 5, twice as
fast as our radix sort. On Zen 4 it needs 60 ns, where radix sort needs 5. So both sort a sample
once, before the first large sort of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import rows as kernel
from tidelog.kernel import sorting
from tidelog.runtime.workers import active_workers
from tidelog.store.run import Marks, Words

_FEW = 1500  # rows: NumPy sorts them faster on all processors
_FEW_PIECES = 8  # sorted ones: merging them is faster than sorting
_SAMPLE = 1 << 14
_SAMPLE_BITS = 44  # of a usual row
_WORD_BITS = 63
MANY = 1 << 17  # rows: several workers repack them


def sort_words(words: Words) -> Words:
    """Return the rows sorted; may overwrite `words`."""
    w, n = words.shape
    if w == 1 and (n <= _FEW or numpy_is_fast()):
        words[0].sort()
        return words
    if n <= _FEW:
        return words if n < 2 else np.ascontiguousarray(words[:, sorted_order(words)])
    return _radix_sorted(np.ascontiguousarray(words), w)


def sorted_order(words: Words) -> NDArray[np.int64]:
    """Return the permutation that sorts the rows."""
    w, n = words.shape
    if n > _FEW:
        order = _numbered_order(words[0]) if w == 1 and numpy_is_fast() else None
        if order is not None:
            return order
        numbered = np.empty((w + 1, n), np.int64)
        numbered[:w], numbered[w] = words, np.arange(n)
        return np.ascontiguousarray(_radix_sorted(numbered, w)[w])
    order = np.argsort(words[0])
    if w > 1:
        kernel.settle_ties(words, order)
    return order


def sort_pieces(words: Words) -> Words:
    """Return the rows sorted, if they consist of sorted pieces; may overwrite `words`.

    That is how a join writes them. Merging two pieces takes a tenth of the time of sorting them.
    """
    w, n = words.shape
    if w > 1 or (n > _FEW and np.count_nonzero(words[0, 1:] < words[0, :-1]) > _FEW_PIECES):
        return sort_words(words)
    words[0].sort(kind="stable")
    return words


def sort_marked(words: Words, marks: Marks) -> tuple[Words, Marks]:
    """Return the rows sorted, and their marks with them; may overwrite `words`.

    Where a row leaves bits for the level, both are sorted as one number: eight times as fast.
    """
    n = words.shape[1]
    if n < 2:
        return words, marks.copy()  # every order writes to its own
    if words.shape[0] == 1 and n > 1000:
        bits = kernel.mark_bits(words, marks)
        if bits >= 0:
            kernel.add_marks(words, marks, bits)
            words = sort_words(words)
            marks = np.empty(n, np.int32)
            if n < MANY:
                kernel.take_marks(words, bits, marks)
                return words, marks

            def take(start: int, stop: int) -> None:
                kernel.take_marks(words[:, start:stop], bits, marks[start:stop])

            active_workers().slices(n, take)
            return words, marks
    order = sorted_order(words)
    return np.ascontiguousarray(words[:, order]), marks[order]


@cache
def numpy_is_fast() -> bool:
    """Return whether NumPy sorts single words faster than radix sort does, here."""
    sample = np.random.default_rng(0).integers(0, 1 << _SAMPLE_BITS, size=(1, _SAMPLE))
    return _fastest(np.sort, sample) < _fastest(lambda words: _radix_sorted(words, 1), sample)


def _fastest(sort: Callable[[Words], Words], sample: Words) -> float:
    """Return the shortest of some times, because other programs may run."""
    times = []
    for _ in range(5):
        words = sample.copy()
        start = time.perf_counter()
        sort(words)
        times.append(time.perf_counter() - start)
    return min(times)


def _numbered_order(word: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the permutation that sorts a word, if a number of the row fits beside it.

    Sorting both as one number is two to three times as fast as `argsort`, and it is stable.
    """
    low, high = int(word.min()), int(word.max())
    bits = len(word).bit_length()
    if (high - low).bit_length() + bits > _WORD_BITS:
        return None
    numbered = word - low
    numbered <<= bits
    numbered |= np.arange(len(word))
    numbered.sort()
    numbered &= (1 << bits) - 1
    return numbered


def _radix_sorted(words: Words, keys: int) -> Words:
    """Return rows sorted by their first `keys` words; overwrites `words`."""
    scratch = np.empty_like(words)
    places = np.empty((2, sorting.MOST_DIGITS), np.int64)
    return scratch if sorting.sort_rows(words, scratch, keys, places) else words
