"""A probe: an epoch that is computed and then undone, to find out what it would insert."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.protocol import NoObserver
from tidelog.store.catalog import Catalog

Array = NDArray[np.int64]


class ProbedError(Exception):
    """Undoes the epoch of a probe."""


class Probe(NoObserver):
    """Records which rows an epoch inserts into views, and undoes the epoch."""

    def __init__(self, catalog: Catalog, views: Collection[str]) -> None:
        self._catalog, self._views = catalog, views
        self.rows: dict[str, Array] = {}

    def computed(self) -> None:
        """Record the rows, and end the epoch."""
        for name in self._views:
            relation = self._catalog.relations[name]
            self.rows[name] = relation.ordinals(relation.delta.inserted)
        raise ProbedError
