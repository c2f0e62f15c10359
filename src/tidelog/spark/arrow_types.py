"""Arrow types that Spark has, for the types of relations.

Spark has no unsigned integers: they become decimals without a fraction, at any depth. A timestamp
is a moment in UTC, whatever time zone the session has. Records are structs, and sets are arrays.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.io.tabular import Records, arrow_schema
from tidelog.logic.program import Relation

OP, EPOCH = "op", "epoch"
_UNSIGNED = pa.decimal128(20, 0)
_CHANGES = (pa.field(OP, pa.string()), pa.field(EPOCH, pa.int64()))


def spark_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that a column has in Spark."""
    if pa.types.is_uint64(type_):
        return _UNSIGNED
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(type_):
        return pa.list_(spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(spark_type(field.type)) for field in type_])
    return type_


def spark_schema(relation: Relation, records: Records, *, changes: bool) -> pa.Schema:
    """Return the schema of a view, or of its changes, which have op and epoch as well."""
    columns = [pa.field(c.name, spark_type(c.type)) for c in arrow_schema(relation, records)]
    return pa.schema([*columns, *(_CHANGES if changes else ())])
