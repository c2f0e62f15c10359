"""The interface for reading the committed rows of a relation, and its plain implementation.

Every engine returns a `Reader` for each relation. `SetReader` scans and sorts a Python set: for the
reference engine, and for the rows of its changes. The kernel's reader uses the order in which rows
are stored (engine/stored_reads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tidelog.engine.questions import Question, from_rows
from tidelog.io.tabular import Records, to_arrow
from tidelog.logic.program import Relation
from tidelog.values.order import sort_key, sort_rows
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa


class Reader(Protocol):
    """The committed rows of one relation. Values are in the one form that their types have."""

    gives_sorted_tables: ClassVar[bool]
    """Whether `to_arrow` sorts the rows."""

    def __len__(self) -> int: ...

    def __contains__(self, row: Row, /) -> bool: ...

    def rows(self) -> Iterator[Row]:
        """Return all rows in the order of their values, as they are when this is called."""

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, in order."""

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, prefixes of rows, in order."""

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, by the number of the column, in order."""

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows; None for an extreme or a mean of none."""

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""


class SetReader:
    """Answers from a set of rows: O(n) or, where the answer is sorted, O(n log n)."""

    gives_sorted_tables: ClassVar[bool] = True

    def __init__(self, rows: Set[Row], relation: Relation, records: Records) -> None:
        self._rows, self._relation, self._records = rows, relation, records

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: Row) -> bool:
        return row in self._rows

    def rows(self) -> Iterator[Row]:
        """Return all rows, sorted."""
        return iter(sort_rows(self._rows, self._relation.columns, self._records))

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, sorted."""
        return self._sorted(lambda row: row[: len(values)] == values)

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, sorted."""
        keys = [sort_key(column.type, self._records) for column in self._relation.columns]

        def key(row: Row) -> list[Any]:
            return [key(value) for key, value in zip(keys, row, strict=False)]

        first, last = key(low), key(high)
        return self._sorted(lambda row: first <= key(row) < last)

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, sorted."""
        wanted = tuple(values.values())
        return self._sorted(lambda row: tuple(row[column] for column in values) == wanted)

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows."""
        types = [column.type for column in self._relation.columns]
        return from_rows(self._rows, question, types, self._records)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return to_arrow(self.rows(), self._relation, self._records)

    def _sorted(self, wanted: Callable[[Row], bool]) -> list[Row]:
        return sort_rows(filter(wanted, self._rows), self._relation.columns, self._records)
