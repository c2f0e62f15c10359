"""Checking rows by columns: whole columns are converted, and no value becomes a Python object.

Only conversions that cannot change a value are done here. A column that needs more, or that has a
value that does not fit, is left to the check row by row (io/tabular.py), which also finds the row
of an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import arrow_type
from tidelog.logic.program import Relation
from tidelog.values.types import Kind

_FROM_TUPLES = {Kind.NUMBER: int, Kind.FLOAT: float, Kind.SYMBOL: str, Kind.BOOL: bool}


def checked_table(table: pa.Table, relation: Relation) -> CheckedTable | None:
    """Return the columns of a relation, checked; None if rows have to be checked one by one."""
    if not is_columnar(relation):
        return None
    try:
        columns = [
            _converted(column, arrow_type(field.type, {}), field.type.kind)
            for column, field in zip(table.columns, relation.columns, strict=True)
        ]
    except pa.ArrowInvalid:
        return None
    return _table([column for column in columns if column is not None], relation)


def checked_tuples(rows: Sequence[tuple[Any, ...]], relation: Relation) -> CheckedTable | None:
    """Return rows, all of the relation's arity, by columns; None as for `checked_table`."""
    if any(field.type.kind not in _FROM_TUPLES for field in relation.columns):
        return None
    columns = []
    for i, field in enumerate(relation.columns):
        # Ten times as fast as zip(*rows), which makes a call with a million arguments.
        values = list(map(itemgetter(i), rows))
        if set(map(type, values)) != {_FROM_TUPLES[field.type.kind]}:
            return None
        try:
            columns.append(pa.array(values, arrow_type(field.type, {})))
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            return None
    return _table(columns, relation)


def _table(columns: Sequence[Any], relation: Relation) -> CheckedTable | None:
    if len(columns) < relation.arity:
        return None
    return CheckedTable(pa.table(columns, names=[str(i) for i in range(len(columns))]))


def _converted(column: pa.ChunkedArray, wanted: pa.DataType, kind: Kind) -> Any:
    """Return a column in the type that it must have; None if values have to be looked at."""
    if column.null_count:
        return None
    given, types = column.type, pa.types
    if given == wanted:
        return column
    match kind:
        case Kind.NUMBER | Kind.UNSIGNED if types.is_integer(given):
            return column.cast(wanted)  # raises if a value does not fit
        case Kind.FLOAT if types.is_float32(given):
            return column.cast(wanted)
        case Kind.SYMBOL if types.is_large_string(given):
            return column
        case Kind.SYMBOL if types.is_string_view(given):
            return column.cast(pa.large_string())
        case Kind.SYMBOL if types.is_dictionary(given):
            texts, has_none = given.value_type, any(c.dictionary.null_count for c in column.chunks)
            if not has_none and (types.is_string(texts) or types.is_large_string(texts)):
                return column
    return None
