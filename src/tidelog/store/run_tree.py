"""The scan tree of a run: partial results of one column over its rows that are alive.

Rows never move in a run, so the shape of its tree never changes: a deleted row updates the O(log n)
nodes above it. A merged run gets its own tree when it is first needed, by a fast pass over its
rows; a row is in few merges, so this adds a constant to their cost. An interval of keys is an
interval of positions in each of the few runs of an order (store/lookup.py); counts, sums, minima
and maxima do not depend on how the rows of runs are interleaved.

Trees show committed rows only: they are updated when an epoch commits. Where the order of rows
matters, or only Python can compare the values, store/scan_tree.py is used instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import scan
from tidelog.kernel.marks import DEAD_NOW

if TYPE_CHECKING:
    from tidelog.store.run import Run

_COMMITTED = DEAD_NOW  # rows that die in an epoch under way are still alive


class RunTree:
    """Counts, sums, minima and maxima of the ordinals of one column, over the blocks of a run."""

    def __init__(self, run: Run, field: NDArray[np.int64], bias: int) -> None:
        """Grow the tree; `field` is the place of the column in a row (store/layout.py)."""
        self._word, self._shift, self._mask = (int(part) for part in field)
        self._bias = bias
        blocks = max(1, -(-len(run) // scan.BLOCK))
        self.nodes: NDArray[np.int64] = np.zeros((5, 2 * blocks), np.int64)
        self._grow(run, self.nodes)

    def _grow(self, run: Run, nodes: NDArray[np.int64]) -> None:
        scan.grow(
            run.words, run.marks_address, _COMMITTED, self._word, self._shift, self._mask,
            self._bias, nodes,
        )  # fmt: skip

    def renew(self, run: Run, positions: NDArray[np.int64]) -> None:
        """Update the tree for changed marks at sorted positions: O(log n) for each."""
        scan.renew(
            run.words, run.marks_address, _COMMITTED, self._word, self._shift, self._mask,
            self._bias, self.nodes, positions,
        )  # fmt: skip

    def fold(self, run: Run, start: int, stop: int, into: NDArray[np.int64]) -> int:
        """Add the run's rows [start, stop) to `into`; return how many nodes it took: O(log n)."""
        nodes: int = scan.fold(
            run.words, run.marks_address, _COMMITTED, self._word, self._shift, self._mask,
            self._bias, self.nodes, start, stop, into,
        )  # fmt: skip
        return nodes

    def fold_ranges(
        self,
        run: Run,
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        into: NDArray[np.int64],
    ) -> None:
        """Add the rows between two rows, for each column of `low`, `high` and `into`."""
        scan.fold_ranges(
            run.words, run.marks_address, _COMMITTED, self._word, self._shift, self._mask,
            self._bias, self.nodes, low, high, into,
        )  # fmt: skip

    def check(self, run: Run) -> None:
        """Assert that the nodes are those of the run's rows as they are now."""
        fresh = np.zeros_like(self.nodes)
        self._grow(run, fresh)
        assert np.array_equal(self.nodes, fresh), "a tree is stale"


def nothing() -> NDArray[np.int64]:
    """Return the partial results of no rows, for `RunTree.fold` to add to."""
    into = np.zeros((5, 1), np.int64)
    into[scan.LEAST], into[scan.GREATEST] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    return into
