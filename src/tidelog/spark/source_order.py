"""The order of rows: three columns that connectors add to the rows of a source.

    tidelog time    when the row came, where that decides the order; else null
    tidelog file    a file, or the partition of a topic: shown with rows in the quarantine
    tidelog start   the position there

Within a micro-batch, rows apply in the order of these columns, the first one first. Names with a
space cannot be in the way of a column of a program.
"""

from __future__ import annotations

from typing import Any

TIME = "tidelog time"
FILE = "tidelog file"
START = "tidelog start"


def ordered(frame: Any, *, file: Any, start: Any, time: Any = None) -> Any:
    """Return a frame with the columns of the order."""
    from pyspark.sql import functions as F

    when = F.lit(None) if time is None else time
    return frame.withColumns(
        {
            TIME: when.cast("timestamp"),
            FILE: file.cast("string"),
            START: start.cast("long"),
        }
    )


def is_path(text: str) -> bool:
    """Return whether a text is the path of a table and not its name in a catalog.

    >>> is_path("s3a://shop/payment"), is_path("shop.payment")
    (True, False)
    """
    return "/" in text
