"""`range`: all numbers from a start to a stop, for many rows at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.join.functors.batches import distinct_rows
from tidelog.join.functors.common import Flags, Ordinals, Reason, Uncomputable
from tidelog.join.functors.numbers import SIGN
from tidelog.store.codec import Codec, float_ordinals, float_value
from tidelog.values.types import NUMBER_MAX, Kind, Type

_ENDLESS = "`range` with step 0 has no end"
_INFINITE = "`range` needs finite numbers"
_STUCK = "`range` makes no progress: its step is too small for its start"


def expand_range(
    start: Ordinals, stop: Ordinals, step: Ordinals | None, type_: Type, codec: Codec
) -> tuple[Ordinals, Ordinals, Flags, Reason]:
    """Return all numbers of all ranges, row by row: the row and the ordinal of each number.

    Then which rows failed, which have no numbers, and the reason for a failed row.
    """
    if type_.kind is Kind.FLOAT:
        return _float_ranges(start, stop, step)
    # Differences of 64-bit numbers need 65 bits with their sign. The sign is known from the
    # comparison, so 64 bits without one do, and all sums may wrap around on the way.
    if step is None:
        forward = start <= stop
        stride = np.ones(len(start), np.uint64)
    elif type_.kind is Kind.UNSIGNED:
        forward = np.ones(len(start), np.bool_)
        stride = (step ^ np.int64(-SIGN)).view(np.uint64)
    else:
        forward = step > 0
        stride = np.where(forward, step, -step).view(np.uint64)
    failed = stride == 0
    some = np.where(forward, start < stop, start > stop) & ~failed
    span = np.where(forward, stop - start, start - stop).view(np.uint64)
    counts = np.where(some, (span - np.uint64(1)) // np.maximum(stride, np.uint64(1)), 0)
    counts = counts.astype(np.uint64) + some.astype(np.uint64)
    rows, places = _positions(counts)
    by = np.where(forward, stride.view(np.int64), -stride.view(np.int64))
    return rows, start[rows] + places * by[rows], failed, lambda _: _ENDLESS


def _positions(counts: NDArray[Any]) -> tuple[Ordinals, Ordinals]:
    """Return (row, place in the row) for rows with a number of places each."""
    total = sum(counts.tolist())
    if total > NUMBER_MAX // 16:
        raise MemoryError(f"ranges of {total} numbers")
    counts = counts.astype(np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    return rows, np.arange(total) - (ends - counts)[rows]


def _float_ranges(
    start: Ordinals, stop: Ordinals, step: Ordinals | None
) -> tuple[Ordinals, Ordinals, Flags, Reason]:
    args = (start, stop) if step is None else (start, stop, step)
    distinct, inverse = distinct_rows(args)
    pieces: list[Ordinals] = []
    failures: dict[int, str] = {}
    for combination in zip(*(column.tolist() for column in distinct), strict=True):
        try:
            pieces.append(float_ordinals(float_range(*map(float_value, combination))))
        except Uncomputable as failure:
            failures[len(pieces)] = str(failure)
            pieces.append(np.empty(0, np.int64))
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    begins = np.cumsum(lengths) - lengths
    rows, places = _positions(lengths[inverse])
    failed = np.zeros(len(pieces), np.bool_)
    failed[list(failures)] = True
    numbers = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    ordinals = numbers[begins[inverse][rows] + places]
    return rows, ordinals, failed[inverse], lambda row: failures[int(inverse[row])]


def float_range(start: float, stop: float, step: float | None = None) -> NDArray[np.float64]:
    """Return start, start + step, (start + step) + step, .. before stop; raise `Uncomputable`."""
    if step is None:
        step = 1.0 if start <= stop else -1.0
    if step == 0.0:
        raise Uncomputable(_ENDLESS)
    if not all(map(math.isfinite, (start, stop, step))):
        raise Uncomputable(_INFINITE)
    blocks = []
    size = 64
    while True:
        # Accumulated one after the other: start + i * step would round differently.
        block = np.full(size, step)
        block[0] = start
        with np.errstate(over="ignore"):
            np.add.accumulate(block, out=block)
            inside = block < stop if step > 0.0 else block > stop
            kept = size if inside.all() else int(inside.argmin())
            following = block[:kept] + step
        if (following == block[:kept]).any():
            raise Uncomputable(_STUCK)
        blocks.append(block[:kept])
        if kept < size:
            return np.concatenate(blocks)
        start = float(following[-1])
        size = min(4 * size, 1 << 16)
