"""Functors on batches of rows, computed by Python.

The join machine (kernel/machine.py) does the arithmetic that stays inside 64 bits. What needs text,
a table that grows or wider numbers is *external*: the join hands over columns of ordinals, and this
module gives a column back. plan/externals.py draws the line.

`apply` takes the machine's functors, too. The machine only says that something failed; computing
the row again here tells why. Do not use it for more: it takes a call of Python for each row.

A functor is written once, on single ordinals (`scalar_functor`), and called once for each distinct
combination of arguments. Values in order are the exception: they are ranked, each distinct value
once, and then compared by rank as whole columns.

Results of earlier batches are not remembered: 100,000 different rows of `cat` take 0.09 s with all
around it, which leaves little to save. Regular expressions are kept compiled.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.plan.externals import UNORDERED, is_external
from tidelog.store.codec import Codec, float_ordinal, float_ordinals, float_value
from tidelog.values.order import sort_key
from tidelog.values.patterns import python_pattern
from tidelog.values.scalars import symbol_ordinal
from tidelog.values.text import value_formatter, value_parser
from tidelog.values.types import NUMBER_MAX, NUMBER_MIN, Kind, Type

__all__ = [
    "Failure",
    "apply",
    "expand_range",
    "float_range",
    "is_external",
    "scalar_functor",
    "scalar_test",
    "test",
]

Ordinals: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Reason: TypeAlias = Callable[[int], str]
"""Why a row failed, by its index."""
Scalar: TypeAlias = Callable[..., int]
"""A functor on single ordinals; it raises `Failure`."""

_TEMPORAL = frozenset({Kind.DATE, Kind.TIMESTAMP})
_WORD = 1 << 64
_SIGN = 1 << 63
_DAY = 86_400_000_000  # microseconds
_FEW = 64  # rows up to which looking for duplicates costs more than it saves
_MANY = 20_000  # rows from which Arrow's hash table is worth loading Arrow (0.5 s)


class Failure(Exception):
    """A functor cannot compute with its arguments."""


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
    if op in ("min", "max"):
        return _extreme(op, args, result, codec), np.zeros(len(args[0]), np.bool_), _no_reason
    return _each(scalar_functor(op, types, result, codec), args, rows)


def test(
    op: str, args: Sequence[Ordinals], types: Sequence[Type], codec: Codec
) -> tuple[Flags, Flags, Reason]:
    """Return for which rows the test holds, which failed, and the reason for a failed row.

    The tests are `match`, `contains`, and the comparisons `<`, `<=`, `>`, `>=` of any type.
    """
    if op in _COMPARISONS:
        left, right = _ranked(args, types[0], codec)[0]
        return _COMPARISONS[op](left, right), np.zeros(len(left), np.bool_), _no_reason
    holds, failed, reason = _each(scalar_test(op, codec), args, rows=1)
    return holds.astype(np.bool_), failed, reason


def _no_reason(row: int) -> str:
    raise AssertionError(f"row {row} did not fail")


# --- one call for each distinct combination ---------------------------------------------------


def _each(compute: Scalar, args: Sequence[Ordinals], rows: int) -> tuple[Ordinals, Flags, Reason]:
    """Call `compute` for the rows; in large batches, once for rows that are alike."""
    inverse: NDArray[np.intp] | None = None
    combinations: Any = [()]
    if not args:
        inverse = np.zeros(rows, np.intp)
    elif len(args[0]) < _FEW:
        combinations = zip(*(arg.tolist() for arg in args), strict=True)
    else:
        distinct, inverse = _distinct(args)
        combinations = zip(*(column.tolist() for column in distinct), strict=True)
    values: list[int] = []
    failures: dict[int, str] = {}
    for combination in combinations:
        try:
            values.append(compute(*combination))
        except Failure as failure:
            failures[len(values)] = str(failure)
            values.append(0)
    ordinals = np.array(values, np.int64)
    failed = np.zeros(len(values), np.bool_)
    failed[list(failures)] = True
    if inverse is None:
        return ordinals, failed, failures.__getitem__
    places = inverse
    return ordinals[places], failed[places], lambda row: failures[int(places[row])]


def _distinct(args: Sequence[Ordinals]) -> tuple[list[Ordinals], NDArray[np.intp]]:
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

_COMPARISONS: dict[str, Callable[[Ordinals, Ordinals], Flags]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _ranked(args: Sequence[Ordinals], type_: Type, codec: Codec) -> tuple[Ordinals, Ordinals]:
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


def _extreme(op: str, args: Sequence[Ordinals], type_: Type, codec: Codec) -> Ordinals:
    ranks, ordinals = _ranked(args, type_, codec)
    best: Ordinals = ranks.min(axis=0) if op == "min" else ranks.max(axis=0)
    return ordinals[best] if type_.kind in UNORDERED else best


# --- functors on single ordinals --------------------------------------------------------------


def scalar_functor(op: str, types: Sequence[Type], result: Type, codec: Codec) -> Scalar:
    """Return the functor `op` for single ordinals; all but `min` and `max`."""
    if op in _TEXT:
        return _TEXT[op](codec)
    if op == "record":
        number = codec.table(result).number
        return lambda *fields: number(fields)
    if op in _CONVERSIONS:
        return _CONVERSIONS[op](types[0], result, codec)
    if op in _BITS:
        return _bit_functor(op, result)
    if result.kind is Kind.FLOAT:
        compute = _FLOAT[op]
        return lambda *args: float_ordinal(compute(*map(float_value, args)))
    return _checked(op, types, result, codec)


def scalar_test(op: str, codec: Codec) -> Scalar:
    """Return the test `match` or `contains` for single ordinals."""
    items = codec.symbols.items
    if op == "match":
        return lambda pattern, text: _matches(items[pattern], items[text])
    assert op == "contains", f"there is no test `{op}`"
    return lambda part, text: items[part] in items[text]


# --- integers, decimals, dates: exact, then checked -------------------------------------------


def _truncated(a: int, b: int) -> int:
    """Return a / b rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _half_even(a: int, b: int) -> int:
    """Return a / b rounded to the nearest integer, half to even."""
    if b < 0:
        a, b = -a, -b
    quotient, rest = divmod(a, b)
    return quotient + (2 * rest > b or (2 * rest == b and quotient % 2 == 1))


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        if base == 0:
            raise ZeroDivisionError
        return base ** (exponent % 2) if abs(base) == 1 else 0
    if abs(base) > 1 and exponent > 64:
        raise OverflowError  # without computing a number of millions of digits
    power: int = base**exponent
    return power


