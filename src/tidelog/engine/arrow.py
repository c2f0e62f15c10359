"""Columns of ordinals as Arrow arrays, without a Python object for each value.

What has no fixed width (symbols, records, sets) is converted once for each different value; the
rows then take it by its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidelog.io.tabular import arrow_array, arrow_type
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec, float_values
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
