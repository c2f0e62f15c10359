"""What each functor computes, on Python values.

A functor that cannot compute raises `FunctorFailure` with the reason. The caller decides whether
that is an error (reference/solve.py).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import Any

from tidelog.io.tabular import checker
from tidelog.logic.patterns import python_pattern
from tidelog.values.functions import UserFunction
from tidelog.values.order import sort_key
from tidelog.values.scalars import canonical_float, symbol_ordinal
from tidelog.values.text import format_value, parse_value
from tidelog.values.types import (
    DATE,
    FLOAT,
    NUMBER,
    NUMBER_MAX,
    NUMBER_MIN,
    TIMESTAMP,
    UNSIGNED,
    UNSIGNED_MAX,
    Field,
    Kind,
    Type,
)

Records = Mapping[str, tuple[Field, ...]]

_EPOCH_DATE = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_WORD = 2**64
_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)


class FunctorFailure(Exception):
    """A functor cannot compute with its arguments."""

    group: Mapping[str, Any] | None = None
    """The variables of the group, if it is an aggregate that cannot be computed."""


def apply(op: str, args: list[Any], types: list[Type], result: Type, records: Records) -> Any:
    """Return the value of functor `op`; `types` are those of `args`."""
    kind = result.kind
    if isinstance(op, UserFunction):
        return _call(op, args, records)
    if op in _CONVERSIONS:
        return _CONVERSIONS[op](args[0], types[0], result, records)
    if op in _TEXT:
        return _TEXT[op](*args)
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(args, key=sort_key(result, records))
    if op in ("add", "sub") and any(t.kind in (Kind.DATE, Kind.TIMESTAMP) for t in types):
        return _move(op, args, types)
    if kind is Kind.FLOAT:
        return canonical_float(_FLOAT[op](*args))
    if kind is Kind.DECIMAL:
        return fit_decimal(_DECIMAL[op](*args), result, _show(op, args))
    if op in _BITS:
        return _as_integer(_BITS[op](*args), result)
    return fit_integer(_INTEGER[op](*args), result, _show(op, args))


def _call(function: UserFunction, args: list[Any], records: Records) -> Any:
    try:
        result = function.one(*args)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FunctorFailure(f"function `{function}` failed: {reason}") from error
    try:
        return checker(function.gives, records)(result)
    except ValueError as error:
        raise FunctorFailure(f"function `{function}` gave a wrong result: {error}") from None


def _show(op: str, args: list[Any]) -> str:
    symbol = {
        "add": "+",
        "sub": "-",
        "mul": "*",
        "div": "/",
        "mod": "%",
        "pow": "^",
        "neg": "-",
    }.get(op, op)
    return f"{symbol}{args[0]}" if len(args) == 1 else f" {symbol} ".join(map(str, args))


# --- integers ---------------------------------------------------------------------------------


def fit_integer(value: int, type_: Type, shown: str) -> int:
    """Return `value` if it fits `type_`."""
    low, high = (0, UNSIGNED_MAX) if type_.kind is Kind.UNSIGNED else (NUMBER_MIN, NUMBER_MAX)
    if not low <= value <= high:
        raise FunctorFailure(f"{shown} overflows `{type_}`")
    return value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise FunctorFailure(f"division by zero: {a} / {b}")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise FunctorFailure(f"division by zero: {a} % {b}")
    return a - b * _divide(a, b)


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        if base == 0:
            raise FunctorFailure(f"division by zero: {base} ^ {exponent}")
        return base ** (exponent % 2) if abs(base) == 1 else 0
    if abs(base) > 1 and exponent > 64:
        raise FunctorFailure(f"{base} ^ {exponent} overflows")
    power: int = base**exponent
    return power


_INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _divide,
    "mod": _remainder,
    "pow": _power,
}


def _as_integer(pattern: int, type_: Type) -> int:
    """Return the integer with these 64 bits."""
    pattern %= _WORD
    return pattern - _WORD if type_.kind is Kind.NUMBER and pattern > NUMBER_MAX else pattern


# Shifts look at the low six bits of the distance only, as the machine does.
_BITS: dict[str, Callable[..., int]] = {
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
    "bnot": lambda a: ~a,
    "bshl": lambda a, b: a << (b & 63),
    "bshr": lambda a, b: a >> (b & 63),
    "bshru": lambda a, b: (a % _WORD) >> (b & 63),
    "land": lambda a, b: int(a != 0 and b != 0),
    "lor": lambda a, b: int(a != 0 or b != 0),
    "lxor": lambda a, b: int((a != 0) != (b != 0)),
    "lnot": lambda a: int(a == 0),
}


# --- floats: as IEEE 754 says -----------------------------------------------------------------


def _divide_float(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a)


def _power_float(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.inf if a == 0.0 else math.nan


_FLOAT: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _divide_float,
    "pow": _power_float,
}


# --- decimals: exact, then rounded half to even to the scale ----------------------------------


def fit_decimal(value: Decimal, type_: Type, shown: str) -> Decimal:
    """Return `value` rounded to the scale of `type_`, if its digits fit."""
    rounded = value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
    if abs(rounded.scaleb(type_.scale, context=_EXACT)) >= 10**type_.precision:
        raise FunctorFailure(f"{shown} overflows `{type_}`")
    return rounded if rounded else abs(rounded)  # there is no negative zero


def _divide_decimal(a: Decimal, b: Decimal) -> Decimal:
    if b == 0:
        raise FunctorFailure(f"division by zero: {a} / {b}")
    return _EXACT.divide(a, b)


_DECIMAL: dict[str, Callable[..., Decimal]] = {
    "add": _EXACT.add,
    "sub": _EXACT.subtract,
    "mul": _EXACT.multiply,
    "neg": _EXACT.minus,
    "div": _divide_decimal,
}


# --- dates move by days, timestamps by microseconds -------------------------------------------


def _move(op: str, args: list[Any], types: list[Type]) -> Any:
    sign = 1 if op == "add" else -1
    if types[0] == types[1]:
        unit = dt.timedelta(days=1) if types[0] == DATE else _MICROSECOND
        return (args[0] - args[1]) // unit
    (moved, by), type_ = (args, types[0]) if types[1] == NUMBER else (args[::-1], types[1])
    try:
        if type_ == DATE:
            return moved + sign * dt.timedelta(days=by)
        return moved + sign * dt.timedelta(microseconds=by)
    except OverflowError:
        raise FunctorFailure(f"{_show(op, args)} is outside the years 1 to 9999") from None


# --- text -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(python_pattern(pattern))
    except re.error as error:
        raise FunctorFailure(f"`{pattern}` is not a regular expression: {error}") from None


def test(name: str, args: list[Any]) -> bool:
    """Return whether `match(pattern, text)` or `contains(part, text)` holds."""
    if name == "match":
        return _pattern(args[0]).fullmatch(args[1]) is not None
    return args[0] in args[1]


def _substr(text: str, start: int, length: int) -> str:
    """Return what C++'s `substr` would; a start outside the text gives the empty text."""
    if not 0 <= start <= len(text):
        return ""
    return text[start:] if length < 0 else text[start : start + length]


