"""Finding stored rows by the values of their first columns, by binary search, and summing them up.

A `Key` is a place in one order of a relation: before or behind all rows that start with some
ordinals. What lies between two keys is a `Slice`: O(runs * log n) to find, and nothing is copied
when it lies in one run and all its rows are alive.

`summary` aggregates the rows between two keys by the scan trees of the runs, in O(log n) each.
The trees are built when they are first asked for, and follow the epochs from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation, ordinals_by
from tidelog.store.run import Words
from tidelog.store.run_tree import nothing
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_HALF = 32


@dataclass(frozen=True)
class Key:
    """A place in an order: before the rows that equal `words`, or behind them."""

    words: tuple[int, ...]
    behind: bool


@dataclass(frozen=True)
class Slice:
    """Sorted rows of one order. They stay as they are when the relation changes or is rewritten."""

    words: Words
    layout: Layout
    biases: tuple[int, ...]

    def __len__(self) -> int:
        return int(self.words.shape[1])

    def ordinals(self, which: Any = slice(None)) -> NDArray[np.int64]:
        """Return the rows that the NumPy index `which` selects, as columns of ordinals."""
        words = np.ascontiguousarray(self.words[:, which])
        fields = np.empty((len(self.biases), 4), np.int64)
        fields[:, :3], fields[:, 3] = self.layout.by_column, self.biases
        return ordinals_by(words, fields)

    def only(self, which: NDArray[np.bool_]) -> Slice:
        """Return the rows for which `which` is true."""
        return replace(self, words=self.words[:, which])


def key(
    relation: StoredRelation, order: tuple[int, ...], start: Sequence[int], *, behind: bool
) -> Key:
    """Return the place before, or behind, all rows whose first columns in `order` are `start`.

    The ordinals need not fit the domains: the place is then before or behind all that do.
    """
    layout = relation.index(order).layout
    words = [0] * layout.words
    decided = False
    for place, column in enumerate(order):
        domain = relation.domains[column]
        if decided or place >= len(start):
            code = _extreme(domain, highest=behind)
        elif domain.covers(start[place], start[place]):
            code = start[place] - domain.bias
        else:
            # No row has this ordinal, so what follows does not matter.
            decided, behind = True, start[place] > domain.bias
            code = _extreme(domain, highest=behind)
        word, shift, _ = layout.by_column[column].tolist()
        words[word] += code << shift
    return Key(tuple(words), behind)


def _extreme(domain: Domain, *, highest: bool) -> int:
    if domain.is_raw:
        return _MOST if highest else _LEAST
    return domain.mask if highest else 0


def between(relation: StoredRelation, order: tuple[int, ...], low: Key, high: Key) -> Slice:
    """Return the committed rows between two keys of an order, sorted in it."""
    index = relation.index(order)
    parts = []
    for run in index.runs:
        start, stop = position(run.words, low), position(run.words, high)
        if start < stop:
            part = run.words[:, start:stop]
            if run.marks is not None:
                alive = run.marks[start:stop] <= Version.OLD.limit
                part = part if alive.all() else part[:, alive]
            parts.append(part)
    if len(parts) == 1:
        words = parts[0]
    else:
        words = sort_words(np.concatenate([np.empty((index.layout.words, 0), np.int64), *parts], 1))
    return Slice(words, index.layout, tuple(domain.bias for domain in relation.domains))


def position(words: Words, key: Key) -> int:
    """Return how many of these rows are before the key: a binary search, word by word."""
    start, stop = 0, words.shape[1]
    for column, word in zip(words, key.words, strict=True):
        inside = column[start:stop]
        left, right = np.searchsorted(inside, word, "left"), np.searchsorted(inside, word, "right")
        start, stop = start + int(left), start + int(right)
        if start == stop:
            return start
    return stop if key.behind else start


@dataclass(frozen=True)
class Summary:
    """Aggregates of some rows, and of the ordinals of one of their columns."""

    count: int
    total: int
    """The exact sum."""
    least: int
    """Means nothing if there are no rows; neither does `greatest`."""
    greatest: int
    nodes: int
    """How many nodes of trees were combined: a measure of the work."""


def summary(
    relation: StoredRelation, order: tuple[int, ...], low: Key, high: Key, column: int
) -> Summary:
    """Return the summary of a column over the committed rows between two keys: O(log n)."""
    index = relation.index(order)
    into = nothing()
    nodes = 0
    field, bias = index.layout.by_column[column], relation.domains[column].bias
    for run in index.runs:
        start, stop = position(run.words, low), position(run.words, high)
        if start < stop:
            nodes += run.tree(column, field, bias).fold(run, start, stop, into)
    count, high_half, low_half, least, greatest = into[:, 0].tolist()
    return Summary(count, (high_half << _HALF) + low_half, least, greatest, nodes)
