"""What all strategies for aggregates have in common.

The result has one row for each group of the source. How it is kept depends on the algebra of the
aggregate: maintain/aggregations.py has the classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import NOTHING
from tidelog.plan.lowered import Aggregation
from tidelog.store.run import Words
from tidelog.store.versions import Version

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
        failed = aggregation.failed
        self._failed = None if failed is None else catalog.relations[failed]
        """The groups without a value; None if that is an error."""
        if failed is not None:
            catalog.failures[failed] = self.failure
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

    def failure(self, row: Array) -> EvaluationError:
        """Return the error that a group has no value: its ordinals, and its flags if it has any."""
        raise AssertionError(f"{self.name} cannot fail")

    def _keep_failed(self, inserted: Array, deleted: Array, *, first: bool = False) -> None:
        """Note the groups that have no value any more, and those that have one again: ordinals."""
        relation = self._failed
        assert relation is not None
        if not self._aggregation.group and not len(inserted):  # stored with a column of 0
            inserted, deleted = (
                np.zeros((1, rows.shape[1]), np.int64) for rows in (inserted, deleted)
            )
        for column, domain in zip(inserted, relation.domains, strict=True):
            for ordinal in (int(column.min()), int(column.max())) if len(column) else ():
                if not domain.covers(ordinal, ordinal):
                    raise DomainOverflow(domain, ordinal)
        come = self._catalog.pack(relation.name, inserted)
        if first:
            relation.replace(come, None, np.ones(come.shape[1], np.int64))
        else:
            relation.change(come, self._catalog.pack(relation.name, deleted))

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
