"""Envelopes: how a row of a source says what is inserted and what is deleted.

    append          new = the row
    changes         op: + or -; new = the row
    upsert          new = the row, which replaces that with the same keys, or deletes it
    snapshot        all rows together are the relation; missing rows are deleted
    debezium        op: c or r (new = after), u (old = before, new = after), d (old = before);
                    with keys, as upsert: u needs no before, and d only the keys of it
    delta-changes   `_change_type` is the operation; new = the row

`encode` converts the DataFrame of any source to a common shape, with the needed columns only, so
that one Spark job can read all sources of an epoch:

    op                  text, if the envelope has one
    new0, new1, ..      the declared columns of the relation, by position
    old0, old1, ..      the same columns of the row before, in Debezium's envelope
    no_new, no_old      whether these rows are missing there
    at                  the sequence of an upsert, if it has one
    deletes             whether an upsert deletes its key, if it can
    bad                 the whole row as text, if Spark could not parse it
    again               the row as texts, where types have not done: see typed_json.py
    file                a number for the file of the row, if any: see `file_numbers`
    place               where the row is, as text, if it is not in a file
    start               where Spark began to read in the file, or the offset, if the order matters

A relation without columns has a column `rows`, so that its rows can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.errors import UsageError, did_you_mean
from tidelog.logic.program import Relation
from tidelog.spark.declared import Source
from tidelog.spark.xxhash import xxhash64
from tidelog.values.types import DATE, NUMBER, TIMESTAMP, Kind, Type

CORRUPT = "_corrupt_record"
CHANGE_TYPE = "_change_type"
AT, DELETING = "tidelog at", "tidelog deletes"
"""Columns of a frame before it is encoded: the sequence, and whether the row deletes its key."""
AGAIN = "tidelog again"
"""A column of a frame of JSON values: the same row as texts, where it is needed (typed_json.py)."""
INSERTS = frozenset(
    ("+", "insert", "i", "c", "r", "read", "create", "update_after", "update_postimage")
)
DELETES = frozenset(("-", "delete", "d", "update_before", "update_preimage"))
ORDERED = ("changes", "upsert", "debezium", "delta-changes")
"""The modes in which a row can revoke an earlier one, so that the order of rows matters."""


@dataclass(frozen=True)
class Shape:
    """The columns that a source must have for its relation and mode."""

    columns: tuple[str, ...]
    """The names that the relation's columns have in the source."""
    op: str = ""
    """The name of the operation column; empty if there is none."""
    nulls: tuple[tuple[str, str], ...] = ()
    """Columns of the source whose nulls are replaced, and the value, as text."""
    keys: tuple[int, ...] = ()
    """The positions of the columns that identify a row, for upserts."""
    sequence: str = ""
    """The column that says which row of a key is the newest; empty if there is none."""
    sequence_type: Type = NUMBER
    """What the sequence is, if the source has it as text."""
    also: tuple[str, ...] = ()
    """Other columns that may be read: of the sequence, and in the condition for deletions."""

    @property
    def all(self) -> tuple[str, ...]:
        """All columns, in the order of a file without a header."""
        return (self.op, *self.columns) if self.op else self.columns


def shape_of(source: Source, relation: Relation) -> Shape:
    """Return the columns that a source must have; raise UsageError if its renamings are wrong."""
    declared = [column.name for column in relation.columns]
    for name in source.columns:
        _check_declared("columns", name, relation)
    columns = tuple(source.columns.get(name, name) for name in declared)
    op = {"changes": source.op, "delta-changes": CHANGE_TYPE}.get(source.mode, "")
    if source.format == "iceberg" and op == "op":
        op = CHANGE_TYPE
    if op and op in columns:
        raise UsageError(
            f"column `{op}` of `{relation}` cannot be the operation column as well"
            "\n  help: name another one with `op`, or rename the column with `columns`"
        )
    nulls = []
    for name, value in source.nulls.items():
        _check_declared("nulls", name, relation)
        nulls.append((columns[declared.index(name)], value))
    return _with_keys(Shape(columns, op, tuple(nulls)), source, relation)


def _check_declared(key: str, name: str, relation: Relation) -> None:
    """Raise UsageError if a key of a source names a column that its relation does not have."""
    declared = [column.name for column in relation.columns]
    if name not in declared:
        hint = did_you_mean(name, declared)
        raise UsageError(
            f"`{key}` of the source names `{name}`, which `{relation}` does not have"
            + (f"\n  help: {hint}" if hint else "")
        )


