"""Many frames as one: the rows of all sources in one Spark job.

A job costs tens of milliseconds even for a few rows. So the frames of all sources are united, and
each row has the number of its frame, its *tag*. Frames share columns of the same type, since every
column costs time for every row, even if it is null:

    part   bigint_0   bigint_1   string_0
    0      17         null       +             p(x: bigint, op: string)
    1      3          4          x             q(x: bigint, y: bigint, name: string)

The columns are flat, because Arrow cannot represent a null struct whose fields cannot be null.
`id` numbers the rows of each task, in order.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PART, ID = "part", "id"
Columns = Mapping[int, Mapping[str, str]]
"""For each tag, which column of the united frame has each column."""


@dataclass(frozen=True)
class TaggedFrame:
    """A frame whose rows have tags."""

    frame: Any
    columns: Columns

    def numbered(self) -> TaggedFrame:
        """Return a frame whose rows have the column `id`. Streaming frames cannot have one."""
        from pyspark.sql import functions as F

        return replace(self, frame=self.frame.withColumn(ID, F.monotonically_increasing_id()))

    def without(self, tags: Sequence[int]) -> TaggedFrame:
        """Return a frame without the rows of some tags."""
        return replace(self, frame=self.frame.where(~self.frame[PART].isin(list(tags))))


def tagged(frame: Any, tag: int) -> TaggedFrame:
    """Return a frame with a tag."""
    from pyspark.sql import functions as F

    names: dict[str, str] = {}
    seen: dict[str, int] = {}
    for field in frame.schema.fields:
        kind = _type_name(field.dataType)
        names[field.name] = f"{kind}_{seen.get(kind, 0)}"
        seen[kind] = seen.get(kind, 0) + 1
    columns = [F.col(f"`{name}`").alias(shared) for name, shared in names.items()]
    return TaggedFrame(frame.select(F.lit(tag).alias(PART), *columns), {tag: names})


def _type_name(type_: Any) -> str:
    """Return a name that types have in common only if they are the same."""
    text = type_.simpleString()
    if re.fullmatch(r"\w+", text):
        return str(text)
    return f"{type_.typeName()}_{zlib.crc32(type_.json().encode()):08x}"


def united(frames: Sequence[TaggedFrame]) -> TaggedFrame:
    """Return the union of tagged frames."""
    together = reduce(
        lambda a, b: a.unionByName(b, allowMissingColumns=True), [one.frame for one in frames]
    )
    return TaggedFrame(together, {tag: own for one in frames for tag, own in one.columns.items()})


def with_numbers(table: pa.Table, first: int) -> pa.Table:
    """Return rows with the column `id`; `first` is the number of the first one."""
    return table.append_column(ID, pa.array(np.arange(first, first + table.num_rows)))


def first_number(partition: int) -> int:
    """Return the number of the first row of a partition, as `monotonically_increasing_id` does."""
    return partition << 33


def split(table: pa.Table, columns: Columns) -> dict[int, pa.Table]:
    """Return the rows of each tag that the table has, with their own columns and their `id`."""
    parts = table[PART]
    tags = pc.unique(parts).to_pylist()
    found = {}
    for tag in tags:
        rows = table if len(tags) == 1 else table.filter(pc.equal(parts, tag))
        own = dict(columns[tag])
        if ID in table.column_names:
            own[ID] = ID
        found[tag] = rows.select(list(own.values())).rename_columns(list(own))
    return found
