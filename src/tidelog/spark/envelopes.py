"""Envelopes: how a row of a source says what came and what went.

    append          new = the row
    changes         op tells; new = the row
    snapshot        all rows together; what is missing went
    debezium        op: c or r (new = after), u (old = before, new = after), d (old = before)
    delta-changes   `_change_type` tells; new = the row

In Spark, `encode` brings the DataFrame of any source into one shape, a column for each thing that
is needed here and nothing else, so that all sources of an epoch can be read by one job:

    op                  text, where the envelope has one
    new0, new1, ..      the declared columns of the relation, by position
    old0, old1, ..      the same, of the row before, in Debezium's envelope
    no_new, no_old      whether these are missing there
    bad                 the whole row as text, if Spark could not take it apart
    file                where the row came from, if that was a file
    start, id           where in it, if the order of rows matters

A relation without columns has a column `rows`, so that there is something to count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.errors import DataError, did_you_mean
from tidelog.logic.program import Relation
from tidelog.spark.declared import Source

CORRUPT = "_corrupt_record"
CHANGE_TYPE = "_change_type"
CAME = frozenset(
    ("+", "insert", "i", "c", "r", "read", "create", "update_after", "update_postimage")
)
WENT = frozenset(("-", "delete", "d", "update_before", "update_preimage"))
ORDERED = ("changes", "debezium", "delta-changes")
"""The modes in which a row can take back what another one said, so that their order matters."""


@dataclass(frozen=True)
class Shape:
    """The columns that a source must have for its relation and its mode."""

    columns: tuple[str, ...]
    """The names of the relation's columns, in the source."""
    op: str = ""
    """The name of the operation column, where there is one."""

    @property
    def all(self) -> tuple[str, ...]:
        """All columns; in a file without names they stand in this order."""
        return (self.op, *self.columns) if self.op else self.columns


def shape_of(source: Source, relation: Relation) -> Shape:
    """Return the columns that a source must have; raise DataError if its renamings are wrong."""
    declared = [column.name for column in relation.columns]
    for name in source.columns:
        if name not in declared:
            hint = did_you_mean(name, declared)
            raise DataError(
                f"`columns` of the source names `{name}`, which `{relation}` does not have"
                + (f"\n  help: {hint}" if hint else "")
            )
    columns = tuple(source.columns.get(name, name) for name in declared)
    op = {"changes": source.op, "delta-changes": CHANGE_TYPE}.get(source.mode, "")
    if op and op in columns:
        raise DataError(
            f"column `{op}` of `{relation}` cannot be the operation column as well"
            "\n  help: name another one with `op`, or rename the column with `columns`"
        )
    return Shape(columns, op)


def missing_columns(shape: Shape, mode: str, found: Sequence[str]) -> str:
    """Say which columns a frame lacks; empty if it has all."""
    needed = ("before", "after", "op") if mode == "debezium" else shape.all
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
    """Return the columns that tell in which file a row stood and, if order matters, where."""
    from pyspark.sql import functions as F

    file = F.col("_metadata.file_name").alias("file")
    if mode not in ORDERED:
        return [file]
    start = F.col("_metadata.file_block_start").alias("start")
    return [file, start, F.monotonically_increasing_id().alias("id")]


def encode(
    frame: Any, shape: Shape, mode: str, *, places: Sequence[Any] = (), drift: str = ""
) -> Any:
    """Return the frame in the common shape. With `drift` all of its rows are bad."""
    from pyspark.sql import functions as F

    found = frame.columns
    if drift:
        kept = [_quoted(name) for name in found if name != CORRUPT]
        whole = F.coalesce(F.to_json(F.struct(*kept)), F.lit("{}"))
        if CORRUPT in found:
            whole = F.coalesce(F.col(CORRUPT), whole)
        return frame.select(whole.alias("bad"), *places)
    bad = [F.col(CORRUPT).alias("bad")] if CORRUPT in found else []
    if mode == "debezium":
        op, before, after = (_event_part(name, found) for name in ("op", "before", "after"))
        parts = [
            op.alias("op"),
            *_fields(shape, after, "new"),
            *_fields(shape, before, "old"),
            after.isNull().alias("no_new"),
            before.isNull().alias("no_old"),
        ]
        return frame.select(*parts, *bad, *places)
    parts = _fields(shape, None, "new") or [F.lit(0).alias("rows")]
    if shape.op:
        parts.append(F.col(_quoted(shape.op)).cast("string").alias("op"))
    return frame.select(*parts, *bad, *places)


def _event_part(name: str, found: Sequence[str]) -> Any:
    """Return a part of Debezium's event: it is there, or below `payload`, or sometimes so."""
    from pyspark.sql import functions as F

    ways = [F.col(f"payload.{name}")] if "payload" in found else []
    if name in found:
        ways.append(F.col(name))
    return F.coalesce(*ways)


def _fields(shape: Shape, row: Any, side: str) -> list[Any]:
    """Return the columns of the relation, of the frame itself or of a struct in it."""
    from pyspark.sql import functions as F

    return [
        (F.col(_quoted(name)) if row is None else row.getField(name)).alias(f"{side}{i}")
        for i, name in enumerate(shape.columns)
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def text_schema(shape: Shape, mode: str, header: Sequence[str] | None = None) -> str:
    """Return the schema, as DDL, for a format of texts: everything is a string.

    `header` has the columns of the files in their order, where these are named in them.
    """
    if mode == "debezium":
        row = "STRUCT<" + ", ".join(f"{_quoted(name)}: STRING" for name in shape.columns) + ">"
        event = f"before: {row}, after: {row}, op: STRING"
        return f"before {row}, after {row}, op STRING, payload STRUCT<{event}>, {CORRUPT} STRING"
    names = list(shape.all if header is None else header)
    return ", ".join(f"{_quoted(name)} STRING" for name in [*names, CORRUPT])


SIGNS: Mapping[str, bool] = {**dict.fromkeys(CAME, True), **dict.fromkeys(WENT, False)}
