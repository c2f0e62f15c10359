"""The order of the rows of a source, where a row can revoke an earlier one.

Files apply by modification time, then by path. Spark splits a file into ranges and reads each range
in one task. So rows are ordered by (rank of the file, start of the range, number), where the number
is what `monotonically_increasing_id` gives. Kafka has offsets in place of ranges, and a change feed
versions. Rows of a frame have only the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.errors import StateError

Array = NDArray[np.int64]


@dataclass(frozen=True)
class SourceFile:
    """A file of an epoch."""

    rank: int
    """Its position among the files of its source."""
    shown: str
    """Its path below the folder of the source, for people."""


def order_keys(table: pa.Table, files: Mapping[int, SourceFile]) -> list[Array]:
    """Return the keys by which rows are ordered, the most significant one first.

    A table without these columns is in order, and has no keys.
    """
    names = table.column_names
    keys = []
    if "file" in names and files:
        numbers = np.asarray(table["file"], np.int64)
        known = np.array(sorted(files), np.int64)
        at = np.searchsorted(known, numbers)
        if len(numbers) and (known[np.minimum(at, len(known) - 1)] != numbers).any():
            raise StateError("Spark read a file that it had not announced")
        keys.append(np.array([files[int(n)].rank for n in known], np.int64)[at])
    keys += [np.asarray(table[name], np.int64) for name in ("start", "id") if name in names]
    return keys if "start" in names or "file" not in names else []


def sorted_places(keys: Iterable[Array]) -> Array | None:
    """Return the places of rows in ascending order of their keys; None if they are in order."""
    keys = list(keys)
    if not keys:
        return None
    after = np.ones(max(0, len(keys[0]) - 1), np.bool_)
    for key in reversed(keys):  # from the least to the most significant key
        after = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & after)
    return None if after.all() else np.lexsort(keys[::-1])


def in_order(table: pa.Table, files: Mapping[int, SourceFile]) -> pa.Table:
    """Return the rows in the order in which they apply."""
    places = sorted_places(order_keys(table, files))
    return table if places is None else table.take(pa.array(places))
