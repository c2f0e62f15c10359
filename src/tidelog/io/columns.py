"""Rows in columns: an Arrow table whose values need no further check.

A table passes from a source into the kernel without a Python object for each value. Iterating over
it yields the same tuples as any other reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.logic.program import Relation
from tidelog.values.scalars import canonical_float
from tidelog.values.types import Kind, Row

if TYPE_CHECKING:
    import pyarrow as pa


class CheckedTable:
    """Rows that a reader of this package has checked, in columns.

    The columns are those of the relation, with its Arrow types (io/tabular.py). There are no nulls,
    and each value is in canonical form. Symbols may have any of Arrow's types for text, also
    dictionaries. Rows may be repeated.
    """

    __slots__ = ("table",)

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for batch in self.table.to_batches():
            yield from zip(*map(_values, batch.columns), strict=True)

    def __contains__(self, row: object) -> bool:
        return any(row == other for other in self)


def _values(column: pa.Array) -> list[object]:
    values: list[Any] = column.to_pylist()
    if str(column.type) == "double":  # NaN must be the one NaN object
        return [canonical_float(value) for value in values]
    return values


def is_columnar(relation: Relation) -> bool:
    """Return whether rows of a relation can be a `CheckedTable`: all of its columns are scalars.

    Arrow has no sets, and records are structs there, so their values are converted one by one.
    """
    nested = (Kind.RECORD, Kind.SET)
    return bool(relation.columns) and all(c.type.kind not in nested for c in relation.columns)
