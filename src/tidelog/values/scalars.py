"""Scalar values, from text and to text.

Every kind has one parser and one formatter, both exact: what is written reads back as the same
value, and text that is not exactly a value of the type is refused with a reason. Nothing is
rounded, trimmed or guessed. Python's own constructors take more than a facts file may hold
(`1_000`, Arabic digits, spaces at the end, `20240131` as a date), so a pattern is checked before
each of them.

Records and sets are in `nested`.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, TypeAlias

from tidelog.values.types import NUMBER_MAX, NUMBER_MIN, UNSIGNED_MAX, Kind, Type

Parser: TypeAlias = Callable[[str], Any]
Formatter: TypeAlias = Callable[[Any], str]

NAN = math.nan
"""The only NaN of Tidelog. As one object, it is found in tuples, sets and dictionaries."""

# Leading spaces are accepted, as by the C library and Soufflé; trailing spaces are not.
_WHOLE = re.compile(r"[ \t]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|([0-9]+))")
_REAL = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[ \t]*[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,6}))?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_LONGEST_SHOWN = 60
_MOST_DIGITS = 20  # of a 64-bit integer in decimal notation


def shown(text: str) -> str:
    """Return `text` in backquotes for a message, shortened if it is very long."""
    return f"`{_short(text)}`"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def canonical_float(value: float) -> float:
    """Return the canonical form of a float: 0.0 for -0.0, and `NAN` for every NaN."""
    return NAN if math.isnan(value) else value + 0.0


def symbol_ordinal(text: str) -> int:
    """Return the number that `ord` gives a symbol: a hash, the same on all machines.

    Among a million symbols, two share a number with a probability of one in ten million.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def scalar_parser(type: Type) -> Parser:
    """Return a function that parses a value of `type`, or raises ValueError with the reason."""
    if type.kind is Kind.DECIMAL:
        return partial(_parse_decimal, precision=type.precision, scale=type.scale)
    return _PARSERS[type.kind]


def scalar_formatter(type: Type) -> Formatter:
    """Return a function that formats a value of `type`."""
    return _FORMATTERS[type.kind]


# --- parsing ----------------------------------------------------------------------------------


def _whole(text: str, type: str, signs: tuple[str, ...], low: int, high: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None or match[1] not in signs:
        raise ValueError(f"{shown(text)} is not {type}")
    sign, hexadecimal, binary, digits = match.groups()
    if digits is not None:
        digits = digits.lstrip("0") or "0"
        # Python does not parse thousands of digits; they would not fit anyway.
        value = int(digits) if len(digits) <= _MOST_DIGITS else high + 2
    else:
        value = int(hexadecimal, 16) if hexadecimal is not None else int(binary, 2)
    if sign == "-":
        value = -value
    if not low <= value <= high:
        raise ValueError(f"{_short(text)} is outside the range of {type.removeprefix('a ')}")
    return value


def _parse_number(text: str) -> int:
    if len(text) < _MOST_DIGITS - 1 and text.isascii() and text.isdigit():
        return int(text)  # the common case, in a third of the time
    return _whole(text, "a number", ("", "+", "-"), NUMBER_MIN, NUMBER_MAX)


def _parse_unsigned(text: str) -> int:
    return _whole(text, "unsigned", ("",), 0, UNSIGNED_MAX)


def _parse_float(text: str) -> float:
    if _REAL.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{_short(text)} is outside the range of float")
        return value + 0.0
    if _NOT_FINITE.fullmatch(text):
        return canonical_float(float(text))
    raise ValueError(f"{shown(text)} is not a float")


def _parse_symbol(text: str) -> str:
    return text


def _parse_bool(text: str) -> bool:
    try:
        return _BOOLS[text]
    except KeyError:
        raise ValueError(f"{shown(text)} is not a bool: write true or false") from None


def _parse_date(text: str) -> datetime.date:
    if not _DATE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a date: write YYYY-MM-DD")
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a date: {error}") from None


def _parse_timestamp(text: str) -> datetime.datetime:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{shown(text)} is not a timestamp: write YYYY-MM-DD HH:MM:SS, "
            "with a fraction of up to 6 digits and a zone if you need them"
        )
    day, time, fraction, zone = match.groups()
    try:
        value = datetime.datetime.fromisoformat(f"{day}T{time}.{(fraction or '').ljust(6, '0')}")
        if zone is not None and zone != "Z":
            offset = datetime.datetime.strptime(zone, "%z").utcoffset()
            assert offset is not None
            value -= offset
    except OverflowError:
        raise ValueError(f"{_short(text)} is outside the range of timestamp") from None
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a timestamp: {error}") from None
    return value


def _parse_decimal(text: str, precision: int, scale: int) -> Decimal:
    if not _REAL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a decimal({precision},{scale})")
    try:
        sign, digits, exponent = Decimal(text.lstrip(" \t")).as_tuple()
    except InvalidOperation:
        exponent = "n"
    if not isinstance(exponent, int):  # an exponent of twenty digits
        raise ValueError(f"{_short(text)} is outside the range of decimal({precision},{scale})")
    whole = "".join(map(str, digits))
    kept = whole.rstrip("0")
    if not kept:
        return Decimal((0, (0,), -scale))
    exponent += len(whole) - len(kept)
    if exponent < -scale:
        raise ValueError(
            f"{shown(text)} has more than {scale} digits after the point of "
            f"decimal({precision},{scale})"
        )
    if len(kept) + exponent + scale > precision:
        raise ValueError(f"{shown(text)} has too many digits for decimal({precision},{scale})")
    scaled = kept + "0" * (exponent + scale)
    return Decimal((sign, tuple(map(int, scaled)), -scale))


# --- formatting -------------------------------------------------------------------------------


def _format_float(value: float) -> str:
    # `repr` is the shortest text that reads back the same; adding 0.0 turns -0.0 into 0.0.
    return repr(value + 0.0).removesuffix(".0")


def _format_bool(value: bool) -> str:
    return "true" if value else "false"


def _format_timestamp(value: datetime.datetime) -> str:
    return value.isoformat(sep=" ")


def _format_decimal(value: Decimal) -> str:
    return format(value, "f")


_PARSERS: dict[Kind, Parser] = {
    Kind.NUMBER: _parse_number,
    Kind.UNSIGNED: _parse_unsigned,
    Kind.FLOAT: _parse_float,
    Kind.SYMBOL: _parse_symbol,
    Kind.BOOL: _parse_bool,
    Kind.DATE: _parse_date,
    Kind.TIMESTAMP: _parse_timestamp,
}

_FORMATTERS: dict[Kind, Formatter] = {
    Kind.NUMBER: str,
    Kind.UNSIGNED: str,
    Kind.FLOAT: _format_float,
    Kind.SYMBOL: str,
    Kind.BOOL: _format_bool,
    Kind.DATE: datetime.date.isoformat,
    Kind.TIMESTAMP: _format_timestamp,
    Kind.DECIMAL: _format_decimal,
}
