"""Relations as Python sets, with an index built for each way they are looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tidelog.values.types import Row

Positions: TypeAlias = tuple[int, ...]


class Table:
    """A set of rows that only grows."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: set[Row] = set(rows)
        self._indexes: dict[Positions, dict[Row, list[Row]]] = {}

    def add(self, row: Row) -> bool:
        """Add a row; return whether it is new."""
        if row in self.rows:
            return False
        self.rows.add(row)
        for positions, index in self._indexes.items():
            index.setdefault(tuple(row[i] for i in positions), []).append(row)
        return True

    def lookup(self, positions: Positions, key: Row) -> Iterable[Row]:
        """Return the rows whose columns at `positions` hold `key`."""
        if not positions:
            return self.rows
        index = self._indexes.get(positions)
        if index is None:
            index = self._indexes[positions] = {}
            for row in self.rows:
                index.setdefault(tuple(row[i] for i in positions), []).append(row)
        return index.get(key, ())
