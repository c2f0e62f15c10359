"""Durations as text: a number and a unit, as in `500ms`, `30s`, `10m`, `2h`, `30d`."""

from __future__ import annotations

import datetime as dt
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
EXAMPLES = "500ms, 30s, 10m, 2h, 30d"


def duration_of(text: str) -> dt.timedelta | None:
    """Return the duration that a text says; None if it says none.

    >>> duration_of("10m")
    datetime.timedelta(seconds=600)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return dt.timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    except OverflowError:
        return None
