"""Convert Arrow columns to values of a declared type, or say why a value does not fit.

Arrow converts whole columns where it gives exactly the same values as the parsers and checks of
Tidelog. Otherwise each distinct value is converted once. Nothing is rounded or guessed: a value
that does not fit is reported with the reason.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.io.tabular import Records, arrow_type, checker
from tidelog.logic.program import Relation
from tidelog.values.scalars import canonical_float
from tidelog.values.text import value_parser
from tidelog.values.types import Kind, Row, Type

NO_VALUE = "no value"
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_MOMENTS = (
    (dt.datetime.min - _EPOCH) // _MICROSECOND,
    (dt.datetime.max - _EPOCH) // _MICROSECOND,
)

# Texts that Arrow converts exactly as our parsers do, and the type.
_PLAIN = {
    Kind.NUMBER: (r"^-?[0-9]{1,18}$", pa.int64()),
    Kind.UNSIGNED: (r"^[0-9]{1,18}$", pa.uint64()),
    Kind.FLOAT: (r"^-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,2})?$", pa.float64()),
}


@dataclass(frozen=True)
class ConversionOptions:
    """How to interpret the values of a source."""

    empty_text: bool = False
    """Whether a null means the empty text, as in CSV files, and not a missing value."""
    json_text: bool = False
    """Whether records and sets are written as JSON."""
    time_unit: str = ""
    """The unit of dates and timestamps given as integers; empty if these are an error."""


@dataclass(frozen=True)
class Converted:
    """A converted column: its values, and the reasons for rows without one.

    Scalars are an Arrow array, records and sets a list.
    """

    column: pa.Array | list[Any]
    reasons: dict[int, str]

    @property
    def values(self) -> list[Any]:
        """The values as Python objects."""
        if isinstance(self.column, list):
            return self.column
        values: list[Any] = self.column.to_pylist()
        if pa.types.is_floating(self.column.type):
            return [None if v is None else canonical_float(v) for v in values]
        return values


def convert(
    column: pa.Array, type_: Type, records: Records, options: ConversionOptions
) -> Converted:
    """Convert a column. Values of rows with a reason are meaningless."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    textual = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if textual and options.empty_text and type_.kind is Kind.SYMBOL:
        column = column.fill_null("")
    reasons: dict[int, str] = {}
    if column.null_count and type_.kind is not Kind.RECORD:
        missing = pc.indices_nonzero(column.is_null()).to_pylist()
        reasons = dict.fromkeys(missing, NO_VALUE)
    column = _within_range(column, type_.kind, reasons)
    fast = _by_arrow(column, type_, textual)
    if fast is not None:
        return Converted(fast, reasons)
    take = _taker(type_, records, options, textual)
    values: list[Any] = []
    known: dict[Any, tuple[Any, str]] = {}
    for place, raw in enumerate(column.to_pylist()):
        if raw is None and type_.kind is not Kind.RECORD:
            values.append(None)
            continue
        key = raw if textual else None
        found = known.get(key) if key is not None else None
        if found is None:
            found = _taken(take, raw)
            if key is not None:
                known[key] = found
        value, reason = found
        values.append(value)
        if reason:
            reasons[place] = reason
    if type_.kind in (Kind.RECORD, Kind.SET):
        return Converted(values, reasons)
    return Converted(pa.array(values, arrow_type(type_, records)), reasons)


def rows_of(table: pa.Table, relation: Relation, records: Records) -> Iterator[Row]:
    """Yield the rows of a table made by Tidelog, without columns after those of the relation."""
    if not relation.columns:
        yield from [()] * table.num_rows
        return
    values = []
    for i, column in enumerate(relation.columns):
        array = pa.concat_arrays([*table[i].chunks, pa.array([], table[i].type)])
        made = convert(array, column.type, records, ConversionOptions())
        assert not made.reasons, made.reasons
        values.append(made.values)
    yield from zip(*values, strict=True)


def _taken(take: Callable[[Any], Any], raw: Any) -> tuple[Any, str]:
    try:
        return take(raw), ""
    except (ValueError, TypeError, OverflowError) as error:
        return None, str(error) or type(error).__name__


