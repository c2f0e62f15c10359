"""Old given rows are deleted: `.retain payment(at, "1h")`.

Time is the newest value of the column among the given rows, not the clock of a machine. An epoch
that moves it on also deletes what is older than the bound. A row that is too old when it comes is
late: it is counted, and not inserted.

    rows by time      . . . . . | . . . . . . *        * the newest
                      deleted     retained

So an epoch depends only on the given rows before it and on what it is asked for. Nothing else has
to be remembered, and a log of the changes that it has made can be replayed without this.

Old rows are found in the order of the column, which is kept from the first search on: O(log n), and
the rows that expire.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.given import Encoded
from tidelog.logic.program import Program, Retain
from tidelog.store.catalog import Catalog
from tidelog.store.lookup import between, key
from tidelog.store.relation import StoredRelation
from tidelog.values.types import NUMBER_MIN, Kind

Array = NDArray[np.int64]
_UNITS = {Kind.TIMESTAMP: dt.timedelta(microseconds=1), Kind.DATE: dt.timedelta(days=1)}


def rows_before(stored: StoredRelation, column: int, bound: int) -> Array:
    """Return the rows whose column is less than the bound, as columns of ordinals."""
    order = _order(stored, column)
    start = key(stored, order, (), behind=False)
    end = key(stored, order, (bound,), behind=False)
    return between(stored, order, start, end).ordinals()


def retained_length(retain: Retain, kind: Kind) -> int:
    """Return how long rows are retained, as a difference of ordinals."""
    bound = retain.bound
    return bound // _UNITS[kind] if isinstance(bound, dt.timedelta) else bound


class RetainedRelations:
    """Takes late rows out of epochs, and adds the deletions of what expires."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        self._catalog = catalog
        self._columns = {name: retain.column for name, retain in program.retained.items()}
        self._lengths = {
            name: retained_length(retain, program.relations[name].columns[retain.column].type.kind)
            for name, retain in program.retained.items()
        }
        self._last_newest: dict[str, int] = {}
        """The newest times as they were. Rows may have been deleted since, or an epoch undone."""

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __bool__(self) -> bool:
        return bool(self._columns)

    def loaded(self, given: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
        """Return the first given rows without old ones, and how many those were, by relation."""
        rows, late = dict(given), {}
        for name in self._columns.keys() & rows.keys():
            if rows[name].shape[1]:
                newest = int(rows[name][self._columns[name]].max())
                rows[name], count = self._without_late(name, rows[name], newest)
                late.update({name: count} if count else {})
        return rows, late

    def epoch(self, encoded: Encoded) -> tuple[Encoded, dict[str, int]]:
        """Return the changes of an epoch as they are made, and how many rows were late."""
        changes, late = dict(encoded), {}
        for name in self._columns.keys() & changes.keys():
            inserted, deleted = changes[name]
            if not inserted.shape[1]:
                continue
            before = self._newest(name)
            newest = int(inserted[self._columns[name]].max())
            if before is not None and before >= newest:
                newest = before
            inserted, count = self._without_late(name, inserted, newest)
            late.update({name: count} if count else {})
            if before is not None and newest > before:
                stored = self._catalog.given[name]
                expired = rows_before(stored, self._columns[name], self._oldest(name, newest))
                deleted = np.concatenate([deleted, expired], axis=1)
            self._last_newest[name] = newest
            changes[name] = inserted, deleted
        return changes, late

    def _without_late(self, name: str, rows: Array, newest: int) -> tuple[Array, int]:
        kept = rows[self._columns[name]] >= self._oldest(name, newest)
        late = len(kept) - int(np.count_nonzero(kept))
        return (np.ascontiguousarray(rows[:, kept]), late) if late else (rows, 0)

    def _oldest(self, name: str, newest: int) -> int:
        return max(newest - self._lengths[name], NUMBER_MIN)

    def _newest(self, name: str) -> int | None:
        """Return the newest time of the given rows; None if there are none."""
        stored, column = self._catalog.given[name], self._columns[name]
        if not stored.stored:
            return None
        order = _order(stored, column)
        end = key(stored, order, (), behind=True)
        for start in ((self._last_newest[name],) if name in self._last_newest else (), ()):
            rows = between(stored, order, key(stored, order, start, behind=False), end)
            if len(rows):
                return int(rows.ordinals(slice(-1, None))[column, 0])
        return None


def _order(stored: StoredRelation, column: int) -> tuple[int, ...]:
    return (column, *(at for at in range(len(stored.domains)) if at != column))
