"""Columns of ordinals as Arrow arrays, and back, without a Python object for each value.

Values without a fixed width (symbols, records, sets) are converted once for each distinct value;
rows then refer to them by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import arrow_array, arrow_type
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec, float_ordinals, float_values
from tidelog.values.types import Kind, Type

if TYPE_CHECKING:
    import pyarrow as pa

_SIGN = np.uint64(1 << 63)


def arrow_column(ordinals: NDArray[np.int64], type_: Type, codec: Codec) -> pa.Array:
    """Return the values of a column as an array of the type's Arrow type (io/tabular.py)."""
    import pyarrow as pa

    ordinals = np.ascontiguousarray(ordinals)
    wanted = arrow_type(type_, codec.records)
    match type_.kind:
        case Kind.NUMBER:
            return pa.array(ordinals)
        case Kind.UNSIGNED:
            return pa.array(ordinals.view(np.uint64) ^ _SIGN)
        case Kind.FLOAT:
            return pa.array(float_values(ordinals))
        case Kind.BOOL:
            return pa.array(ordinals.astype(np.bool_))
        case Kind.DATE:
            return pa.array(ordinals.astype(np.int32)).view(wanted)
        case Kind.TIMESTAMP:
            return pa.array(ordinals).view(wanted)
        case Kind.DECIMAL:
            # 128 bits each: the low word, and the sign all through the high one.
            words = np.stack([ordinals, ordinals >> 63], axis=1)
            return pa.Array.from_buffers(wanted, len(ordinals), [None, pa.py_buffer(words)])
        case Kind.SET if type_.element is not None and type_.element.kind not in UNORDERED:
            # Elements are listed in the order of their ordinals, which is that of their values.
            table = codec.sets(type_)
            starts = np.concatenate([[0], np.cumsum(table.sizes(ordinals))]).astype(np.int32)
            elements = arrow_column(table.elements(ordinals), type_.element, codec)
            return pa.ListArray.from_arrays(pa.array(starts), elements).cast(wanted)
        case Kind.SYMBOL | Kind.RECORD | Kind.SET:
            used, place = np.unique(ordinals, return_inverse=True)
            values = map(codec.decoder(type_), used.tolist())
            return arrow_array(values, type_, codec.records).take(pa.array(place))


def ordinals_of(rows: CheckedTable, types: Sequence[Type], codec: Codec) -> NDArray[np.int64]:
    """Return the rows as columns of ordinals. New symbols get new numbers."""
    out = np.empty((len(types), len(rows)), np.int64)
    for i, (column, type_) in enumerate(zip(rows.table.columns, types, strict=True)):
        at = 0
        for chunk in column.chunks:
            out[i, at : at + len(chunk)] = _ordinals(chunk, type_, codec)
            at += len(chunk)
    return out


def _ordinals(column: pa.Array, type_: Type, codec: Codec) -> NDArray[np.int64]:
    """Return the ordinals of a column of scalars, which has the type's Arrow type."""
    import pyarrow as pa

    match type_.kind:
        case Kind.NUMBER:
            return np.asarray(column)
        case Kind.UNSIGNED:
            return (np.asarray(column) ^ _SIGN).view(np.int64)
        case Kind.FLOAT:
            return float_ordinals(np.asarray(column))
        case Kind.BOOL:
            return np.asarray(column.cast(pa.uint8()))
        case Kind.DATE:
            return np.asarray(column.view(pa.int32()))
        case Kind.TIMESTAMP:
            return np.asarray(column.view(pa.int64()))
        case Kind.DECIMAL:
            # The low words: decimals have 18 digits at most, so the high ones are only signs.
            words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
            low: NDArray[np.int64] = words[column.offset : column.offset + len(column), 0]
            return low
        case Kind.SYMBOL:
            encoded = column.dictionary_encode()
            numbers = map(codec.symbols.number, encoded.dictionary.to_pylist())
            known = np.fromiter(numbers, np.int64, len(encoded.dictionary))
            return np.take(known, np.asarray(encoded.indices))
    raise AssertionError(f"a column of {type_} has no ordinals without its values")
