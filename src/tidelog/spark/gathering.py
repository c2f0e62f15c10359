"""One job for all sources of an epoch.

A job costs tens of milliseconds however small it is. So the frames of all parts are put under each
other, each in columns of its own, and come to the driver as one Arrow table:

    part   0.op   0.new0   1.new0   1.new1
    0      +      17       null     null
    1      null   null     3        x

The columns stay flat: Arrow has no place for a null around fields that cannot be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import DataError
from tidelog.spark.sources import Part, first_line


def gather(parts: Sequence[Part]) -> list[pa.Table]:
    """Return the rows of each part, in the shape of `envelopes.encode`."""
    parts = [part if part.make is None else part.make() for part in parts]
    computed = iter(_computed([part.frame for part in parts if part.table is None]))
    return [next(computed) if part.table is None else part.table for part in parts]


def _computed(frames: list[Any]) -> list[pa.Table]:
    if not frames:
        return []
    try:
        if len(frames) == 1:
            return [frames[0].toArrow()]
        from pyspark.sql import functions as F

        tagged = [
            frame.select(
                F.lit(i).alias("part"),
                *(F.col(f"`{name}`").alias(f"{i}.{name}") for name in frame.columns),
            )
            for i, frame in enumerate(frames)
        ]
        together = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), tagged)
        table = together.toArrow()
    except DataError:
        raise
    except Exception as error:  # Spark's own, of either kind of session
        raise DataError(f"Spark could not read the sources: {first_line(error)}") from error
    result = []
    for i, frame in enumerate(frames):
        rows = table.filter(pc.equal(table["part"], i))
        result.append(
            rows.select([f"{i}.{n}" for n in frame.columns]).rename_columns(frame.columns)
        )
    return result
