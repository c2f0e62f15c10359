"""Rows on which a rule fails: found by bisection, and quarantined.

A rule can fail on rows that fit: a division by zero, an overflow, two values for one key of a
functional relation. The engine undoes the epoch then. With `on_rule_error = "quarantine"` the rows
that make it fail are looked for, and the epoch is committed without them.

    inserted rows    . . . . x . . .         does it compute with these, on top of those accepted?
    tries            [. . . .]               yes: accepted
                             [x .]           no: halves
                             [x]             no: this row is quarantined, with the error
                               [.]  [. .]    yes

Each try computes the epoch and undoes it. A row alone may be fine, and fail together with an
earlier one. Then the later one is quarantined, in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.errors import DataError, EvaluationError, FunctionalConflict
from tidelog.io.columns import CheckedTable
from tidelog.io.offsets import RowCounts
from tidelog.io.tabular import CheckedRows
from tidelog.spark.checking import BadRow, Checked
from tidelog.spark.epoch_changes import EpochChanges, Given
from tidelog.spark.sources import PipelineSource
from tidelog.values.types import Row

ON_RULE_ERROR = ("fail", "quarantine")
RULE_ERRORS = (EvaluationError, FunctionalConflict)
TRIES = 1000
"""How often an epoch is computed at most, to find the rows."""

Probe = Callable[[EpochChanges], DataError | None]
"""Computes an epoch and undoes it; returns the error of a rule, if there is one."""


class Culprits:
    """The rows of an epoch on which rules fail."""

    def __init__(self, changes: EpochChanges, probe: Probe, error: DataError) -> None:
        self._changes, self._probe, self._error = replace(changes), probe, error
        self._names = [name for name, rows in changes.inserted.items() if len(rows)]
        sizes = [len(changes.inserted[name]) for name in self._names]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._accepted = np.zeros(int(self._starts[-1]), np.bool_)
        self._tries = 0
        self.reasons: dict[int, str] = {}

    def find(self) -> EpochChanges:
        """Return the changes without the rows on which rules fail."""
        if self._failure() is not None:
            raise self._error  # also without new rows: a deletion makes it fail
        self._halves(0, len(self._accepted))
        return self._part(self._accepted)

    def rows(self) -> list[tuple[str, Row, str]]:
        """Return the rows that were found: relation, row and reason."""
        found = []
        for place, reason in self.reasons.items():
            at = int(np.searchsorted(self._starts, place, side="right")) - 1
            name = self._names[at]
            (row,) = taken_rows(self._changes.inserted[name], [place - int(self._starts[at])])
            found.append((name, row, reason))
        return found

    def _halves(self, low: int, high: int) -> None:
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            if start == end:
                continue
            self._accepted[start:end] = True
            error = self._failure()
            if error is None:
                continue
            self._accepted[start:end] = False
            if end - start == 1:
                self.reasons[start] = "; ".join(line.strip() for line in str(error).splitlines())
            else:
                self._halves(start, end)

    def _failure(self) -> DataError | None:
        self._tries += 1
        if self._tries > TRIES:
            raise DataError(
                f"{self._error}\n  note: rules fail on more than {len(self.reasons):,} rows of"
                " this epoch, which is too many to look for"
                "\n  help: let the rule check its values, such as `x != 0`"
            )
        return self._probe(self._part(self._accepted))

    def _part(self, taken: NDArray[np.bool_]) -> EpochChanges:
        inserted = dict(self._changes.inserted)
        for name, start, end in zip(self._names, self._starts, self._starts[1:], strict=False):
            inserted[name] = taken_rows(inserted[name], np.flatnonzero(taken[start:end]))
        return replace(self._changes, inserted=inserted)


def quarantine_culprits(
    found: Culprits,
    changes: EpochChanges,
    checked: Sequence[tuple[PipelineSource, Sequence[Checked]]],
    bad: dict[str, list[BadRow]],
) -> None:
    """Move the rows that were found from the accepted ones to the bad ones of their source."""
    counts: Mapping[str, RowCounts] = changes.counts
    for name, row, reason in found.rows():
        source = _source_of(name, row, checked)
        shown = dict(zip(source.shape.columns, row, strict=True))
        if source.shape.op:
            shown = {source.shape.op: "+", **shown}
        bad.setdefault(source.name, []).append(BadRow(reason, shown))
        changes.counts[source.name] = counts.get(source.name, RowCounts()) + RowCounts(0, -1, 1)


def _source_of(
    relation: str, row: Row, checked: Sequence[tuple[PipelineSource, Sequence[Checked]]]
) -> PipelineSource:
    """Return the source of a row: of several of a relation, the last one that has given it."""
    own = [(source, parts) for source, parts in checked if source.relation.name == relation]
    if len(own) > 1:
        for source, parts in reversed(own):
            if any(row in part.rows for part in parts):
                return source
    return own[-1][0]


def taken_rows(rows: Given, places: Sequence[int] | NDArray[np.int64]) -> Given:
    """Return some rows, by their places."""
    if isinstance(rows, CheckedTable):
        return CheckedTable(rows.table.take(pa.array(places, pa.int64())))
    return CheckedRows(rows[int(i)] for i in places)
