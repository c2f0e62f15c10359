"""Who may write to the orders of some relations: short epochs, or everybody else.

A short epoch (kernel/epoch.py) writes to arrays of its own, and to the marks and counts of runs.
The runs that Python knows are brought up to date when somebody looks at them: `is_ahead` says that
they have to be. Whoever changes runs in any other way notes that here, so that the next short epoch
takes them over again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class RunWatch:
    """What the orders of some relations have in common."""

    __slots__ = ("catch_up", "changes", "descriptors", "is_ahead")

    def __init__(self) -> None:
        self.is_ahead = False
        """Whether short epochs have written what the runs do not show yet."""
        self.changes = 0
        """Grows when others change runs, or may have done so."""
        self.catch_up: Callable[[], None] = self._nothing_to_do
        """Brings all runs up to date."""
        self.descriptors: dict[int, NDArray[np.int64]] = {}
        """The descriptors by which short epochs know the rows of orders, by identity."""

    def changed(self) -> None:
        """Note that runs are about to change: first they are brought up to date."""
        if self.is_ahead:
            self.catch_up()
        self.changes += 1

    def _nothing_to_do(self) -> None:
        self.is_ahead = False
