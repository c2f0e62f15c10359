"""Delete old rows of an append stream: `retain = "30d"`, `retain_by = "at"`.

The current time is the newest timestamp that the source has sent, not the clock of a machine. When
an epoch advances it, rows older than the bound are deleted, and views see the deletions. A row that
is too old when it arrives is counted as late, and not inserted.

    rows by time      . . . . . | . . . . . . *        * the newest
                      deleted     retained

Old rows are found through an order of the relation that begins with their column. The database
maintains it from the first search on. The cost is O(log n) for each distinct time that expires,
and for each row.

This is the placement `driver`. The counterpart for shards is in shard_retention.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import CheckedRows, Records
from tidelog.spark.epoch_changes import EpochChanges, table_of
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.retained_time import RETAINED, RetainedTime, newest_time, retained_offsets
from tidelog.spark.sources import PipelineSource
from tidelog.values.types import Row


class Retention:
    """How long the rows of one source are retained."""

    def __init__(self, source: PipelineSource, time: RetainedTime, records: Records) -> None:
        self._source, self._relation, self._records = source, source.relation, records
        self._time = time

    def apply(self, changes: EpochChanges, placement: DriverPlacement) -> int:
        """Remove late rows from the changes of an epoch, and delete rows that expire.

        Returns the number of late rows.
        """
        name, source = self._relation.name, self._source.name
        known = placement.offsets(RETAINED)
        before = newest_time(known, source)
        inserted = changes.inserted.get(name, CheckedRows())
        times = self._times(inserted)
        newest = max([int(times.max())] if len(times) else [], default=before)
        if newest is None:
            return 0
        newest = newest if before is None else max(newest, before)
        bound = newest - self._time.length
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
        offsets = retained_offsets(known, source, newest, late)
        if offsets:
            changes.offsets[RETAINED] = {**changes.offsets.get(RETAINED, {}), **offsets}
        return late

    def _times(self, rows: Any) -> Any:
        if not len(rows):
            return np.zeros(0, np.int64)
        return self._time.times(table_of(rows, self._relation, self._records))

    def _expired(self, placement: DriverPlacement, bound: int) -> Iterator[Row]:
        """Yield the rows that are older than the bound."""
        view, column = placement.database.view(self._relation.name), self._source.spec.retain_by
        end = self._time.moment(bound)
        start = None
        while True:
            oldest = view.aggregate("min", column, **{column: slice(start, end)})
            if oldest is None:
                return
            yield from view.where(**{column: oldest})
            start = oldest + self._time.unit
