"""Failures of aggregates that nothing excuses: what plan/failing.py has rules for.

    error(g, 1) :- failed(g, n, _, 1), q(g), n < 2.

No epoch leaves a row here: the first that comes ends it. As long as no group has failed there is
nothing to look at, and neither plans nor orders are made.
"""

from __future__ import annotations

import numpy as np

from tidelog.maintain.catalog import Catalog
from tidelog.maintain.counting import Counting
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING
from tidelog.plan.lowered import Layer
from tidelog.store.run import Words


class Unexcused(Counting):
    """Raises the error of a group that has no value, and should have."""

    name = "errors"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        super().__init__(catalog, layer)
        assert layer.errors_of is not None
        self._failure = catalog.failures[layer.errors_of]
        read = {atom.relation for rule in layer.rules for atom in rule.atoms}
        self._failed = [catalog.relations[name] for name in read.intersection(catalog.failures)]

    def bootstrap(self) -> None:
        """Look at all groups that have failed."""
        if any(failed.stored for failed in self._failed):
            super().bootstrap()
            self._raise_first(self._relation.rows())
        self._relation.replace(self._relation.no_rows(), None, np.zeros(0, np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Make ready for small updates: hardly ever is there one."""

    def update(self) -> None:
        """Look at what has changed about groups that have failed."""
        self.choice = NOTHING
        if any(failed.stored for failed in self._failed):
            super().update()
            self._raise_first(self._relation.delta.inserted)

    def _raise_first(self, rows: Words) -> None:
        if rows.shape[1]:
            raise self._failure(self._relation.ordinals(rows[:, :1].copy())[:, 0])
