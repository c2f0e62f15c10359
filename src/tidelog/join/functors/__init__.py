"""Functors on batches of rows, computed by Python.

The join machine (kernel/machine.py) does the arithmetic that stays inside 64 bits. What needs text,
a growing dictionary or wider numbers is *external*: the join passes columns of ordinals, and this
package returns a column. plan/externals.py draws the line.

`apply` also computes the machine's functors. The machine only reports that something failed;
computing the row again here tells why. Do not use it for more: it calls Python for each row.

A functor is written once, on single ordinals (`scalar_functor`), and called once for each distinct
combination of arguments. Values in order are the exception: they are ranked, each distinct value
once, and then compared by rank as whole columns.

Results of earlier batches are not cached: 100,000 different rows of `cat` take 0.09 s in all, which
leaves little to save. Compiled regular expressions are cached.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.join.functors.batches import COMPARISONS, each, extreme, ranked
from tidelog.join.functors.common import Flags, Ordinals, Reason, Scalar, Uncomputable
from tidelog.join.functors.conversions import CONVERSIONS
from tidelog.join.functors.functions import function_on_columns, function_on_rows
from tidelog.join.functors.numbers import BITS, FLOATS, bit_functor, checked
from tidelog.join.functors.ranges import expand_range, float_range
from tidelog.join.functors.text import TEXT, matches
from tidelog.plan.externals import needs_python
from tidelog.store.codec import Codec, float_ordinal, float_value
from tidelog.values.functions import UserFunction
from tidelog.values.types import Kind, Type

__all__ = [
    "Uncomputable",
    "apply",
    "expand_range",
    "float_range",
    "needs_python",
    "scalar_functor",
    "scalar_test",
    "test",
]


def apply(
    op: str,
    args: Sequence[Ordinals],
    types: Sequence[Type],
    result: Type,
    codec: Codec,
    rows: int = 1,
) -> tuple[Ordinals, Flags, Reason]:
    """Return the ordinals, which rows failed, and the reason for a failed row.

    The ordinal of a failed row is 0. `rows` is their number where no argument tells it, in a
    record without fields.
    """
    if isinstance(op, UserFunction):
        return function_on_columns(op, args, codec, rows)
    if op in ("min", "max"):
        return extreme(op, args, result, codec), np.zeros(len(args[0]), np.bool_), _no_reason
    return each(scalar_functor(op, types, result, codec), args, rows)


def test(
    op: str, args: Sequence[Ordinals], types: Sequence[Type], codec: Codec
) -> tuple[Flags, Flags, Reason]:
    """Return for which rows the test holds, which failed, and the reason for a failed row.

    The tests are `match`, `contains`, and the comparisons `<`, `<=`, `>`, `>=` of any type.
    """
    if op in COMPARISONS:
        left, right = ranked(args, types[0], codec)[0]
        return COMPARISONS[op](left, right), np.zeros(len(left), np.bool_), _no_reason
    holds, failed, reason = each(scalar_test(op, codec), args, rows=1)
    return holds.astype(np.bool_), failed, reason


def _no_reason(row: int) -> str:
    raise AssertionError(f"row {row} did not fail")


# --- functors on single ordinals --------------------------------------------------------------


def scalar_functor(op: str, types: Sequence[Type], result: Type, codec: Codec) -> Scalar:
    """Return the functor `op` for single ordinals; all but `min` and `max`."""
    if isinstance(op, UserFunction):
        return function_on_rows(op, codec)
    if op in TEXT:
        return TEXT[op](codec)
    if op == "record":
        number = codec.dictionary(result).number
        return lambda *fields: number(fields)
    if op in CONVERSIONS:
        return CONVERSIONS[op](types[0], result, codec)
    if op in BITS:
        return bit_functor(op, result)
    if result.kind is Kind.FLOAT:
        compute = FLOATS[op]
        return lambda *args: float_ordinal(compute(*map(float_value, args)))
    return checked(op, types, result, codec)


def scalar_test(op: str, codec: Codec) -> Scalar:
    """Return the test `match` or `contains` for single ordinals."""
    items = codec.symbols.items
    if op == "match":
        return lambda pattern, text: matches(items[pattern], items[text])
    assert op == "contains", f"there is no test `{op}`"
    return lambda part, text: items[part] in items[text]
