"""The aggregates that `view.aggregate` offers, and how they are computed from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from tidelog.values.algebra import Semigroup
from tidelog.values.order import Records, sort_key
from tidelog.values.ratios import exact_ratio
from tidelog.values.types import Kind, Row, Type

OPS = ("count", "min", "max", "sum", "mean")
SUMMED = frozenset({Kind.NUMBER, Kind.UNSIGNED, Kind.DECIMAL, Kind.FLOAT})
"""The kinds of values that have sums and means."""


@dataclass(frozen=True)
class Question:
    """Which aggregate, of which column, over which rows. Columns are numbers, values checked."""

    op: str
    column: int | None
    """None counts rows."""
    equal: Mapping[int, Any] = field(default_factory=dict)
    """The values that rows have in some columns."""
    between: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)
    """The ranges of others: from a value up to but excluding another; None is open."""
    algebra: Semigroup | None = None
    """Of an aggregate that is registered from Python."""

    @property
    def at_hand(self) -> int | None:
        """The column whose range is part of an interval of keys: one only can be."""
        return next(iter(self.between), None)


def from_rows(rows: Iterable[Row], question: Question, types: Sequence[Type], r: Records) -> Any:
    """Return the answer, computed from all rows of a relation."""
    # Keys, not values: a NaN is equal to itself here.
    values = []
    for column, value in question.equal.items():
        key = sort_key(types[column], r)
        values.append((column, key, key(value)))
    bounds = []
    for column, ends in question.between.items():
        key = sort_key(types[column], r)
        low, high = (None if end is None else key(end) for end in ends)
        bounds.append((column, key, low, high))

    def is_asked(row: Row) -> bool:
        if any(key(row[column]) != value for column, key, value in values):
            return False
        for column, key, low, high in bounds:
            place = key(row[column])
            if (low is not None and place < low) or (high is not None and place >= high):
                return False
        return True

    asked = filter(is_asked, rows)
    if question.column is None:
        return sum(1 for _ in asked)
    if question.algebra is not None:
        in_order = sorted(asked, key=_place(question, types, r))
        return combined(question.algebra, [row[question.column] for row in in_order])
    column, type_ = question.column, types[question.column]
    return _of_values([row[column] for row in asked], question.op, type_, r)


def _place(
    question: Question, types: Sequence[Type], records: Records
) -> Callable[[Row], tuple[Any, ...]]:
    """Return the columns by which rows are ordered: that of the range, then the others."""
    first = () if question.at_hand is None else (question.at_hand,)
    columns = (*first, *(c for c in range(len(types)) if c not in first))
    keys = [(column, sort_key(types[column], records)) for column in columns]
    return lambda row: tuple(key(row[column]) for column, key in keys)


def combined(algebra: Semigroup, values: Sequence[Any]) -> Any:
    """Return values combined from left to right; None if there are none."""
    lifted = values if algebra.lift is None else map(algebra.lift, values)
    return reduce(algebra.combine, lifted) if values else None


def _of_values(values: list[Any], op: str, type_: Type, records: Records) -> Any:
    if op == "sum":
        if type_.kind is Kind.FLOAT:
            return exact_ratio(values, 1)
        return exact_sum(int(sum(map(Fraction, values)) * 10**type_.scale), type_)
    if not values:
        return None
    if op == "mean":
        return exact_ratio(values, len(values))
    return (min if op == "min" else max)(values, key=sort_key(type_, records))


def exact_sum(total: int, type_: Type) -> int | Decimal:
    """Return a sum, given in units of the last digit. It may be wider than its type."""
    if type_.kind is not Kind.DECIMAL:
        return total
    sign, digits, _ = Decimal(total).as_tuple()
    return Decimal((sign, digits, -type_.scale))
