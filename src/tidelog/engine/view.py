"""Reading a relation, and reading what an epoch changed in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.engine.reads import Reader
from tidelog.errors import UsageError, did_you_mean
from tidelog.io.tabular import Records, checker
from tidelog.logic.program import Relation
from tidelog.values.types import Field, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")


class Ask(Protocol):
    """Hands the rows, as they are committed, to a question, and returns the answer."""

    def __call__(self, question: Callable[[Reader], T], /) -> T:
        """Return the answer."""


class Rows:
    """Rows of one relation, in the order of their values."""

    def __init__(self, relation: Relation, records: Records, ask: Ask) -> None:
        self._relation = relation
        self._records = records
        self._ask = ask

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self._relation.columns)

    def __iter__(self) -> Iterator[Row]:
        return self._ask(lambda reader: reader.rows())

    def __len__(self) -> int:
        return self._ask(len)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, row: object) -> bool:
        if not isinstance(row, tuple) or len(row) != self._relation.arity:
            return False
        try:
            checked = self._in_form(row, self._relation.columns)
        except (ValueError, TypeError):
            return False  # not even a row of this relation
        return self._ask(lambda reader: checked in reader)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._ask(lambda reader: reader.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def _in_form(self, values: Iterable[Any], columns: Iterable[Field]) -> Row:
        """Return the values in the form in which rows hold them, or raise ValueError."""
        return tuple(
            checker(column.type, self._records)(value)
            for value, column in zip(values, columns, strict=False)
        )

    def __repr__(self) -> str:
        size = len(self)
        shown = ", ".join(repr(row) for _, row in zip(range(4), self, strict=False))
        dots = ", .." if size > 4 else ""
        return f"<{self._relation}: {size} row{'s' * (size != 1)} {{{shown}{dots}}}>"


class View(Rows):
    """The committed rows of a relation. It follows the database: each read sees the last commit.

    Complexities are those of the kernel, for n rows in the relation; the reference engine looks
    through all rows for every answer.
    """

    def prefix(self, *values: Any) -> list[Row]:
        """Return the rows that start with `values`, in order: O(log n) and what is returned."""
        start = self._checked(values)
        return self._ask(lambda reader: reader.prefix(start))

    def range(self, low: Sequence[Any], high: Sequence[Any]) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order.

        The bounds are prefixes of rows: `range(("a",), ("b",))` gives the rows that start with
        "a", or with anything between "a" and "b". O(log n) and what is returned for columns that
        are stored in the order of their values. Symbols, records and sets are not: where the
        bounds differ in such a column, all rows that agree with both before it are looked through.
        """
        first, last = self._checked(low), self._checked(high)
        return self._ask(lambda reader: reader.range(first, last))

    def where(self, /, **values: Any) -> list[Row]:
        """Return the rows that have these values in the columns named, in order.

        O(log n) and what is returned. The first lookup by columns that are not the leading ones
        sorts the relation by them; the database keeps that order, as it does for its own joins.
        """
        number = {column.name: i for i, column in enumerate(self._relation.columns)}
        for name in values:
            if name not in number:
                hint = did_you_mean(name, number)
                raise UsageError(
                    f"`{self._relation}` has no column `{name}`" + (f"; {hint}" if hint else "")
                )
        columns = [self._relation.columns[number[name]] for name in values]
        try:
            checked = self._in_form(values.values(), columns)
        except (ValueError, TypeError) as error:
            raise UsageError(f"lookup in `{self._relation}`: {error}") from None
        wanted = {number[name]: value for name, value in zip(values, checked, strict=True)}
        return self._ask(lambda reader: reader.where(wanted))

    def _checked(self, values: Iterable[Any]) -> Row:
        """Return the values of the first columns in the form in which rows hold them."""
        given = tuple(values)
        if len(given) > self._relation.arity:
            raise UsageError(
                f"`{self._relation}` has {self._relation.arity} columns, not {len(given)}"
            )
        try:
            return self._in_form(given, self._relation.columns)
        except (ValueError, TypeError) as error:
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
