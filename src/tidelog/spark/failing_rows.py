"""Rows on which rules fail: quarantined, and the rest of the epoch is committed.

A rule can fail on rows that fit: a division by zero, an overflow, two values for one key of a
functional relation. The engine undoes the epoch then. With `on_rule_error = "quarantine"` the rows
that make it fail are looked for (bisection.py), and the epoch is done again as if its sources had
given rows that do not fit. So a row that fails is counted and shown as any other bad row, and an
upsert that fails leaves the row of its key as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.io.columns import CheckedTable
from tidelog.values.types import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidelog.spark.checking import Checked

ON_RULE_ERROR = ("fail", "quarantine")


class FailingRows:
    """Rows of relations on which rules fail, each with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, dict[Row, str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._reasons.values()))

    def add(self, relation: str, found: Iterable[tuple[Row, str]]) -> None:
        """Add rows of a relation, with reasons. The first reason of a row counts."""
        known = self._reasons.setdefault(relation, {})
        for row, reason in found:
            known.setdefault(row, reason)

    def places(self, relation: str, checked: Checked) -> Mapping[int, str]:
        """Return which rows of a source insert one of these rows, and why each fails."""
        known = self._reasons.get(relation)
        if not known or not len(checked.rows):
            return {}
        candidates = _candidates(checked, known)
        if isinstance(checked.rows, CheckedTable):
            rows = iter(CheckedTable(checked.rows.table.take(pa.array(candidates))))
        else:
            rows = (checked.rows[i] for i in candidates.tolist())
        found = {}
        for place, row in zip(candidates.tolist(), rows, strict=True):
            if row in known:
                at = place if checked.places is None else int(checked.places[place])
                found[at] = known[row]
        return found


def _candidates(checked: Checked, known: Mapping[Row, str]) -> NDArray[np.int64]:
    """Return the places of inserted rows that may be among those known."""
    mask = np.ones(len(checked.rows), np.bool_)
    if checked.inserted is not None:
        mask &= checked.inserted
    if isinstance(checked.rows, CheckedTable):
        # A Python object for every row of a large epoch would take seconds.
        first = checked.rows.table.column(0)
        if pa.types.is_integer(first.type) or pa.types.is_string(first.type):
            values = pa.array([row[0] for row in known], first.type)
            mask &= np.asarray(pc.is_in(first, value_set=values).combine_chunks())
    return np.flatnonzero(mask)
