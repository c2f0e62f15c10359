"""Reading a relation, and reading what an epoch changed in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.io.tabular import Records, checker, to_arrow
from tidelog.logic.program import Relation
from tidelog.values.order import sort_key
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Rows:
    """Rows of one relation, in the order of their values."""

    def __init__(self, relation: Relation, records: Records, read: Callable[[], Set[Row]]) -> None:
        self._relation = relation
        self._records = records
        self._read = read

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self._relation.columns)

    def _key(self) -> Callable[[Row], list[Any]]:
        keys = [sort_key(column.type, self._records) for column in self._relation.columns]
        return lambda row: [key(value) for key, value in zip(keys, row, strict=False)]

    def __iter__(self) -> Iterator[Row]:
        return iter(sorted(self._read(), key=self._key()))

    def __len__(self) -> int:
        return len(self._read())

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, row: object) -> bool:
        return row in self._read()

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return to_arrow(self, self._relation, self._records)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        shown = ", ".join(repr(row) for _, row in zip(range(4), self, strict=False))
        dots = ", .." if len(self) > 4 else ""
        count = f"{len(self)} row{'s' * (len(self) != 1)}"
        return f"<{self._relation}: {count} {{{shown}{dots}}}>"


class View(Rows):
    """The committed rows of a relation. It follows the database: each read sees the last commit."""

    def prefix(self, *values: Any) -> list[Row]:
        """Return the rows that start with `values`, in order.

        O(n log n) on the reference engine.
        """
        key = self._key()
        wanted = key(self._checked(values))
        rows = sorted(self._read(), key=key)
        low = bisect_left(rows, wanted, key=lambda row: key(row)[: len(wanted)])
        high = bisect_right(rows, wanted, key=lambda row: key(row)[: len(wanted)])
        return rows[low:high]

    def range(self, low: Sequence[Any], high: Sequence[Any]) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order.

        The bounds are prefixes of rows: `range(("a",), ("b",))` gives the rows that start with
        "a", or with anything between "a" and "b".
        """
        key = self._key()
        first, last = key(self._checked(low)), key(self._checked(high))
        return [row for row in self if first <= key(row) and key(row) < last]

    def _checked(self, values: Iterable[Any]) -> Row:
        """Return the values in the form in which rows hold them."""
        given = tuple(values)
        if len(given) > self._relation.arity:
            raise UsageError(
                f"`{self._relation}` has {self._relation.arity} columns, not {len(given)}"
            )
        try:
            return tuple(
                checker(column.type, self._records)(value)
                for value, column in zip(given, self._relation.columns, strict=False)
            )
        except ValueError as error:
            raise UsageError(f"lookup in `{self._relation}`: {error}") from None


class Change:
    """What one epoch changed in one relation: rows added, rows removed, never both."""

    def __init__(self, inserted: Rows, deleted: Rows) -> None:
        self.inserted = inserted
        self.deleted = deleted

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)

    def __repr__(self) -> str:
        return f"<+{len(self.inserted)} -{len(self.deleted)}>"