_EXACT: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _truncated,
    "mod": lambda a, b: a - b * _truncated(a, b),
    "pow": _power,
}

_SHOWN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "pow": "^", "neg": "-"}


def _checked(op: str, types: Sequence[Type], result: Type, codec: Codec) -> Scalar:
    """Return an operation on whole numbers, which decimals and dates are, too."""
    compute = _EXACT[op]
    if result.kind is Kind.DECIMAL and op in ("mul", "div"):
        one = 10**result.scale
        compute = (
            (lambda a, b: _half_even(a * b, one))
            if op == "mul"
            else (lambda a, b: _half_even(a * one, b))
        )
    low, high = _bounds(result)
    bias = _bias(result)  # only unsigned numbers have one, and they do not mix with other types
    limits = (
        "is outside the years 1 to 9999" if result.kind in _TEMPORAL else f"overflows `{result}`"
    )

    def shown(args: tuple[int, ...]) -> str:
        values = [str(codec.decoder(t)(arg)) for t, arg in zip(types, args, strict=True)]
        sign = _SHOWN[op]
        return f"{sign}{values[0]}" if len(values) == 1 else f" {sign} ".join(values)

    def scalar(*args: int) -> int:
        try:
            value = compute(*(arg + bias for arg in args))
        except ZeroDivisionError:
            raise Failure(f"division by zero: {shown(args)}") from None
        except OverflowError:
            raise Failure(f"{shown(args)} overflows") from None
        if not low <= value - bias <= high:
            raise Failure(f"{shown(args)} {limits}")
        return value - bias

    return scalar