def _by_arrow(column: pa.Array, type_: Type, textual: bool) -> pa.Array | None:
    """Return the values if Arrow converts the whole column exactly, else None."""
    source, kind = column.type, type_.kind
    if kind is Kind.SYMBOL and textual:
        return column.cast(pa.string())
    if kind is Kind.BOOL and pa.types.is_boolean(source):
        return column
    try:
        if kind is Kind.DATE and pa.types.is_date32(source):
            return column
        if kind is Kind.TIMESTAMP and pa.types.is_timestamp(source) and source.unit in ("us", "ms"):
            # A timestamp with a zone is stored as its time in UTC.
            moments = column.cast(pa.timestamp("us", source.tz))
            return moments.view(pa.int64()).view(pa.timestamp("us"))
        if kind is Kind.DECIMAL and pa.types.is_decimal128(source):
            return column.cast(pa.decimal128(type_.precision, type_.scale))
        if kind not in _PLAIN:
            return None
        pattern, target = _PLAIN[kind]
        if textual:
            plain = kind is not Kind.FLOAT and _has_only_digits(column)
            if not plain and not pc.all(pc.match_substring_regex(column, pattern)).as_py():
                return None
        elif pa.types.is_floating(source):
            if kind is not Kind.FLOAT:
                return None
        elif not pa.types.is_integer(source):
            return None
        cast = column.cast(target)
    except pa.ArrowInvalid:
        return None
    return _canonical(cast) if kind is Kind.FLOAT else cast


def _has_only_digits(column: pa.Array) -> bool:
    """Return whether texts have at most 18 characters, all of them digits or minus signs.

    Arrow accepts the same ones of these as our parsers. Looking at the bytes takes an eighth of the
    time of a pattern.
    """
    if not len(column):
        return True
    _, places, data = column.buffers()
    wide = pa.types.is_large_string(column.type)
    starts = np.frombuffer(places, np.int64 if wide else np.int32)[column.offset :]
    starts = starts[: len(column) + 1]
    if starts[0] == starts[-1]:
        return True
    text = np.frombuffer(data, np.uint8)[starts[0] : starts[-1]]
    is_digit = text - np.uint8(ord("0")) < 10
    return bool((np.diff(starts) <= 18).all() and (is_digit | (text == ord("-"))).all())


def _within_range(column: pa.Array, kind: Kind, reasons: dict[int, str]) -> pa.Array:
    """Replace dates and timestamps outside the range of Python by nulls, with a reason."""
    source = column.type
    if kind is Kind.DATE and pa.types.is_date32(source):
        numbers, per_microsecond = column.view(pa.int32()).cast(pa.int64()), 86_400_000_000
    elif kind is Kind.TIMESTAMP and pa.types.is_timestamp(source) and source.unit in ("us", "ms"):
        numbers, per_microsecond = column.view(pa.int64()), 1 if source.unit == "us" else 1000
    else:
        return column
    low, high = (limit // per_microsecond for limit in _MOMENTS)
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    if not pc.all(fits).as_py():  # nulls do not count here
        reason = f"outside the range of {kind.name.lower()}"
        reasons |= dict.fromkeys(pc.indices_nonzero(pc.invert(fits)).to_pylist(), reason)
        column = pc.if_else(fits, column, pa.scalar(None, source))
    return column


def _canonical(floats: pa.Array) -> pa.Array:
    """Return floats in canonical form: one NaN, one zero."""
    nan = pa.scalar(math.nan, pa.float64())
    return pc.add(pc.if_else(pc.is_nan(floats), nan, floats), 0.0)


def _taker(
    type_: Type, records: Records, options: ConversionOptions, textual: bool
) -> Callable[[Any], Any]:
    """Return a function that converts one raw value, or raises an error with the reason."""
    if type_.kind in (Kind.RECORD, Kind.SET):
        check = checker(type_, records)
        if not textual:
            return check
        if options.json_text:
            return lambda raw: check(None if raw is None else json.loads(raw))
        nested = value_parser(type_, records)
        return lambda raw: None if raw is None else nested(raw)
    if textual:
        parse = value_parser(type_, records)
        if options.time_unit and type_.kind in (Kind.DATE, Kind.TIMESTAMP):
            return lambda raw: _moment(raw, type_.kind, options.time_unit, parse)
        return parse
    check = checker(type_, records)
    if options.time_unit and type_.kind in (Kind.DATE, Kind.TIMESTAMP):
        return lambda raw: (
            _moment(str(raw), type_.kind, options.time_unit, check)
            if isinstance(raw, int)
            else check(raw)
        )
    if type_.kind in (Kind.NUMBER, Kind.UNSIGNED):
        return lambda raw: check(_whole(raw))
    return check


def _whole(raw: Any) -> Any:
    """Return an integral decimal as an int: databases have such columns for integers."""
    from decimal import Decimal

    if isinstance(raw, Decimal) and raw == raw.to_integral_value():
        return int(raw)
    return raw


def _moment(raw: str, kind: Kind, unit: str, parse: Callable[[str], Any]) -> Any:
    """Return a date from days since 1970, a timestamp from units since 1970, or parse text."""
    digits = raw.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return parse(raw)
    if kind is Kind.DATE:
        return _EPOCH_DAY + dt.timedelta(days=int(raw))
    return _EPOCH + dt.timedelta(microseconds=int(raw) * (1000 if unit == "ms" else 1))
