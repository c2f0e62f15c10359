"""The sets of one type: each has a dictionary id, and equal sets have the same one.

The id of a set is the node at the root of its tree (kernel/sets.py). It does not depend on how the
set was made: read from a fact, built at once, or changed element by element. A change of one
element costs a path of its tree; the elements are listed only when they are read.

Like symbols, nodes are never freed: a change leaves some log2(n) of them behind. They cannot be
freed safely, because a net change that has not been read yet holds ids, and not elements. For the
same reason an aborted epoch leaves nodes that nothing refers to.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import sets as kernel

Ordinals = NDArray[np.int64]

EMPTY = 0
"""The id of the empty set."""
_FIRST_ROOM = 64


class SetDictionary:
    """Gives ids to sets of ordinals, and returns their elements."""

    def __init__(self) -> None:
        self._nodes = np.zeros((_FIRST_ROOM, 4), np.int64)
        # Twice as many slots as nodes: a search ends after one or two steps.
        self._slots = np.zeros(2 * _FIRST_ROOM, np.int64)
        self._used = np.array([1, 0], np.int64)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return int(self._used[kernel.COUNT])

    @property
    def nbytes(self) -> int:
        """The memory of all nodes."""
        return self._nodes.nbytes + self._slots.nbytes

    def entries(self, first: int, stop: int) -> Ordinals:
        """Return nodes, a row for each. They never change."""
        return self._nodes[first:stop].copy()

    def extend(self, nodes: Ordinals) -> None:
        """Add nodes that have the next ids in another dictionary like this one."""
        start = len(self)
        if start + len(nodes) > len(self._nodes):
            self._grow(start + len(nodes))
        self._nodes[start : start + len(nodes)] = nodes
        self._used[kernel.COUNT] += len(nodes)
        kernel.enter_nodes(self._nodes, start, len(self), self._slots)

    # --- sets become ids ---

    def number(self, elements: Iterable[int]) -> int:
        """Return the id of the set of these elements, in any order: O(n log n)."""
        distinct = _sorted(elements)
        if len(self) + 2 * len(distinct) > len(self._nodes):
            self._grow(len(self) + 2 * len(distinct))
        return int(kernel.find_set(self._nodes, self._slots, self._used, distinct, True))

    def find(self, elements: Iterable[int]) -> int | None:
        """Return the id of a set, or None if it has none. A lookup adds nothing."""
        distinct = _sorted(elements)
        found = int(kernel.find_set(self._nodes, self._slots, self._used, distinct, False))
        return None if found < 0 else found

    def changed(
        self, sets: Ordinals, which: Ordinals, elements: Ordinals, adds: NDArray[np.bool_]
    ) -> Ordinals:
        """Return the ids of changed sets: O(log n) for each change.

        Change j adds `elements[j]` to the set `sets[which[j]]`, or removes it. Changes are sorted
        by set, and by element; an element is named once.
        """
        sets = sets.copy()
        n = len(which)
        if not n:
            return sets
        ends = np.cumsum(np.bincount(which, minlength=len(sets))).astype(np.int64)
        most = int(np.diff(ends, prepend=0).max())
        scratch = np.empty((2, (kernel.REBUILD + 1) * most), np.int64)
        done = 0
        while True:
            done = kernel.change_sets(
                self._nodes, self._slots, self._used, sets, which, ends, elements, adds, done,
                scratch,
            )  # fmt: skip
            if done == n:
                return sets
            self._grow(len(self) + int(self._used[kernel.NEEDED]))

    def _grow(self, least: int) -> None:
        room = len(self._nodes)
        while room < least:
            room *= 2
        nodes = np.zeros((room, 4), np.int64)
        nodes[: len(self)] = self._nodes[: len(self)]
        slots = np.zeros(2 * room, np.int64)
        kernel.enter_nodes(nodes, 1, len(self), slots)
        self._nodes, self._slots = nodes, slots

    # --- ids become sets ---

    def sizes(self, sets: Ordinals) -> Ordinals:
        """Return how many elements sets have. O(1) for each."""
        sizes: Ordinals = self._nodes[sets, kernel.META] >> kernel.SIZE_SHIFT
        return sizes

    def elements(self, sets: Ordinals) -> Ordinals:
        """Return the elements of sets, one set after the other, those of each sorted."""
        out = np.empty(int(self.sizes(sets).sum()), np.int64)
        kernel.list_sets(self._nodes, sets, out)
        return out

    def parts_of(self, number: int) -> list[int]:
        """Return the elements of one set, sorted."""
        parts: list[int] = self.elements(np.array([number], np.int64)).tolist()
        return parts

    def check(self) -> None:
        """Assert that every node is what its children make it, and that none exists twice."""
        nodes = self._nodes[: len(self)]
        assert not nodes[0].any(), "the empty set has elements"
        seen: set[tuple[int, ...]] = set()
        lows, highs = nodes[:, kernel.KEY].tolist(), nodes[:, kernel.KEY].tolist()
        for node, (key, left, right, meta) in enumerate(nodes.tolist()):
            size, place = meta >> kernel.SIZE_SHIFT, meta % (1 << kernel.SIZE_SHIFT)
            if node == EMPTY:
                continue
            assert (left == 0) == (right == 0), f"node {node} has one child"
            parts = (left, right) if left else (0, 0, key)
            assert parts not in seen, f"node {node} exists twice"
            seen.add(parts)
            if not left:
                assert (size, place) == (1, 0), f"leaf {node} is no leaf"
                continue
            assert max(left, right) < node, f"node {node} is older than a child of its own"
            highs[node] = highs[right]
            below = self.sizes(np.array([left, right], np.int64))
            assert key == lows[left], f"node {node} does not know its smallest element"
            assert size == below.sum(), f"node {node} does not know its size"
            assert highs[left] < lows[right], f"node {node} is out of order"
            flipped = [value + (1 << 63) for value in (key, highs[left], lows[right], highs[right])]
            bits = [value >> place for value in flipped]
            wanted = [bits[0] & ~1, bits[0] & ~1, bits[0] | 1, bits[0] | 1]
            assert bits == wanted, f"node {node} parts its elements at another bit"
        held = self._slots[self._slots != 0]
        assert sorted(held.tolist()) == list(range(1, len(nodes))), "a node cannot be found"
        for node in held.tolist():
            elements = np.array(self.parts_of(node), np.int64)
            found = kernel.find_set(self._nodes, self._slots, self._used, elements, False)
            assert found == node, f"node {node} cannot be found"


def _sorted(elements: Iterable[int]) -> Ordinals:
    """Return the distinct elements, sorted."""
    return np.array(sorted(set(elements)), np.int64)
