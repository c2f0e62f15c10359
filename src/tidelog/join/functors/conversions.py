"""Conversions of values from one type to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tidelog.join.functors.common import Scalar, Uncomputable
from tidelog.join.functors.numbers import DAY, bias_of, bounds, half_even, truncated
from tidelog.store.codec import Codec, float_ordinal, float_value
from tidelog.values.text import value_formatter, value_parser
from tidelog.values.types import Kind, Type


def _parsed(result: Type, codec: Codec) -> Scalar:
    """Return the conversion of a symbol."""
    items, encode = codec.symbols.items, codec.encoder(result)
    parse = value_parser(result, codec.records)

    def scalar(text: int) -> int:
        try:
            return encode(parse(items[text]))
        except ValueError as error:
            raise Uncomputable(str(error)) from None

    return scalar


def _fitted(
    exact: Callable[[int], int], type_: Type, result: Type, codec: Codec, infinite: str
) -> Scalar:
    """Return `exact`, which gives the whole number for an ordinal, with a check of its range.

    `infinite` is what to say of a NaN or an infinity.
    """
    low, high = bounds(result)
    bias = bias_of(result)

    def shown(ordinal: int) -> str:
        return value_formatter(type_, codec.records)(codec.decoder(type_)(ordinal))

    def scalar(ordinal: int) -> int:
        try:
            value = exact(ordinal) - bias
        except (ValueError, OverflowError):
            raise Uncomputable(f"{shown(ordinal)} {infinite}") from None
        if not low <= value <= high:
            raise Uncomputable(f"{shown(ordinal)} overflows `{result}`")
        return value

    return scalar


def _to_integer(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    exact: Callable[[int], int]
    if type_.kind is Kind.FLOAT:
        exact = lambda ordinal: math.trunc(float_value(ordinal))  # noqa: E731
    else:
        one, bias = 10**type_.scale, bias_of(type_)
        exact = lambda ordinal: truncated(ordinal + bias, one)  # noqa: E731
    return _fitted(exact, type_, result, codec, "is not a whole number")


def _to_float(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    if type_.kind is Kind.FLOAT:
        return _same
    one, bias = 10**type_.scale, bias_of(type_)
    return lambda ordinal: float_ordinal((ordinal + bias) / one)  # Python rounds it correctly


def _to_decimal(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    wanted = 10**result.scale
    exact: Callable[[int], int]
    if type_.kind is Kind.FLOAT:

        def exact(ordinal: int) -> int:
            numerator, denominator = float_value(ordinal).as_integer_ratio()
            return half_even(numerator * wanted, denominator)

    else:
        one, bias = 10**type_.scale, bias_of(type_)
        exact = lambda ordinal: half_even((ordinal + bias) * wanted, one)  # noqa: E731
    return _fitted(exact, type_, result, codec, "is not a decimal")


def _to_date(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    return lambda ordinal: ordinal // DAY


def _to_timestamp(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _parsed(result, codec)
    return lambda ordinal: ordinal * DAY


def _to_string(type_: Type, result: Type, codec: Codec) -> Scalar:
    if type_.kind is Kind.SYMBOL:
        return _same
    number, decode = codec.symbols.number, codec.decoder(type_)
    format_ = value_formatter(type_, codec.records)
    return lambda ordinal: number(format_(decode(ordinal)))


def _same(ordinal: int) -> int:
    return ordinal


CONVERSIONS: Mapping[str, Callable[[Type, Type, Codec], Scalar]] = {
    "to_string": _to_string,
    "to_number": _to_integer,
    "to_unsigned": _to_integer,
    "to_float": _to_float,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "to_decimal": _to_decimal,
}
