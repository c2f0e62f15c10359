"""SQL for tables that take changes: one MERGE that deletes and inserts whole rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.spark.view_changes import EPOCH, OP


def quoted(name: str) -> str:
    """Return the name of a table, or of a column, with each part in quotes.

    >>> quoted("shop.fraud")
    '`shop`.`fraud`'
    >>> quoted("`my.shop`.fraud")
    '`my.shop`.`fraud`'
    """
    parts: list[str] = []
    while name:
        if name.startswith("`"):
            part, _, name = name[1:].partition("`")
            name = name.removeprefix(".")
        else:
            part, _, name = name.partition(".")
        parts.append(f"`{part}`")
    return ".".join(parts)


def column(name: str) -> str:
    """Return the name of a column in quotes; a point in it is a point."""
    return "`" + name.replace("`", "``") + "`"


def last_epoch(spark: Any, table: str) -> set[int]:
    """Return the last epoch in a table of changes, in a set; an empty set if it has no rows."""
    last = spark.sql(f"SELECT max({EPOCH}) AS last FROM {table}").collect()[0]["last"]
    return set() if last is None else {last}


@contextmanager
def merge_statement(frame: Any, table: str, names: Sequence[str]) -> Iterator[str]:
    """Give a statement that merges a frame of changes into a table.

    The rows of a view are a set, so they are matched by all columns. A row that is there is not
    inserted, and one that is not there not deleted: a second time, the statement changes nothing.
    """
    source = f"tidelog_changes_{secrets.token_hex(6)}"
    columns = [column(name) for name in names]
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in columns)
    frame.createOrReplaceTempView(source)
    try:
        yield (
            f"MERGE INTO {table} AS t USING {source} AS s ON {same}"
            f" WHEN MATCHED AND s.{OP} = '-' THEN DELETE"
            f" WHEN NOT MATCHED AND s.{OP} = '+' THEN INSERT ({', '.join(columns)})"
            f" VALUES ({', '.join(f's.{name}' for name in columns)})"
        )
    finally:
        frame.sparkSession.catalog.dropTempView(source)
