"""What all strategies for aggregates have in common.

The result has one row for each group of the source. How it is maintained depends on the algebra of
the aggregate: maintain/aggregations.py lists the classes.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.maintain.strategy import Strategy
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.run import Words
from tidelog.store.versions import Delta

Array = NDArray[np.int64]


class Aggregate(Strategy):
    """Maintains the result of one aggregate."""

    why = ""
    """How it is maintained, in words for `explain`."""
    algebra = ""
    """The algebra of these aggregates, in words."""
    state = ""
    """What is stored for a group beside the rows of the source, in words."""
    reads_source = True
    """Whether the rows of a group are looked up in the source when it changes."""

    @classmethod
    @abstractmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether this class can maintain an aggregate."""

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

    @classmethod
    def in_words(cls) -> str:
        """Return how aggregates are maintained, for `explain`."""
        return f"{cls.name} ({cls.algebra}): {cls.state}"

    def failure(self, row: Array) -> EvaluationError:
        """Return the error of a row of the relation of failures, given by its ordinals."""
        raise AssertionError(f"{self.name} cannot fail")

    def _replace_failed(self, groups: Array) -> None:
        """Store the groups without a value, given as ordinals: the end of a bootstrap."""
        assert self._failed is not None
        rows = self._packed_failed(groups)
        self._failed.replace(rows, None, np.ones(rows.shape[1], np.int64))

    def _change_failed(self, inserted: Array, deleted: Array) -> Delta:
        """Insert groups that have lost their value, and delete those that have one again."""
        assert self._failed is not None
        return self._failed.change(self._packed_failed(inserted), self._packed_failed(deleted))

    def _packed_failed(self, groups: Array) -> Words:
        relation = self._failed
        assert relation is not None
        if not self._aggregation.group and not len(groups):  # stored with a column of 0
            groups = np.zeros((1, groups.shape[1]), np.int64)
        for column, domain in zip(groups, relation.domains, strict=True):
            domain.require(column)
        return self._catalog.pack(relation.name, groups)
