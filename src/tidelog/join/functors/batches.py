"""Batches of rows: one call for each distinct combination, and values in order by rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.join.functors.common import Flags, Ordinals, Reason, Scalar, Uncomputable
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec
from tidelog.values.order import sort_key
from tidelog.values.types import Type

_FEW = 64  # rows up to which looking for duplicates costs more than it saves
_MANY = 20_000  # rows from which Arrow's hash table is worth loading Arrow (0.5 s)


# --- one call for each distinct combination ---------------------------------------------------


def each(compute: Scalar, args: Sequence[Ordinals], rows: int) -> tuple[Ordinals, Flags, Reason]:
    """Call `compute` for the rows; in large batches, once for rows that are alike."""
    inverse: NDArray[np.intp] | None = None
    combinations: Any = [()]
    if not args:
        inverse = np.zeros(rows, np.intp)
    elif len(args[0]) < _FEW:
        combinations = zip(*(arg.tolist() for arg in args), strict=True)
    else:
        distinct, inverse = distinct_rows(args)
        combinations = zip(*(column.tolist() for column in distinct), strict=True)
    values: list[int] = []
    failures: dict[int, str] = {}
    for combination in combinations:
        try:
            values.append(compute(*combination))
        except Uncomputable as failure:
            failures[len(values)] = str(failure)
            values.append(0)
    ordinals = np.array(values, np.int64)
    failed = np.zeros(len(values), np.bool_)
    failed[list(failures)] = True
    if inverse is None:
        return ordinals, failed, failures.__getitem__
    places = inverse
    return ordinals[places], failed[places], lambda row: failures[int(places[row])]


def distinct_rows(args: Sequence[Ordinals]) -> tuple[list[Ordinals], NDArray[np.intp]]:
    """Return the distinct rows, as columns, and for each row the place of its like among them."""
    values, inverse = _numbered(args[0])
    columns = [values]
    for arg in args[1:]:
        values, codes = _numbered(arg)
        size = len(values)  # two columns become one: each has fewer distinct values than 2**31
        pairs, inverse = _numbered(inverse.astype(np.int64) * size + codes)
        columns = [column[pairs // size] for column in columns] + [values[pairs % size]]
    return columns, inverse


def _numbered(column: Ordinals) -> tuple[Ordinals, NDArray[np.intp]]:
    """Return the distinct values of a column, and each row's place among them."""
    if len(column) < _MANY:
        return np.unique(column, return_inverse=True)
    # Arrow hashes where NumPy sorts: a million rows take 11 ms instead of 107 if there are a
    # thousand values, 66 ms instead of 152 if all differ.
    import pyarrow as pa

    encoded = pa.array(column).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.intp)


# --- values in order --------------------------------------------------------------------------

COMPARISONS: dict[str, Callable[[Ordinals, Ordinals], Flags]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def ranked(args: Sequence[Ordinals], type_: Type, codec: Codec) -> tuple[Ordinals, Ordinals]:
    """Return numbers in the order of the values for all arguments, and the ordinal of each number.

    Where ordinals are in order already they are the numbers, and the second result is empty.
    """
    stacked = np.stack(args)
    if type_.kind not in UNORDERED:
        return stacked, np.empty(0, np.int64)
    distinct, inverse = _numbered(stacked.ravel())
    key, decode = sort_key(type_, codec.records), codec.decoder(type_)
    keys = [key(decode(ordinal)) for ordinal in distinct.tolist()]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[inverse].reshape(stacked.shape), distinct[order]


def extreme(op: str, args: Sequence[Ordinals], type_: Type, codec: Codec) -> Ordinals:
    """Return the smallest or the largest of the arguments, row by row; `op` is `min` or `max`."""
    ranks, ordinals = ranked(args, type_, codec)
    best: Ordinals = ranks.min(axis=0) if op == "min" else ranks.max(axis=0)
    return ordinals[best] if type_.kind in UNORDERED else best
