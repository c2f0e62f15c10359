"""The changes of a view in an epoch, as sinks take them: the columns of the view, `op`, `epoch`.

How many rows there are is known at once. The rows are made into a DataFrame, or collected as an
Arrow table, only by a sink that wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelog.logic.program import Relation
from tidelog.spark.frames import to_frame

if TYPE_CHECKING:
    from tidelog.database.view import Change

OP, EPOCH = "op", "epoch"
_SIGN = "tidelog sign"


@dataclass(frozen=True)
class ViewChange:
    """The net change of a view in one epoch."""

    epoch: int
    rows: int
    frame: Callable[[], Any]
    """Makes the DataFrame."""
    table: Callable[[], pa.Table]
    """Collects the rows."""
    files: Sequence[Path] = ()
    """Parquet files with these rows and no others, if Spark has written them."""


def change_of(spark: Any, epoch: int, change: Change) -> ViewChange:
    """Return a net change whose rows are in this process."""
    rows = len(change.deleted) + len(change.inserted)

    def table() -> pa.Table:
        return changes_table(epoch, change)

    return ViewChange(epoch, rows, lambda: to_frame(spark, table()), table)


def changes_table(epoch: int, change: Change) -> pa.Table:
    """Return the rows of a net change, deleted ones first, with op and epoch."""
    deleted, inserted = change.deleted, change.inserted
    rows = pa.concat_tables([deleted.to_arrow(), inserted.to_arrow()])
    return signed(rows, epoch, len(deleted), len(inserted))


def changes_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the changes of a view, given that of the view."""
    return pa.schema([*schema, pa.field(OP, pa.string()), pa.field(EPOCH, pa.int64())])


def signed(rows: pa.Table, epoch: int, deleted: int, inserted: int) -> pa.Table:
    """Return rows, of which the first ones are deleted, with op and epoch."""
    signs = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.array([0, 1], np.int32), [deleted, inserted])), pa.array(["-", "+"])
    ).cast(pa.string())
    epochs = pa.array(np.full(deleted + inserted, epoch, np.int64))
    if not rows.num_columns:  # a table without columns does not know how many rows it has
        return pa.table({OP: signs, EPOCH: epochs})
    return rows.append_column(OP, signs).append_column(EPOCH, epochs)


def as_insertions(frame: Any, epoch: int) -> Any:
    """Return the rows of a view as a change that inserts all of them."""
    from pyspark.sql import functions as F

    return frame.withColumns({OP: F.lit("+"), EPOCH: F.lit(epoch).cast("long")})


def net_frame(changes: Sequence[ViewChange], relation: Relation) -> Any:
    """Return the net change of several epochs; `epoch` is the last one.

    A row comes and goes in turns. So the sum of its signs is 0 if it is as it was before.
    """
    frames = [change.frame() for change in changes]
    if len(frames) == 1:
        return frames[0]
    from pyspark.sql import functions as F

    columns = [F.col(f"`{column.name}`") for column in relation.columns]
    sign = F.sum(F.when(F.col(OP) == "+", 1).otherwise(-1)).alias(_SIGN)
    together = reduce(lambda a, b: a.unionByName(b), frames)
    op = F.when(F.col(f"`{_SIGN}`") > 0, "+").otherwise("-").alias(OP)
    epoch = F.lit(changes[-1].epoch).cast("long").alias(EPOCH)
    summed = together.groupBy(*columns).agg(sign).where(F.col(f"`{_SIGN}`") != 0)
    return summed.select(*columns, op, epoch)
