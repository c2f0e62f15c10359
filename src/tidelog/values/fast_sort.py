"""The fast sort: many rows of simple columns, sorted and taken apart by Arrow.

It gives exactly the order of `order.sort_rows` for simple columns: Arrow compares symbols by
their UTF-8 bytes, which is the order of code points, and puts NaN last. A million rows of two
numbers take half the time of Python's sort, and the columns come out ready to be formatted.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.values.types import Field, Kind, Row

_ARROW_TYPES = {
    Kind.NUMBER: pa.int64(),
    Kind.UNSIGNED: pa.uint64(),
    Kind.FLOAT: pa.float64(),
    Kind.SYMBOL: pa.large_string(),
    Kind.BOOL: pa.bool_(),
}


def sort_columns(rows: Sequence[Row], columns: Sequence[Field]) -> list[list[Any]] | None:
    """Return the columns of the sorted rows, or None if Arrow cannot hold them."""
    if not columns or any(field.type.kind not in _ARROW_TYPES for field in columns):
        return None
    try:
        arrays = [
            pa.array(list(map(itemgetter(index), rows)), _ARROW_TYPES[field.type.kind])
            for index, field in enumerate(columns)
        ]
    except (pa.ArrowException, UnicodeEncodeError):  # half of a surrogate pair in a symbol
        return None
    names = [str(index) for index in range(len(columns))]
    table = pa.table(arrays, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return [array.take(order).to_pylist() for array in arrays]
