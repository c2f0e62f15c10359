"""How long rows are retained: the column with their time, and the offsets that remember it.

The current time is the newest value in this column that the source has sent. It is committed with
each epoch that advances it, and so is the number of rows that arrived too late.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import UsageError, did_you_mean
from tidelog.spark.declared import seconds_of
from tidelog.values.types import Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.sources import PipelineSource

RETAINED = "tidelog retained"
"""The name under which the newest times are committed. No source can have it."""
_LATE = " late"
_ZERO = {
    Kind.TIMESTAMP: (dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)),
    Kind.DATE: (dt.date(1970, 1, 1), dt.timedelta(days=1)),
}


@dataclass(frozen=True)
class RetainedTime:
    """Which column has the time of a row, and how long rows stay. Times are ordinals."""

    column: int
    kind: Kind
    length: int

    @staticmethod
    def of(source: PipelineSource) -> RetainedTime | None:
        """Return what a source declares; None if its rows stay forever."""
        spec, relation = source.spec, source.relation
        if not spec.retain:
            return None
        names = [column.name for column in relation.columns]
        if spec.retain_by not in names:
            hint = did_you_mean(spec.retain_by, names)
            raise UsageError(
                f"`retain_by` of source `{source.name}` names `{spec.retain_by}`, which is not a"
                f" column of `{relation}`" + (f"\n  help: {hint}" if hint else "")
            )
        number = names.index(spec.retain_by)
        type_ = relation.columns[number].type
        if type_.kind not in _ZERO:
            raise UsageError(
                f"`retain_by` of source `{source.name}`: `{spec.retain_by}` is a {type_}, and not a"
                " timestamp or a date"
            )
        length = int(dt.timedelta(seconds=seconds_of(spec.retain)) / _ZERO[type_.kind][1])
        if not length:
            raise UsageError(f"`retain` of source `{source.name}` is shorter than a day")
        return RetainedTime(number, type_.kind, length)

    def times(self, rows: pa.Table) -> NDArray[np.int64]:
        """Return the times of rows; the first columns of the table are those of the relation."""
        import pyarrow as pa

        column = rows.column(self.column)
        whole = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
        return np.asarray(column.cast(whole)).astype(np.int64)

    def moment(self, time: int) -> Any:
        """Return a time as a value."""
        zero, unit = _ZERO[self.kind]
        return zero + time * unit

    @property
    def unit(self) -> dt.timedelta:
        """The difference of two successive times."""
        return _ZERO[self.kind][1]


def newest_time(offsets: Mapping[str, str], source: str) -> int | None:
    """Return the newest time of a source, given the offsets of `RETAINED`."""
    return int(offsets[source]) if source in offsets else None


def late_rows(offsets: Mapping[str, str], source: str) -> int:
    """Return how many rows of a source were too late, given the offsets of `RETAINED`."""
    return int(offsets.get(source + _LATE, 0))


def retained_offsets(
    known: Mapping[str, str], source: str, newest: int, late: int
) -> dict[str, str]:
    """Return what to commit under `RETAINED` after an epoch with so many late rows."""
    found = {source: str(newest)} if newest_time(known, source) != newest else {}
    if late:
        found[source + _LATE] = str(late_rows(known, source) + late)
    return found