def _bounds(type_: Type) -> tuple[int, int]:
    """Return the smallest and the largest ordinal of a type."""
    match type_.kind:
        case Kind.DECIMAL:
            return 1 - 10**type_.precision, 10**type_.precision - 1
        case Kind.DATE:
            return -719_162, 2_932_896
        case Kind.TIMESTAMP:
            return -719_162 * _DAY, 2_932_897 * _DAY - 1
        case _:
            return NUMBER_MIN, NUMBER_MAX


def _bias(type_: Type) -> int:
    """Return what is added to the ordinal of a whole number to get the number."""
    return _SIGN if type_.kind is Kind.UNSIGNED else 0


# Of 64 bits; shifts look at the low six bits of the distance only, as the machine does.
_BITS: dict[str, Callable[..., int]] = {
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
    "bnot": lambda a: ~a,
    "bshl": lambda a, b: a << (b & 63),
    "bshr": lambda a, b: a >> (b & 63),
    "bshru": lambda a, b: (a % _WORD) >> (b & 63),
    "land": lambda a, b: a != 0 and b != 0,
    "lor": lambda a, b: a != 0 or b != 0,
    "lxor": lambda a, b: (a != 0) != (b != 0),
    "lnot": lambda a: a == 0,
}


def _bit_functor(op: str, result: Type) -> Scalar:
    compute, bias = _BITS[op], _bias(result)
    # Reduced to [-2**63, 2**63) the pattern of a number is its ordinal, and so is that of an
    # unsigned number less its bias.
    return lambda *args: (compute(*(a + bias for a in args)) - bias + _SIGN) % _WORD - _SIGN


# --- floats: as IEEE 754 says, where Python raises --------------------------------------------


def _divide_float(a: float, b: float) -> float:
    if b == 0.0:  # there is no -0.0
        return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a)
    return a / b


def _power_float(a: float, b: float) -> float:
    # Not np.power, whose vector instructions round the last bit differently.
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0.0 and b % 2.0 == 1.0 else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        return math.inf if a == 0.0 else math.nan


_FLOAT: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _divide_float,
    "pow": _power_float,
}


# --- text -------------------------------------------------------------------------------------


def _cat(codec: Codec) -> Scalar:
    items, number = codec.symbols.items, codec.symbols.number
    return lambda *parts: number("".join([items[part] for part in parts]))


def _strlen(codec: Codec) -> Scalar:
    items = codec.symbols.items
    return lambda text: len(items[text])


def _ord(codec: Codec) -> Scalar:
    items = codec.symbols.items
    return lambda text: symbol_ordinal(items[text])


def _substr(codec: Codec) -> Scalar:
    items, number = codec.symbols.items, codec.symbols.number

    def scalar(symbol: int, start: int, length: int) -> int:
        # As C++ has it: a negative length is a very large one.
        text: str = items[symbol]
        if not 0 <= start <= len(text):
            return number("")
        return number(text[start:] if length < 0 else text[start : start + length])

    return scalar