_TEXT: dict[str, Callable[..., Any]] = {
    "cat": lambda *parts: "".join(parts),
    "strlen": len,
    "substr": _substr,
    "ord": symbol_ordinal,
}


# --- conversions ------------------------------------------------------------------------------


def _parsed(text: str, type_: Type, records: Records) -> Any:
    try:
        return parse_value(text, type_, records)
    except ValueError as error:
        raise FunctorFailure(str(error)) from None


def _to_integer(value: Any, type_: Type, result: Type, records: Records) -> int:
    match type_.kind:
        case Kind.SYMBOL:
            parsed: int = _parsed(value, result, records)
            return parsed
        case Kind.DATE:
            return (value - _EPOCH_DATE).days  # type: ignore[no-any-return]
        case Kind.TIMESTAMP:
            return (value - _EPOCH) // _MICROSECOND  # type: ignore[no-any-return]
        case Kind.FLOAT if not math.isfinite(value):
            raise FunctorFailure(f"{format_value(value, FLOAT, records)} is not a whole number")
        case _:
            return fit_integer(math.trunc(value), result, format_value(value, type_, records))


def _to_float(value: Any, type_: Type, result: Type, records: Records) -> float:
    if type_.kind is Kind.SYMBOL:
        parsed: float = _parsed(value, FLOAT, records)
        return parsed
    return canonical_float(float(value))


def _to_date(value: Any, type_: Type, result: Type, records: Records) -> dt.date:
    parsed: dt.date = _parsed(value, DATE, records) if type_.kind is Kind.SYMBOL else value.date()
    return parsed


def _to_timestamp(value: Any, type_: Type, result: Type, records: Records) -> dt.datetime:
    if type_.kind is Kind.SYMBOL:
        parsed: dt.datetime = _parsed(value, TIMESTAMP, records)
        return parsed
    return dt.datetime(value.year, value.month, value.day)


def _to_decimal(value: Any, type_: Type, result: Type, records: Records) -> Decimal:
    if type_.kind is Kind.SYMBOL:
        parsed: Decimal = _parsed(value, result, records)
        return parsed
    if type_.kind is Kind.FLOAT and not math.isfinite(value):
        raise FunctorFailure(f"{format_value(value, FLOAT, records)} is not a decimal")
    return fit_decimal(Decimal(value), result, format_value(value, type_, records))


_CONVERSIONS: dict[str, Callable[[Any, Type, Type, Records], Any]] = {
    "to_string": lambda value, type_, result, records: format_value(value, type_, records),
    "to_number": _to_integer,
    "to_unsigned": _to_integer,
    "to_float": _to_float,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "to_decimal": _to_decimal,
}


def number_range(start: Any, stop: Any, step: Any | None, type_: Type) -> list[Any]:
    """Return start, start + step, .. before stop; without a step, towards stop by one."""
    if step is None:
        step = 1 if start <= stop else -1
    if step == 0:
        raise FunctorFailure("`range` with step 0 has no end")
    if type_.kind is not Kind.FLOAT:
        return list(range(start, stop, step))
    if not all(map(math.isfinite, (start, stop, step))):
        raise FunctorFailure("`range` needs finite numbers")
    out = []
    value = start
    while (value < stop) if step > 0 else (value > stop):
        out.append(canonical_float(value))
        if value + step == value:
            raise FunctorFailure("`range` makes no progress: its step is too small for its start")
        value += step
    return out


__all__ = [
    "UNSIGNED",
    "FunctorFailure",
    "apply",
    "fit_decimal",
    "fit_integer",
    "number_range",
    "test",
]
