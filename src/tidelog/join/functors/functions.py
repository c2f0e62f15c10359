"""Functions from Python on batches of rows: row by row, or whole columns as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.io.tabular import checker
from tidelog.join.functors.batches import distinct_rows, each
from tidelog.join.functors.common import Flags, Ordinals, Reason, Scalar, Uncomputable
from tidelog.store.codec import Codec
from tidelog.values.functions import UserFunction


def function_on_rows(function: UserFunction, codec: Codec) -> Scalar:
    """Return a function from Python for single ordinals."""
    decoders = [codec.decoder(type_) for type_ in function.takes]
    encode, checked = codec.encoder(function.gives), checker(function.gives, codec.records)

    def scalar(*ordinals: int) -> int:
        values = [decode(o) for decode, o in zip(decoders, ordinals, strict=True)]
        try:
            result = function.one(*values)
        except Exception as error:
            reason = f"function `{function}` failed: {type(error).__name__}: {error}"
            raise Uncomputable(reason) from error
        try:
            return encode(checked(result))
        except ValueError as error:
            raise Uncomputable(f"function `{function}` gave a wrong result: {error}") from None

    return scalar


def function_on_columns(
    function: UserFunction, args: Sequence[Ordinals], codec: Codec, rows: int
) -> tuple[Ordinals, Flags, Reason]:
    """Call a function for a batch of rows, once for those that are alike.

    A vectorised function is called once. If that fails, it is called for each row, to find those
    that fail.
    """
    scalar = function_on_rows(function, codec)
    if not function.vectorised or not args or not len(args[0]):
        return each(scalar, args, rows)
    distinct, places = distinct_rows(args)
    columns = [
        [decode(ordinal) for ordinal in column.tolist()]
        for decode, column in zip(map(codec.decoder, function.takes), distinct, strict=True)
    ]
    encode, checked = codec.encoder(function.gives), checker(function.gives, codec.records)
    try:
        found = function.many(columns, len(distinct[0]))
        ordinals = np.array([encode(checked(value)) for value in found], np.int64)
    except Exception:
        return each(scalar, args, rows)
    return ordinals[places], np.zeros(len(places), np.bool_), _no_reason


def _no_reason(row: int) -> str:
    raise AssertionError(f"row {row} did not fail")
