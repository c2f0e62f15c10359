"""Views: reading a relation, and what an epoch changed in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.engine.questions import OPS, SUMMED, Question
from tidelog.engine.reads import Reader
from tidelog.errors import UsageError, did_you_mean
from tidelog.io.tabular import Records, checker
from tidelog.logic.program import Relation
from tidelog.logic.registry import registered
from tidelog.values.algebra import Semigroup, UserAggregate
from tidelog.values.types import Field, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")


class Ask(Protocol):
    """Calls a question with a reader of the committed rows, and returns its answer."""

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
            return False  # not a row of this relation's types
        return self._ask(lambda reader: checked in reader)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._ask(lambda reader: reader.to_arrow())

    def to_sorted_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, sorted: for columns of numbers and symbols."""

        def read(reader: Reader) -> pa.Table:
            table = reader.to_arrow()
            if reader.gives_sorted_tables:
                return table
            return table.sort_by([(name, "ascending") for name in self.columns])

        return self._ask(read)

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
        """Return the rows that start with `values`, in order: O(log n + rows returned)."""
        start = self._checked(values)
        return self._ask(lambda reader: reader.prefix(start))

    def range(self, low: Sequence[Any], high: Sequence[Any]) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order.

        The bounds are prefixes of rows: `range(("a",), ("b",))` gives the rows that start with
        "a", or with anything between "a" and "b". O(log n + rows returned) for columns that
        are stored in the order of their values. Symbols, records and sets are not: if the bounds
        differ in such a column, all rows that agree with both before it are scanned.
        """
        first, last = self._checked(low), self._checked(high)
        return self._ask(lambda reader: reader.range(first, last))

    def where(self, /, **values: Any) -> list[Row]:
        """Return the rows that have these values in the columns named, in order.

        O(log n + rows returned). The first lookup by columns that are not the leading ones
        sorts the relation by them; the database maintains that order from then on.
        """
        wanted = {self._number(name): self._value(name, value) for name, value in values.items()}
        return self._ask(lambda reader: reader.where(wanted))

    def aggregate(self, op: str, column: str | None = None, /, **where: Any) -> Any:
        """Return the "count", or the "min", "max", "sum" or "mean" of a column, over some rows.

        `op` can also be a semigroup that was registered by `tidelog.aggregate`. It combines the
        values in the order of the column with a range, then in the order of the rows.

        Rows are chosen by the columns named: by a value that they have there, or by a range,
        `day=slice(low, high)`, from `low` up to but excluding `high`; None leaves a side open.
        A minimum, maximum or mean of no rows is None; sums are exact, and of floats rounded once.

        O(log n), with values for any columns and a range for one. The first aggregate of a column
        over such rows builds a tree of partial results, which the database maintains.
        """
        own = None if op in OPS else self._registered(op)
        if (column is None) != (op == "count"):
            raise UsageError(
                "`count` counts rows, and takes no column"
                if op == "count"
                else f"`{op}` needs a column"
            )
        number = None if column is None else self._number(column)
        if op in ("sum", "mean") and number is not None:
            type_ = self._relation.columns[number].type
            if type_.kind not in SUMMED:
                raise UsageError(f"there is no {op} of `{column}`, which is a {type_}")
        if own is not None and number is not None:
            type_ = self._relation.columns[number].type
            if type_ != own.takes:
                raise UsageError(f"`{op}` takes {own.takes}, and `{column}` is a {type_}")
        equal: dict[int, Any] = {}
        between: dict[int, tuple[Any, Any]] = {}
        for name, value in where.items():
            if not isinstance(value, slice):
                equal[self._number(name)] = self._value(name, value)
            elif value.step is not None:
                raise UsageError(f"the range of `{name}` has a step")
            else:
                low, high = (
                    None if end is None else self._value(name, end)
                    for end in (value.start, value.stop)
                )
                between[self._number(name)] = (low, high)
        if own is None:
            question = Question(op, number, equal, between)
            return self._ask(lambda reader: reader.aggregate(question))
        assert isinstance(own.algebra, Semigroup)
        question = Question(op, number, equal, between, own.algebra)
        try:
            found = self._ask(lambda reader: reader.aggregate(question))
            return None if found is None else checker(own.gives, self._records)(found)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"aggregate `{op}` failed: {type(error).__name__}: {error}") from error

    def _registered(self, op: str) -> UserAggregate:
        """Return an aggregate that combines values, registered from Python."""
        found = registered()
        own = found.get(op)
        if own is not None and isinstance(own.algebra, Semigroup):
            return own
        known = (*OPS, *(n for n, a in found.items() if isinstance(a.algebra, Semigroup)))
        hint = did_you_mean(op, known)
        more = "" if own is None else f"; a {type(own.algebra).__name__} works in rules only"
        raise UsageError(
            f"there is no aggregate `{op}` here" + (more or (f"; {hint}" if hint else f": {known}"))
        )

    def _number(self, name: str) -> int:
        """Return the number of a column."""
        if name not in self.columns:
            hint = did_you_mean(name, self.columns)
            raise UsageError(
                f"`{self._relation}` has no column `{name}`" + (f"; {hint}" if hint else "")
            )
        return self.columns.index(name)

    def _value(self, name: str, value: Any) -> Any:
        """Return a value of a column in the form in which rows hold it."""
        try:
            return self._in_form([value], [self._relation.columns[self._number(name)]])[0]
        except (ValueError, TypeError) as error:
            raise UsageError(f"lookup in `{self._relation}`: {error}") from None

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
    """The net change of one relation in one epoch: inserted and deleted rows."""

    def __init__(self, inserted: Rows, deleted: Rows) -> None:
        self.inserted = inserted
        self.deleted = deleted

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)

    def __repr__(self) -> str:
        return f"<+{len(self.inserted)} -{len(self.deleted)}>"