_NESTED = (Kind.RECORD, Kind.SET)
_SEQUENCE_TYPES = {
    Kind.NUMBER: NUMBER,
    Kind.UNSIGNED: NUMBER,
    Kind.DATE: DATE,
    Kind.TIMESTAMP: TIMESTAMP,
}
_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|`(?P<quoted>[^`]+)`|(?P<plain>[A-Za-z_]\w*)")


def _with_keys(shape: Shape, source: Source, relation: Relation) -> Shape:
    """Return the shape with what an upsert needs; raise UsageError if that is wrong."""
    if not source.keys:
        return shape
    declared = [column.name for column in relation.columns]
    for name in source.keys:
        _check_declared("keys", name, relation)
        if relation.columns[declared.index(name)].type.kind in _NESTED:
            raise UsageError(f"column `{name}` of `{relation}` is nested, so it cannot be a key")
    type_ = NUMBER
    if source.sequence in shape.columns:
        column = relation.columns[shape.columns.index(source.sequence)]
        if column.type.kind not in _SEQUENCE_TYPES:
            raise UsageError(
                f"the sequence `{source.sequence}` is {column.declared} in `{relation}`; it must be"
                " a whole number, a date or a timestamp"
            )
        type_ = _SEQUENCE_TYPES[column.type.kind]
    known = {name.lower() for name in (*shape.columns, CORRUPT)}
    also = []
    words = (word["quoted"] or word["plain"] for word in _WORD.finditer(source.delete_when))
    for name in (source.sequence, *words):
        if name and name.lower() not in known:
            known.add(name.lower())
            also.append(name)
    return replace(
        shape,
        keys=tuple(declared.index(name) for name in source.keys),
        sequence=source.sequence,
        sequence_type=type_,
        also=tuple(also),
    )


def missing_columns(shape: Shape, mode: str, found: Sequence[str]) -> str:
    """Return which columns a frame lacks; empty if it has all of them."""
    needed = ("before", "after", "op") if mode == "debezium" else shape.all
    if shape.sequence and shape.sequence not in needed:
        needed = (*needed, shape.sequence)
    if mode == "debezium" and "payload" in found:
        return ""
    absent = [name for name in needed if name not in found]
    if not absent:
        return ""
    found = [name for name in found if name != CORRUPT]
    plural = "s" * (len(absent) > 1)
    return (
        f"column{plural} {', '.join(f'`{name}`' for name in absent)} missing;"
        f" there are {', '.join(f'`{name}`' for name in found) or 'none'}"
    )


def file_places(mode: str) -> list[Any]:
    """Return columns for the file of a row and, if order matters, the position in the file.

    A number for the file takes a tenth of the room of its path.
    """
    from pyspark.sql import functions as F

    file = F.xxhash64(F.col("_metadata.file_path")).alias("file")
    if mode not in ORDERED:
        return [file]
    return [file, F.col("_metadata.file_block_start").alias("start")]


def file_numbers(address: str) -> tuple[int, ...]:
    """Return the numbers that `file_places` may compute for a file.

    The address is from `inputFiles`. Spark writes `file:///x` there, and `file:/x` in `_metadata`.
    """
    ways = {address, address.replace("file:///", "file:/", 1)}
    return tuple(signed(xxhash64(way.encode())) for way in ways)


def signed(number: int) -> int:
    """Return an unsigned 64-bit number as a signed one, as Spark has it."""
    return number - (1 << 64) if number >> 63 else number


def encode(
    frame: Any, shape: Shape, mode: str, *, places: Sequence[Any] = (), drift: str = ""
) -> Any:
    """Return the frame in the common shape. With `drift` all of its rows are bad."""
    from pyspark.sql import functions as F

    found = frame.columns
    if drift:
        kept = [quoted(n) for n in found if n != CORRUPT and not n.startswith("tidelog ")]
        whole = F.coalesce(F.to_json(F.struct(*kept)), F.lit("{}"))
        if CORRUPT in found:
            whole = F.coalesce(F.col(CORRUPT), whole)
        return frame.select(whole.alias("bad"), *places)
    bad = [F.col(CORRUPT).alias("bad")] if CORRUPT in found else []
    if mode == "debezium":
        op, before, after = (_event_part(name, found) for name in ("op", "before", "after"))
        parts = [
            op.alias("op"),
            *_fields(shape, after, "new", {}),
            *_fields(shape, before, "old", {}),
            after.isNull().alias("no_new"),
            before.isNull().alias("no_old"),
        ]
        return frame.select(*parts, *bad, *places)
    types = {column.name: column.dataType for column in frame.schema.fields}
    parts = _fields(shape, None, "new", types) or [F.lit(0).alias("rows")]
    if AT in found:
        parts.append(F.col(f"`{AT}`").alias("at"))
    if DELETING in found:
        parts.append(F.col(f"`{DELETING}`").alias("deletes"))
    if AGAIN in found:
        parts.append(F.col(f"`{AGAIN}`").alias("again"))
    if shape.op:
        parts.append(F.col(quoted(shape.op)).cast("string").alias("op"))
    return frame.select(*parts, *bad, *places)


def _event_part(name: str, found: Sequence[str]) -> Any:
    """Return a part of Debezium's event, which may be inside `payload`."""
    from pyspark.sql import functions as F

    ways = [F.col(f"payload.{name}")] if "payload" in found else []
    if name in found:
        ways.append(F.col(name))
    return F.coalesce(*ways)


def _fields(shape: Shape, row: Any, side: str, types: Mapping[str, Any]) -> list[Any]:
    """Return the columns of the relation, from the frame or from a struct in it."""
    from pyspark.sql import functions as F

    nulls = dict(shape.nulls)
    found = []
    for i, name in enumerate(shape.columns):
        column = F.col(quoted(name)) if row is None else row.getField(name)
        if name in nulls:
            value = F.lit(nulls[name])
            column = F.coalesce(column, value.cast(types[name]) if name in types else value)
        found.append(column.alias(f"{side}{i}"))
    return found


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def text_schema(shape: Shape, mode: str, header: Sequence[str] | None = None) -> str:
    """Return the schema, as DDL, of a text format: all columns are strings.

    `header` has the column names of files with a header, in their order.
    """
    if mode == "debezium":
        row = "STRUCT<" + ", ".join(f"{quoted(name)}: STRING" for name in shape.columns) + ">"
        event = f"before: {row}, after: {row}, op: STRING"
        return f"before {row}, after {row}, op STRING, payload STRUCT<{event}>, {CORRUPT} STRING"
    names = list((*shape.all, *shape.also) if header is None else header)
    return ", ".join(f"{quoted(name)} STRING" for name in [*names, CORRUPT])


SIGNS: Mapping[str, bool] = {**dict.fromkeys(INSERTS, True), **dict.fromkeys(DELETES, False)}
