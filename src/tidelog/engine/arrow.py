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
from tidelog.logic.program import Relation
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec, float_ordinals, float_values
from tidelog.store.dictionary import distinct_ids
from tidelog.store.symbols import Symbols
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
            return integers(ordinals)
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
        case Kind.SYMBOL:
            return _symbol_array(ordinals, codec.symbols)
        case Kind.RECORD | Kind.SET:
            used, place = distinct_ids(ordinals)
            values = map(codec.decoder(type_), used.tolist())
            return arrow_array(values, type_, codec.records).take(pa.array(place))


def arrow_batch(ordinals: NDArray[np.int64], relation: Relation, codec: Codec) -> pa.RecordBatch:
    """Return rows of a relation, as columns of ordinals, as a batch."""
    import pyarrow as pa

    columns = [
        arrow_column(own, column.type, codec)
        for own, column in zip(ordinals, relation.columns, strict=True)
    ]
    return pa.record_batch(columns, names=[column.name for column in relation.columns])


def integers(numbers: NDArray[np.int64]) -> pa.Array:
    """Return an Arrow array of 64-bit integers, without a copy.

    `pa.array` would import pandas first, to see whether it got one of its objects. That takes as
    long as a small run.
    """
    import pyarrow as pa

    content = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, content])


def words_of(column: pa.Array) -> NDArray[np.int64]:
    """Return a column of 64-bit integers without a copy, and without pandas."""
    content = column.buffers()[1]
    if not len(column) or content is None:
        return np.empty(0, np.int64)
    return np.frombuffer(content, np.int64)[column.offset : column.offset + len(column)]


def ordinals_of(rows: CheckedTable, types: Sequence[Type], codec: Codec) -> NDArray[np.int64]:
    """Return the rows as columns of ordinals. New symbols get new numbers."""
    out = np.empty((len(types), len(rows)), np.int64)
    for i, (column, type_) in enumerate(zip(rows.table.columns, types, strict=True)):
        at = 0
        for chunk in column.chunks:
            out[i, at : at + len(chunk)] = _ordinals(chunk, type_, codec)
            at += len(chunk)
    return out


def symbol_ids(column: pa.Array, symbols: Symbols) -> NDArray[np.int64]:
    """Return the ids of a column of symbols. New symbols get new ids."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return np.take(symbol_ids(column.dictionary, symbols), np.asarray(column.indices))
    texts, bounds = _texts(column)
    found = symbols.numbers(texts, bounds[:-1], bounds[1:])
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        new = column.take(pa.array(unknown)).dictionary_encode()
        numbers = map(symbols.number, new.dictionary.to_pylist())
        known = np.fromiter(numbers, np.int64, len(new.dictionary))
        found[unknown] = np.take(known, np.asarray(new.indices))
    return found


def _texts(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of a column of texts, and where each text starts."""
    import pyarrow as pa

    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, starts, content = column.buffers()
    empty = content is None or not content.size
    texts = np.empty(0, np.uint8) if empty else np.frombuffer(content, np.uint8)
    texts.setflags(write=False)  # as those of other columns: it is part of a kernel's signature
    if starts is None or not len(column):
        return texts, np.zeros(len(column) + 1, np.int64)
    bounds = np.frombuffer(starts, width)[column.offset : column.offset + len(column) + 1]
    return texts, bounds.astype(np.int64)


def _symbol_array(ids: NDArray[np.int64], symbols: Symbols) -> pa.Array:
    """Return the symbols with these ids; those that are in columns, without Python objects."""
    import pyarrow as pa

    table = symbols.table
    size = 0 if table is None else table.size
    parts: list[pa.Array] = []
    if table is not None and size:
        buffers = [None, pa.py_buffer(table.starts), pa.py_buffer(table.content)]
        every = pa.LargeStringArray.from_buffers(size, buffers[1], buffers[2])
        if not len(ids) or ids.max() < size:
            return every.take(integers(ids)).cast(pa.string())
        parts.append(every)
    used, place = distinct_ids(ids)
    split = int(np.searchsorted(used, size))
    new = pa.array(map(symbols.items.__getitem__, used[split:].tolist()), pa.large_string())
    known = [part.take(pa.array(used[:split])) for part in parts]
    return pa.concat_arrays([*known, new]).take(pa.array(place)).cast(pa.string())


def _ordinals(column: pa.Array, type_: Type, codec: Codec) -> NDArray[np.int64]:
    """Return the ordinals of a column of scalars, which has the type's Arrow type."""
    import pyarrow as pa

    match type_.kind:
        case Kind.NUMBER:
            return words_of(column)
        case Kind.UNSIGNED:
            return (words_of(column).view(np.uint64) ^ _SIGN).view(np.int64)
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
            return symbol_ids(column, codec.symbols)
    raise AssertionError(f"a column of {type_} has no ordinals without its values")
