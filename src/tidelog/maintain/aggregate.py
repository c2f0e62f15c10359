"""What all strategies for aggregates have in common.

The result has one row for each group of the source. How it is kept depends on the algebra of the
aggregate: maintain/aggregations.py has the classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.maintain.catalog import Catalog
from tidelog.maintain.strategy import NOTHING
from tidelog.plan.lowered import Aggregation
from tidelog.store.relation import Version
from tidelog.store.run import Words

Array = NDArray[np.int64]


class Aggregate(ABC):
    """Keeps the result of one aggregate."""

    name = ""
    why = ""
    """How it is kept, in words for `explain`."""
    algebra = ""
    """The class of the aggregates that are kept so, in words."""
    state = ""
    """What is kept of a group beside the rows of the source, in words."""
    reads_source = True
    """Whether the rows of a group are looked up in the source when it changes."""

    @classmethod
    @abstractmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether this class can keep an aggregate."""

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        self._catalog = catalog
        self._aggregation = aggregation
        self._source = catalog.relations[aggregation.source]
        self._result = catalog.relations[aggregation.result]
        wanted = aggregation.wanted
        self._wanted = None if wanted is None else catalog.relations[wanted]
        self.choice = NOTHING

    @classmethod
    def in_words(cls) -> str:
        """Return how aggregates are kept, for `explain`."""
        return f"{cls.name} ({cls.algebra}): {cls.state}"

    @abstractmethod
    def bootstrap(self) -> None:
        """Aggregate every group."""

    @abstractmethod
    def prepare(self) -> None:
        """Make ready for small updates."""

    @abstractmethod
    def update(self) -> None:
        """Follow the change of the source."""

    @abstractmethod
    def check(self) -> None:
        """Assert that the result is that of the source."""

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""
        return self._catalog.relations[relation].rows(version)

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered: nothing."""
        return {}

    def remember(self, memory: Mapping[str, float]) -> None:  # noqa: B027  most have nothing
        """Take back nothing."""

    def restored(self) -> None:  # noqa: B027  most have nothing
        """Build what is not stored: nothing."""
