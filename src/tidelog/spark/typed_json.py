"""JSON values with numbers as numbers, for rows of many columns of numbers.

Tidelog decides itself which texts are numbers, so Spark gives the values of JSON as texts. But for
Spark a text costs twice as much as a number: to make, to copy, and to send to Python. So values are
parsed with the types that are declared. Where the result is certainly the same, it is taken. What
is left is parsed a second time, as texts:

    message                new0   again
    {"x": 17}              17
    {"x": "17"}                   [({"x": "17"}, null)]        accepted
    {"x": 1.5}                    [({"x": "1.5"}, null)]       quarantined: not a number
    {"x": 17                      [({"x": null, ..}, null)]    quarantined, as `_corrupt_record`
    [17]                          [(.., "[17]")]               the same: no object

A null list takes less time than a null structure. `with_texts` puts the texts back to where they
belong, so that nothing depends on which way a row has taken, but how the quarantine writes a number
that fits: `1.5` for a message with `1.50`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.logic.program import Relation
from tidelog.spark.envelopes import AGAIN, CORRUPT, Shape, quoted
from tidelog.values.types import Kind

_TYPES = {Kind.NUMBER: "BIGINT", Kind.FLOAT: "DOUBLE", Kind.BOOL: "BOOLEAN"}
_LARGEST = "1.7976931348623157E308D"
MODES = ("append", "changes")
"""In the others, conditions and sequences of the user may see the types."""


def typed_schema(shape: Shape, relation: Relation, mode: str) -> str:
    """Return the schema with the declared types, as DDL; empty if texts must do."""
    kinds = dict(zip(shape.columns, (c.type.kind for c in relation.columns), strict=True))
    if mode not in MODES or shape.nulls or not any(kind in _TYPES for kind in kinds.values()):
        return ""
    columns = [f"{quoted(n)} {_TYPES.get(kinds.get(n, Kind.SYMBOL), 'STRING')}" for n in shape.all]
    return ", ".join([*columns, f"{CORRUPT} STRING"])


def parsed(rows: Any, value: str, schema: str, typed: str) -> Any:
    """Replace a column of JSON texts by columns of the typed schema, and `AGAIN`.

    `schema` is the same one with texts.
    """
    from pyspark.sql import functions as F

    options = {"columnNameOfCorruptRecord": CORRUPT}
    text, row = F.col(quoted(value)), "tidelog row"
    others = [quoted(name) for name in rows.columns if name != value]
    # Spark must not compute the row again for each of its columns: so there are two selections.
    rows = rows.select(*others, text, F.from_json(text, typed, options).alias(row))
    fields = rows.schema[row].dataType.fields
    column = F.col(quoted(row))
    good = column.getField(CORRUPT).isNull() & F.startswith(text, F.lit("{"))
    for field in fields:
        if field.dataType.typeName() == "double":  # a text such as 1e999 is refused
            number = F.abs(column.getField(field.name))
            good = good & (number.isNull() | (number <= F.expr(_LARGEST)))
    bad = F.when(text.rlike(r"^\s*\{"), F.lit(None)).otherwise(text)
    again = F.struct(F.from_json(text, schema, options).alias("row"), bad.alias("bad"))
    names = [field.name for field in fields if field.name != CORRUPT]
    return rows.select(
        *(column.getField(name).alias(name) for name in names),
        F.when(~good, F.array(again)).alias(AGAIN),
        *others,
    )


def with_texts(table: pa.Table, shape: Shape) -> pa.Table:
    """Return rows in the common shape, as if all values had been parsed as texts.

    If all were parsed as numbers, these are left as they are.
    """
    again = table["again"].combine_chunks()
    if again.null_count == table.num_rows:
        return table
    mask = again.is_valid()
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    found = pc.list_flatten(again)
    texts = pc.struct_field(found, "row")
    table = in_texts(table)
    for i, name in enumerate(table.column_names):
        field = _field_of(name, shape)
        if field:
            values = pc.struct_field(texts, field)
            own = pc.replace_with_mask(_whole(table[name]), mask, _whole(values))
            table = table.set_column(i, name, own)
    bad = pc.coalesce(pc.struct_field(found, "bad"), pc.struct_field(texts, CORRUPT))
    none = pa.nulls(table.num_rows, pa.string())
    return table.append_column("bad", pc.replace_with_mask(none, mask, _whole(bad)))


def in_texts(table: pa.Table) -> pa.Table:
    """Return rows in the common shape with numbers as texts."""
    for i, name in enumerate(table.column_names):
        if name.startswith("new") and not pa.types.is_string(table[name].type):
            table = table.set_column(i, name, table[name].cast(pa.string()))
    return table


def _field_of(name: str, shape: Shape) -> str:
    """Return the field of a message for a column in the common shape; empty if there is none."""
    if name == "op":
        return shape.op
    return shape.columns[int(name[3:])] if name.startswith("new") else ""


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
