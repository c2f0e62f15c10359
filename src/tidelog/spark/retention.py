"""Rows of an append stream that are old are deleted: `retain = "30d"`, `retain_by = "at"`.

Time is the newest timestamp that the source has given, not the clock of a machine. An epoch that
moves it on deletes what is older than the bound, and views see the deletions. Rows that arrive when
they are too old already are counted as late, and not inserted.

    rows by time      . . . . . | . . . . . . *        * the newest
                      deleted     retained

Old rows are found in the order of their column, which the database keeps from the first search on:
O(log n) for each time that expires, and for each row with it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.errors import UsageError, did_you_mean
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import CheckedRows, Records
from tidelog.spark.declared import seconds_of
from tidelog.spark.epoch_changes import EpochChanges, table_of
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.sources import PipelineSource
from tidelog.values.types import Kind, Row

RETAINED = "tidelog retained"
"""The name under which the newest times are committed. No source can have it."""
_LATE = " late"
_ZERO = {
    Kind.TIMESTAMP: (dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)),
    Kind.DATE: (dt.date(1970, 1, 1), dt.timedelta(days=1)),
}


def late_rows(offsets: Mapping[str, str], source: str) -> int:
    """Return how many rows of a source were too late, given the offsets of `RETAINED`."""
    return int(offsets.get(source + _LATE, 0))


class Retention:
    """How long the rows of one source are retained."""

    def __init__(self, source: PipelineSource, records: Records) -> None:
        self._source, self._relation, self._records = source, source.relation, records
        spec = source.spec
        names = [column.name for column in self._relation.columns]
        if spec.retain_by not in names:
            hint = did_you_mean(spec.retain_by, names)
            raise UsageError(
                f"`retain_by` of source `{source.name}` names `{spec.retain_by}`, which is not a"
                f" column of `{self._relation}`" + (f"\n  help: {hint}" if hint else "")
            )
        self._number = names.index(spec.retain_by)
        type_ = self._relation.columns[self._number].type
        if type_.kind not in _ZERO:
            raise UsageError(
                f"`retain_by` of source `{source.name}`: `{spec.retain_by}` is a {type_}, and not a"
                " timestamp or a date"
            )
        self._zero, self._unit = _ZERO[type_.kind]
        self._length = int(dt.timedelta(seconds=seconds_of(spec.retain)) / self._unit)
        if not self._length:
            raise UsageError(f"`retain` of source `{source.name}` is shorter than a day")

    def apply(self, changes: EpochChanges, placement: DriverPlacement) -> int:
        """Take late rows out of the changes of an epoch, and delete what expires.

        Returns the number of late rows.
        """
        name, source = self._relation.name, self._source.name
        known = placement.offsets(RETAINED)
        before = int(known[source]) if source in known else None
        inserted = changes.inserted.get(name, CheckedRows())
        times = self._times(inserted)
        newest = max([int(times.max())] if len(times) else [], default=before)
        if newest is None:
            return 0
        newest = newest if before is None else max(newest, before)
        bound = newest - self._length
        kept = times >= bound
        late = len(times) - int(kept.sum())
        if late:
            changes.inserted[name] = (
                CheckedTable(inserted.table.filter(pa.array(kept)))
                if isinstance(inserted, CheckedTable)
                else CheckedRows(row for row, keep in zip(inserted, kept, strict=True) if keep)
            )
        if newest != before and placement.epoch >= 0:
            expired = CheckedRows(self._expired(placement, bound))
            if expired:
                changes.deleted[name] = (
                    CheckedTable(table_of(expired, self._relation, self._records))
                    if is_columnar(self._relation)
                    else expired
                )
        marks = {source: str(newest)} if newest != before else {}
        if late:
            marks[source + _LATE] = str(late_rows(known, source) + late)
        if marks:
            changes.offsets[RETAINED] = {**changes.offsets.get(RETAINED, {}), **marks}
        return late

    def _times(self, rows: Any) -> Any:
        if not len(rows):
            return np.zeros(0, np.int64)
        column = table_of(rows, self._relation, self._records)[self._number]
        whole = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
        return np.asarray(column.cast(whole)).astype(np.int64)

    def _expired(self, placement: DriverPlacement, bound: int) -> Iterator[Row]:
        """Yield the rows that are older than the bound."""
        view, column = placement.database.view(self._relation.name), self._source.spec.retain_by
        end = self._moment(bound)
        start = None
        while True:
            oldest = view.aggregate("min", column, **{column: slice(start, end)})
            if oldest is None:
                return
            yield from view.where(**{column: oldest})
            start = oldest + self._unit

    def _moment(self, number: int) -> Any:
        return self._zero + number * self._unit
