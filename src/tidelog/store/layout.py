"""How the columns of a row are packed into words, for one order of the columns.

Columns are packed in the order in which rows are sorted, from the highest bits of the first word
down, so that comparing words compares rows. A word holds 63 bits, so that it is never negative; a
raw column (store/domain.py) has a word to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.store.domain import RAW_BITS, Domain

_WORD_BITS = 63
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Layout:
    """One order of the columns and the place of each in a row."""

    def __init__(self, order: Sequence[int], domains: Sequence[Domain]) -> None:
        self.order = tuple(order)
        self._codes = [(domain.bias, domain.bits) for domain in domains]
        words: list[list[int]] = []  # columns by word
        free = 0
        for column in self.order:
            bits = domains[column].bits
            if bits > free or bits == RAW_BITS:
                words.append([])
                free = 0 if bits == RAW_BITS else _WORD_BITS
            words[-1].append(column)
            free -= min(bits, free)
        self.words = len(words)
        self.by_column: NDArray[np.int64] = np.zeros((len(self.order), 3), np.int64)
        """(word, shift, mask) of each column, by its number."""
        self.biased: NDArray[np.int64] = np.zeros((len(self.order), 4), np.int64)
        """(word, shift, mask, bias) of each column: how ordinals are packed."""
        self.by_depth: NDArray[np.int64] = np.zeros((len(self.order), 5), np.int64)
        """(word, shift, mask, mask of the bits before it, is it the last?), by depth."""
        for word, columns in enumerate(words):
            shift = 0
            for column in reversed(columns):
                domain = domains[column]
                self.by_column[column] = (word, shift, domain.mask)
                self.biased[column] = (word, shift, domain.mask, domain.bias)
                before = 0 if domain.is_raw else ~((1 << (shift + domain.bits)) - 1)
                depth = self.order.index(column)
                self.by_depth[depth] = (
                    word, shift, domain.mask, before, depth == len(self.order) - 1,
                )  # fmt: skip
                shift += domain.bits

    def ends(self, without: Collection[int], *, highest: bool) -> NDArray[np.int64]:
        """Return the first or last row, as words, that columns may form, 0 in those `without`."""
        words = np.zeros(self.words, np.int64)
        for column, (word, shift, mask) in enumerate(self.by_column.tolist()):
            if column not in without:
                if mask == -1:
                    words[word] = _MOST if highest else _LEAST
                elif highest:
                    words[word] += mask << shift
        return words

    def is_current(self, domains: Sequence[Domain]) -> bool:
        """Return whether the domains are as they were when the layout was made."""
        return self._codes == [(domain.bias, domain.bits) for domain in domains]


_MOST_KEPT = 256
_kept: dict[object, Layout] = {}


def layout_of(order: Sequence[int], domains: Sequence[Domain]) -> Layout:
    """Return a layout, which may be shared: each change that is read makes a small relation."""
    key = (tuple(order), tuple([(domain.bias, domain.bits) for domain in domains]))
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        found = _kept[key] = Layout(order, domains)
    return found
