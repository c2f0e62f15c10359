"""The complement of a subset, in time proportional to what is missing (Veldhuizen, 3.1.2).

    T - S,  S within T:   |S in [k1, k2]| = |T in [k1, k2]|   means that nothing is missing there

The rows of an interval are counted by their positions in sorted runs, or by the scan trees of runs
with dead rows. So the cost is O(missing * log n) intervals, where a join would look at
every row of T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import complement as kernel
from tidelog.kernel.marks import DEAD_NOW
from tidelog.store.index import Index
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words, address
from tidelog.store.sorting import sort_words


@dataclass(frozen=True)
class Complement:
    """The missing rows, sorted, and how many intervals were inspected to find them."""

    rows: Words
    steps: int


def complement(
    whole: StoredRelation, order: tuple[int, ...], part: StoredRelation, part_order: tuple[int, ...]
) -> Complement:
    """Return the committed rows of `whole` that are not in `part`, in the layout of `order`.

    Both orders are of the same domains, and `part` has no row that is not in `whole`.
    """
    domains = [whole.domains[column] for column in order]
    assert domains == [part.domains[column] for column in part_order], "other domains"
    indexes = whole.index(order), part.index(part_order)
    size = _alive(indexes[0]) - _alive(indexes[1])
    assert size >= 0, f"{part.name} has rows that {whole.name} lacks"
    runs = [run for index in indexes for run in index.runs]
    stack = np.zeros((2 + sum(len(run).bit_length() + 1 for run in runs), 2 * len(runs)), np.int64)
    stack[0, 1::2] = [len(run) for run in runs]
    words = indexes[0].layout.words
    out = np.empty((words, size), np.int64)
    found = np.zeros(2, np.int64)
    kernel.complement(
        indexes[0].old_descriptors(), _trees(whole, indexes[0]),
        indexes[1].old_descriptors(), _trees(part, indexes[1]),
        words, DEAD_NOW, stack, np.zeros(words, np.int64), out, found,
    )  # fmt: skip
    written, steps = found.tolist()
    assert written == size, f"{part.name} has rows that {whole.name} lacks"
    return Complement(sort_words(out), steps)


def _alive(index: Index) -> int:
    return sum(len(run) - run.dead for run in index.runs)


def _trees(relation: StoredRelation, index: Index) -> NDArray[np.int64]:
    """Return for each run where the counts of its tree are; a run without dead rows needs none."""
    trees = np.zeros((len(index.runs), 2), np.int64)
    column = index.layout.order[0]
    for number, run in enumerate(index.runs):
        if run.dead:
            tree = run.tree(column, index.layout.by_column[column], relation.domains[column].bias)
            trees[number] = address(tree.nodes), tree.nodes.shape[1] // 2
    return trees
