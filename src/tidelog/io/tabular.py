"""Rows and tables: tuples, Arrow, pandas and polars in, Arrow out.

A row from outside is checked against the columns of its relation first. An error names the
relation, the row and the column. Lossy conversions (a float into a number column, a decimal with
too many digits) are errors; nothing is rounded.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidelog.errors import DataError
from tidelog.io.columns import CheckedTable
from tidelog.io.facts import FactsFile
from tidelog.logic.program import Relation
from tidelog.values.scalars import canonical_float
from tidelog.values.text import format_value, parse_value
from tidelog.values.types import NUMBER_MAX, NUMBER_MIN, UNSIGNED_MAX, Field, Kind, Row, Type

if TYPE_CHECKING:
    import pyarrow as pa

Records = Mapping[str, tuple[Field, ...]]


class CheckedRows(list[Row]):
    """Rows that a reader of this package has checked."""


_CHECKED = (CheckedRows, CheckedTable)
_ROW = (tuple, list)
_MANY = 8  # rows that are checked column by column
_BULK = 1000  # rows that stay in columns
_ROWS = (list, tuple, set, frozenset, dict)  # what is certainly not a table
_OF_TABLES = ("__arrow_c_stream__", "__dataframe__", "toArrow", "to_batches")


# --- in ---------------------------------------------------------------------------------------


class RowReader:
    """Checks rows for one relation."""

    def __init__(self, relation: Relation, records: Records) -> None:
        self._relation = relation
        self._checks = [checker(column.type, records) for column in relation.columns]

    def rows(self, data: Any) -> list[Row] | CheckedTable:
        """Return the rows of `data`, checked.

        `data` is an iterable of tuples, or a table: Arrow, pandas, polars, or anything else with
        the Arrow stream interface. The columns of a table are matched by name if the names fit,
        else by position.
        """
        if isinstance(data, _CHECKED):
            return data
        table = _as_arrow(data)
        if table is None:
            return _checked(data, self._relation, self._checks)
        table = _of_relation(table, self._relation)
        if table.num_rows >= _BULK:
            from tidelog.io.columnar import checked_table

            found = checked_table(table, self._relation)
            if found is not None:
                return found
        return _checked(_rows_of(table), self._relation, self._checks)

    def loaded(self, data: Any) -> list[Row] | CheckedTable | FactsFile:
        """Return what `rows` returns; many tuples in columns, too.

        For a first load: nobody asks which of these rows changed something.
        """
        if isinstance(data, FactsFile):
            return data
        if isinstance(data, list | set | frozenset) and not isinstance(data, _CHECKED):
            rows = data if isinstance(data, list) else list(data)
            if len(rows) >= _BULK and _are_tuples(rows, self._relation.arity):
                from tidelog.io.columnar import checked_tuples

                found = checked_tuples(rows, self._relation)
                if found is not None:
                    return found
            return self.rows(rows)
        return self.rows(data)


def _checked(data: Any, relation: Relation, checks: list[Callable[[Any], Any]]) -> list[Row]:
    rows: list[Row] = []
    source = data if isinstance(data, list) else _raw_rows(data, relation)
    arity = len(checks)
    if isinstance(source, list) and len(source) >= _MANY and _are_tuples(source, arity):
        with suppress(ValueError, TypeError):  # below, the row is found
            columns = zip(*source, strict=True)
            return list(zip(*map(_checked_column, columns, checks), strict=True))
    for raw in source:
        if not isinstance(raw, _ROW) or len(raw) != arity:
            raise _misfit(raw, len(rows), relation)
        try:
            rows.append(tuple([check(value) for check, value in zip(checks, raw, strict=True)]))
        except (ValueError, TypeError):
            raise _misfit(raw, len(rows), relation, checks) from None
    return rows


def _are_tuples(rows: list[Any], arity: int) -> bool:
    return arity > 0 and set(map(type, rows)) == {tuple} and set(map(len, rows)) == {arity}


def _checked_column(values: tuple[Any, ...], check: Callable[[Any], Any]) -> Iterable[Any]:
    """Return the values of a column in canonical form. Most of them are, and looked at together."""
    if check is _number and set(map(type, values)) == {int}:
        if min(values) >= NUMBER_MIN and max(values) <= NUMBER_MAX:
            return values
    elif check is _symbol and set(map(type, values)) == {str} and all(map(str.isascii, values)):
        return values
    return list(map(check, values))


def _misfit(
    raw: Any, number: int, relation: Relation, checks: Iterable[Callable[[Any], Any]] = ()
) -> DataError:
    """Return the error of a row: one of its values, or its shape."""
    for check, value, column in zip(checks, raw, relation.columns, strict=False):
        try:
            check(value)
        except (ValueError, TypeError) as error:
            return DataError(f"row {number} for `{relation.name}`: column `{column.name}`: {error}")
    shape = f"{len(raw)} values" if isinstance(raw, _ROW) else repr(raw)
    hint = " (a row is a tuple: write `[(value,)]`)" if relation.arity == 1 else ""
    return DataError(
        f"row {number} for `{relation}` must have {relation.arity} values, not {shape}{hint}"
    )


def _raw_rows(data: Any, relation: Relation) -> Iterator[Any]:
    if isinstance(data, str | bytes | Mapping):
        raise DataError(
            f"rows for `{relation.name}` must be tuples or a table, not {type(data).__name__}"
        )
    yield from data


def _of_relation(table: pa.Table, relation: Relation) -> pa.Table:
    """Return the columns of a table that are those of a relation, in its order."""
    names = [column.name for column in relation.columns]
    if set(names) <= set(table.column_names):
        return table.select(names)
    if table.num_columns != relation.arity:
        raise DataError(
            f"a table for `{relation}` needs the columns {', '.join(names)};"
            f" this one has {', '.join(table.column_names)}"
        )
    return table


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches():
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def _as_arrow(data: Any) -> pa.Table | None:
    """Return `data` as an Arrow table, or None when it is not a table."""
    if isinstance(data, _ROWS) or not any(hasattr(data, name) for name in _OF_TABLES):
        return None
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "toArrow"):  # a Spark DataFrame
        table: pa.Table = data.toArrow()
        return table
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    return pa.Table.from_pandas(data, preserve_index=False)


def checker(type_: Type, records: Records) -> Callable[[Any], Any]:
    """Return a function that returns a value of `type_` in canonical form, or raises ValueError."""
    match type_.kind:
        case Kind.NUMBER:
            return _number
        case Kind.UNSIGNED:
            return lambda v: _integer(v, 0, UNSIGNED_MAX, "unsigned")
        case Kind.FLOAT:
            return _float
        case Kind.SYMBOL:
            return _symbol
        case Kind.BOOL:
            return _bool
        case Kind.DATE:
            return _date
        case Kind.TIMESTAMP:
            return _timestamp
        case Kind.DECIMAL:
            return lambda v: _decimal(v, type_)
        case Kind.RECORD:
            return lambda v: _record(v, type_, records)
        case Kind.SET:
            assert type_.element is not None
            check = checker(type_.element, records)
            return lambda v: _set(v, check)


def _number(value: Any) -> int:
    if type(value) is int and NUMBER_MIN <= value <= NUMBER_MAX:
        return value
    return _integer(value, NUMBER_MIN, NUMBER_MAX, "number")


def _integer(value: Any, low: int, high: int, name: str) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is a bool, not a {name}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{value!r} is not a {name}") from None
    if not low <= number <= high:
        raise ValueError(f"{number} is outside the range of {name}")
    return number


def _float(value: Any) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError(f"{value!r} is not a float")
    return canonical_float(float(value))


def _symbol(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a symbol (a str)")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"{value!r} is not valid Unicode text") from None
    return str(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise ValueError(f"{value!r} is not a bool")
    return bool(value)


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise ValueError(f"{value!r} is not a date")
    return value


def _timestamp(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise ValueError(f"{value!r} is not a timestamp (a datetime)")
    if getattr(value, "nanosecond", 0):
        raise ValueError(f"{value!r} has nanoseconds; timestamps have microseconds")
    if hasattr(value, "to_pydatetime"):  # pandas
        value = value.to_pydatetime()
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    assert isinstance(value, dt.datetime)
    return value


def _decimal(value: Any, type_: Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise ValueError(f"{value!r} is not a decimal (a Decimal or an int)")
    result: Decimal = parse_value(str(value), type_, {})
    return result


def _record(value: Any, type_: Type, records: Records) -> Row | None:
    if value is None:
        return None
    fields = records[type_.record]
    if isinstance(value, Mapping):
        value = tuple(value.get(f.name) for f in fields)
    if not isinstance(value, tuple | list) or len(value) != len(fields):
        raise ValueError(f"{value!r} is not a record of type {type_} with {len(fields)} fields")
    # Lists are records whose last field is again the record: walk down it without recursion.
    head: list[tuple[Any, ...]] = []
    checks = [checker(f.type, records) for f in fields]
    if fields and fields[-1].type == type_:
        while value is not None:
            if not isinstance(value, tuple | list) or len(value) != len(fields):
                raise ValueError(f"{value!r} is not a record of type {type_}")
            head.append(tuple(c(v) for c, v in zip(checks[:-1], value[:-1], strict=True)))
            value = value[-1]
        result: Row | None = None
        for part in reversed(head):
            result = (*part, result)
        return result
    return tuple(c(v) for c, v in zip(checks, value, strict=True))


def _set(value: Any, check: Callable[[Any], Any]) -> frozenset[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{value!r} is not a set")
    return frozenset(check(item) for item in value)


# --- out --------------------------------------------------------------------------------------


def arrow_type(type_: Type, records: Records) -> pa.DataType:
    """Return the Arrow type that holds a column of `type_`.

    Records become structs; a record type that contains itself has no Arrow type and becomes text.
    """
    import pyarrow as pa

    match type_.kind:
        case Kind.NUMBER:
            return pa.int64()
        case Kind.UNSIGNED:
            return pa.uint64()
        case Kind.FLOAT:
            return pa.float64()
        case Kind.SYMBOL:
            return pa.string()
        case Kind.BOOL:
            return pa.bool_()
        case Kind.DATE:
            return pa.date32()
        case Kind.TIMESTAMP:
            return pa.timestamp("us")
        case Kind.DECIMAL:
            return pa.decimal128(type_.precision, type_.scale)
        case Kind.SET:
            assert type_.element is not None
            return pa.list_(arrow_type(type_.element, records))
        case Kind.RECORD:
            if _contains_itself(type_, records):
                return pa.string()
            return pa.struct([(f.name, arrow_type(f.type, records)) for f in records[type_.record]])


def _contains_itself(type_: Type, records: Records) -> bool:
    seen: set[Type] = set()
    todo = [f.type for f in records[type_.record]]
    while todo:
        inner = todo.pop()
        if inner == type_:
            return True
        if inner in seen:
            continue
        seen.add(inner)
        if inner.kind is Kind.RECORD:
            todo.extend(f.type for f in records[inner.record])
        elif inner.element is not None:
            todo.append(inner.element)
    return False


def arrow_schema(relation: Relation, records: Records) -> pa.Schema:
    """Return the Arrow schema of a relation."""
    import pyarrow as pa

    return pa.schema([(c.name, arrow_type(c.type, records)) for c in relation.columns])


def to_arrow(rows: Iterable[Row], relation: Relation, records: Records) -> pa.Table:
    """Return the rows as an Arrow table, in the given order."""
    import pyarrow as pa

    schema = arrow_schema(relation, records)
    columns = list(zip(*rows, strict=True)) or [()] * relation.arity
    return pa.Table.from_arrays(
        [
            arrow_array(values, column.type, records)
            for values, column in zip(columns, relation.columns, strict=True)
        ],
        schema=schema,
    )


def arrow_array(values: Iterable[Any], type_: Type, records: Records) -> pa.Array:
    """Return values of one type as an Arrow array."""
    import pyarrow as pa

    return pa.array(_arrow_values(values, type_, records), arrow_type(type_, records))


def _arrow_values(values: Iterable[Any], type_: Type, records: Records) -> list[Any]:
    from tidelog.values.order import sort_key

    match type_.kind:
        case Kind.SET:
            assert type_.element is not None
            key = sort_key(type_.element, records)
            return [_arrow_values(sorted(v, key=key), type_.element, records) for v in values]
        case Kind.RECORD if _contains_itself(type_, records):
            return [format_value(v, type_, records) for v in values]
        case Kind.RECORD:
            fields = records[type_.record]
            return [
                None
                if value is None
                else {
                    f.name: _arrow_values([part], f.type, records)[0]
                    for f, part in zip(fields, value, strict=True)
                }
                for value in values
            ]
        case _:
            return list(values)
