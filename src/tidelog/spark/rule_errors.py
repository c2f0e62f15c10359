"""Find the rows of an epoch on which rules fail, where all of them are in this process.

The counterpart for shards is in shard_rule_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.errors import DataError
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows
from tidelog.spark.bisection import Bisection
from tidelog.spark.epoch_changes import EpochChanges, Given
from tidelog.values.types import Row

Probe = Callable[[EpochChanges], DataError | None]
"""Computes an epoch and undoes it; returns the error of a rule, if there is one."""


def find_failing(
    changes: EpochChanges, probe: Probe, error: DataError
) -> list[tuple[str, Row, str]]:
    """Return the inserted rows on which rules fail: relation, row and reason.

    `error` is that of the whole epoch. It is raised if the epoch fails without any of its rows.
    """
    names = [name for name, rows in changes.inserted.items() if len(rows)]
    sizes = [len(changes.inserted[name]) for name in names]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def part(taken: NDArray[np.bool_]) -> EpochChanges:
        inserted = dict(changes.inserted)
        for name, start, end in zip(names, starts, starts[1:], strict=False):
            inserted[name] = taken_rows(inserted[name], np.flatnonzero(taken[start:end]))
        return replace(changes, inserted=inserted)

    found = []
    bisection = Bisection(int(starts[-1]), lambda taken: probe(part(taken)), error)
    for place, reason in bisection.find().items():
        at = int(np.searchsorted(starts, place, side="right")) - 1
        (row,) = taken_rows(changes.inserted[names[at]], [place - int(starts[at])])
        found.append((names[at], row, reason))
    return found


def taken_rows(rows: Given, places: Sequence[int] | NDArray[np.int64]) -> Given:
    """Return some rows, by their places."""
    if isinstance(rows, CheckedTable):
        return CheckedTable(rows.table.take(pa.array(places, pa.int64())))
    return CheckedRows(rows[int(i)] for i in places)