_TEXT: dict[str, Callable[[Codec], Scalar]] = {
    "cat": _cat,
    "strlen": _strlen,
    "ord": _ord,
    "substr": _substr,
}


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str] | str:
    """Return the compiled pattern, or what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd but legal patterns are the user's business
            return re.compile(python_pattern(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        return f"`{pattern}` is not a regular expression: {error}"


def _matches(pattern: str, text: str) -> bool:
    compiled = _pattern(pattern)
    if isinstance(compiled, str):
        raise Failure(compiled)
    return compiled.fullmatch(text) is not None


# --- conversions ------------------------------------------------------------------------------


def _parsed(result: Type, codec: Codec) -> Scalar:
    """Return the conversion of a symbol."""
    items, encode = codec.symbols.items, codec.encoder(result)
    parse = value_parser(result, codec.records)

    def scalar(text: int) -> int:
        try:
            return encode(parse(items[text]))
        except ValueError as error:
            raise Failure(str(error)) from None

    return scalar


def _fitted(
    exact: Callable[[int], int], type_: Type, result: Type, codec: Codec, infinite: str
) -> Scalar:
    """Return `exact`, which gives the whole number for an ordinal, with a check of its range.

    `infinite` is what to say of a NaN or an infinity.
    """
    low, high = _bounds(result)
    bias = _bias(result)

    def shown(ordinal: int) -> str:
        return value_formatter(type_, codec.records)(codec.decoder(type_)(ordinal))

    def scalar(ordinal: int) -> int:
        try:
            value = exact(ordinal) - bias
        except (ValueError, OverflowError):
            raise Failure(f"{shown(ordinal)} {infinite}") from None
        if not low <= value <= high:
            raise Failure(f"{shown(ordinal)} overflows `{result}`")
        return value

    return scalar


def _to_integer(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    exact: Callable[[int], int]
    if type_.kind is Kind.FLOAT:
        exact = lambda ordinal: math.trunc(float_value(ordinal))  # noqa: E731
    else:
        one, bias = 10**type_.scale, _bias(type_)
        exact = lambda ordinal: _truncated(ordinal + bias, one)  # noqa: E731
    return _fitted(exact, type_, result, codec, "is not a whole number")


def _to_float(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    if type_.kind is Kind.FLOAT:
        return _same
    one, bias = 10**type_.scale, _bias(type_)
    return lambda ordinal: float_ordinal((ordinal + bias) / one)  # Python rounds it correctly


def _to_decimal(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    wanted = 10**result.scale
    exact: Callable[[int], int]
    if type_.kind is Kind.FLOAT:

        def exact(ordinal: int) -> int:
            numerator, denominator = float_value(ordinal).as_integer_ratio()
            return _half_even(numerator * wanted, denominator)

    else:
        one, bias = 10**type_.scale, _bias(type_)
        exact = lambda ordinal: _half_even((ordinal + bias) * wanted, one)  # noqa: E731
    return _fitted(exact, type_, result, codec, "is not a decimal")


def _to_date(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    return lambda ordinal: ordinal // _DAY


def _to_timestamp(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    return lambda ordinal: ordinal * _DAY


def _to_string(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _same
    number, decode = codec.symbols.number, codec.decoder(type_)
    format_ = value_formatter(type_, codec.records)
    return lambda ordinal: number(format_(decode(ordinal)))


def _same(ordinal: int) -> int:
    return ordinal


_CONVERSIONS: Mapping[str, Callable[[Type, Type, Codec], Scalar]] = {
    "to_string": _to_string,
    "to_number": _to_integer,
    "to_unsigned": _to_integer,
    "to_float": _to_float,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "to_decimal": _to_decimal,
}


# --- ranges -----------------------------------------------------------------------------------

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
        stride = (step ^ np.int64(-_SIGN)).view(np.uint64)
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
    """Return (row, place in the row) for rows with so many places."""
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
    distinct, inverse = _distinct(args)
    pieces: list[Ordinals] = []
    failures: dict[int, str] = {}
    for combination in zip(*(column.tolist() for column in distinct), strict=True):
        try:
            pieces.append(float_ordinals(float_range(*map(float_value, combination))))
        except Failure as failure:
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
    """Return start, start + step, (start + step) + step, .. before stop; raise `Failure`."""
    if step is None:
        step = 1.0 if start <= stop else -1.0
    if step == 0.0:
        raise Failure(_ENDLESS)
    if not all(map(math.isfinite, (start, stop, step))):
        raise Failure(_INFINITE)
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
            raise Failure(_STUCK)
        blocks.append(block[:kept])
        if kept < size:
            return np.concatenate(blocks)
        start = float(following[-1])
        size = min(4 * size, 1 << 16)
