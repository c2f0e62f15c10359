"""Old given rows are deleted: `.retain payment(at, "1h")`.

Time is the newest value of the column among the given rows, not the clock of a machine. An epoch
that moves it on also deletes what is older than the bound. A row that is too old when it comes is
late: it is counted, and not inserted.

    rows by time      . . . . . | . . . . . . *        * the newest
                      deleted     retained

So an epoch depends only on the given rows before it and on what it is asked for. Nothing else has
to be remembered, and a log of the changes that it has made can be replayed without this.

Old rows are found in the order of the column, which is kept from the first search on: O(log n), and
the rows that expire. An epoch in which none do only looks up the newest and the oldest row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.given import Encoded
from tidelog.kernel import descriptors as d
from tidelog.logic.program import Program, Retain
from tidelog.store.catalog import Catalog
from tidelog.store.index import Index
from tidelog.store.layout import Layout
from tidelog.store.lookup import key
from tidelog.store.relation import StoredRelation, ordinals_by
from tidelog.store.run import Words
from tidelog.store.versions import Version
from tidelog.values.types import NUMBER_MIN, Kind

Array = NDArray[np.int64]
_FEW = 64  # rows that expire in an epoch, as a rule
_UNITS = {Kind.TIMESTAMP: dt.timedelta(microseconds=1), Kind.DATE: dt.timedelta(days=1)}


def rows_before(stored: StoredRelation, column: int, bound: int) -> Array:
    """Return the rows whose column is less than the bound, as columns of ordinals."""
    order = TimeOrder(stored, column)
    oldest = order.extreme(largest=False)
    return order.rows(oldest, bound) if oldest is not None else order.no_rows()


def retained_length(retain: Retain, kind: Kind) -> int:
    """Return how long rows are retained, as a difference of ordinals."""
    bound = retain.bound
    return bound // _UNITS[kind] if isinstance(bound, dt.timedelta) else bound


class TimeOrder:
    """The committed rows of a relation in the order of one column."""

    def __init__(self, stored: StoredRelation, column: int) -> None:
        """Take a relation, and make the order if it has none."""
        self.stored, self._column = stored, column
        self._order = (column, *(at for at in range(len(stored.domains)) if at != column))
        self._value, self._found = np.zeros(1, np.int64), np.zeros(1, np.bool_)
        self._layout: Layout | None = None
        self._read_layout()

    def _read_layout(self) -> Index:
        index = self.stored.index(self._order)
        if index.layout is not self._layout:
            self._layout = index.layout
            self._first = self._end(behind=False)
            self._last = self._end(behind=True)
            _, self._shift, self._mask = map(int, index.layout.by_column[self._column])
            self._domain = self.stored.domains[self._column]
        return index

    def _end(self, *, behind: bool) -> Words:
        words = key(self.stored, self._order, (), behind=behind).words
        return np.array(words, np.int64).reshape(-1, 1)

    def extreme(self, *, largest: bool, least: int | None = None) -> int | None:
        """Return the largest or smallest value of the column; None if there are no rows.

        No row has a value below `least`. Deleted rows there are passed over.
        """
        index = self._read_layout()
        first = self._first
        if least is not None and self._domain.covers(least, least):
            first = self._first_with(least)
        d.extremes(
            index.committed_descriptors(), len(first), first, self._last, 1, largest,
            Version.OLD.limit, 0, self._shift, self._mask, self._value, self._found,
        )  # fmt: skip
        return int(self._value[0]) + self._domain.bias if self._found[0] else None

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows with values from `start`, which some row has, up to but without `stop`.

        They come as columns of ordinals.
        """
        index = self._read_layout()
        descriptors, to_end = index.committed_descriptors(), not self._domain.covers(stop, stop)
        low = self._first_with(start)
        high = low if to_end else self._first_with(stop)
        rows = np.empty((len(low), _FEW), np.int64)
        while True:
            n = d.rows_between(
                descriptors, len(low), low, high, to_end, Version.OLD.limit, rows
            )  # fmt: skip
            if n <= rows.shape[1]:
                break
            rows = np.empty((len(low), n), np.int64)
        return ordinals_by(np.ascontiguousarray(rows[:, :n]), index.layout.biased)

    def _first_with(self, value: int) -> Words:
        """Return the least row with a value, whether it is there or not."""
        row = self._first.copy()
        row[0, 0] = self._leading_word(value)
        return row

    def no_rows(self) -> Array:
        """Return no rows, as columns of ordinals."""
        return np.zeros((len(self._order), 0), np.int64)

    def _leading_word(self, value: int) -> int:
        """Return the least first word of rows with a value."""
        if self._domain.is_raw:
            return value
        return (value - self._domain.bias) << self._shift


class RetainedRelations:
    """Takes late rows out of epochs, and adds the deletions of what expires."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        self._catalog = catalog
        self._columns = {name: retain.column for name, retain in program.retained.items()}
        self._lengths = {
            name: retained_length(retain, program.relations[name].columns[retain.column].type.kind)
            for name, retain in program.retained.items()
        }
        self._times: dict[str, TimeOrder] = {}
        self._none_older: dict[str, int] = {}
        """Times before which there are no rows, not even if an epoch is undone."""

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
            times = self._times_of(name)
            before = times.extreme(largest=True)
            newest = int(inserted[self._columns[name]].max())
            if before is not None and before >= newest:
                newest = before
            inserted, count = self._without_late(name, inserted, newest)
            late.update({name: count} if count else {})
            if before is not None and newest > before:
                bound = self._oldest(name, newest)
                oldest = self._oldest_row(name, times)
                if oldest is not None and oldest < bound:
                    deleted = np.concatenate([deleted, times.rows(oldest, bound)], axis=1)
            if name in self._none_older and inserted.shape[1]:
                least = int(inserted[self._columns[name]].min())
                self._none_older[name] = min(self._none_older[name], least)
            changes[name] = inserted, deleted
        return changes, late

    def _without_late(self, name: str, rows: Array, newest: int) -> tuple[Array, int]:
        kept = rows[self._columns[name]] >= self._oldest(name, newest)
        late = len(kept) - int(np.count_nonzero(kept))
        return (np.ascontiguousarray(rows[:, kept]), late) if late else (rows, 0)

    def _oldest(self, name: str, newest: int) -> int:
        return max(newest - self._lengths[name], NUMBER_MIN)

    def _times_of(self, name: str) -> TimeOrder:
        times, stored = self._times.get(name), self._catalog.given[name]
        if times is None or times.stored is not stored:
            times = self._times[name] = TimeOrder(stored, self._columns[name])
            self._none_older.pop(name, None)
        return times

    def _oldest_row(self, name: str, times: TimeOrder) -> int | None:
        """Return the oldest time of the stored rows, and remember it for the next epoch."""
        oldest = times.extreme(largest=False, least=self._none_older.get(name))
        if oldest is None:
            self._none_older.pop(name, None)
        else:
            self._none_older[name] = oldest
        return oldest
