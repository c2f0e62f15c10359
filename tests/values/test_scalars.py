"""Text and scalar values, one case a line."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.typed_values import SCALARS, values
from tidelog.values.text import NAN, canonical_float, format_value, parse_value
from tidelog.values.types import (
    BOOL,
    DATE,
    FLOAT,
    NUMBER,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    Type,
    decimal_type,
)

DEC = decimal_type(5, 2)


def time(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("0", NUMBER, 0),
        ("-9223372036854775808", NUMBER, -(2**63)),
        ("+7", NUMBER, 7),
        ("007", NUMBER, 7),
        ("  7", NUMBER, 7),
        ("0x1F", NUMBER, 31),
        ("-0x10", NUMBER, -16),
        ("0b101", NUMBER, 5),
        ("0" * 5000 + "1", NUMBER, 1),
        ("18446744073709551615", UNSIGNED, 2**64 - 1),
        ("0xFFFFFFFFFFFFFFFF", UNSIGNED, 2**64 - 1),
        ("0b11", UNSIGNED, 3),
        ("1", FLOAT, 1.0),
        (" .5", FLOAT, 0.5),
        ("2.", FLOAT, 2.0),
        ("-1e-3", FLOAT, -0.001),
        ("inf", FLOAT, math.inf),
        ("-Infinity", FLOAT, -math.inf),
        ("", SYMBOL, ""),
        (" a b ", SYMBOL, " a b "),
        ("true", BOOL, True),
        ("0", BOOL, False),
        ("2024-02-29", DATE, datetime.date(2024, 2, 29)),
        ("0001-01-01", DATE, datetime.date.min),
        ("2024-02-29 01:02:03", TIMESTAMP, time(2024, 2, 29, 1, 2, 3)),
        ("2024-02-29T01:02:03.5", TIMESTAMP, time(2024, 2, 29, 1, 2, 3, 500000)),
        ("2024-02-29T01:02:03Z", TIMESTAMP, time(2024, 2, 29, 1, 2, 3)),
        ("2024-02-29T01:02:03+02:00", TIMESTAMP, time(2024, 2, 28, 23, 2, 3)),
        ("2024-02-29T01:02:03-0130", TIMESTAMP, time(2024, 2, 29, 2, 32, 3)),
        ("1", DEC, Decimal("1.00")),
        ("-1.5", DEC, Decimal("-1.50")),
        ("1.500", DEC, Decimal("1.50")),
        ("15e-1", DEC, Decimal("1.50")),
        ("1E2", DEC, Decimal("100.00")),
        ("999.99", DEC, Decimal("999.99")),
        ("-0.00", DEC, Decimal("0.00")),
    ],
)
def test_text_is_read_as(text: str, type: Type, value: Any) -> None:
    assert repr(parse_value(text, type, {})) == repr(value)


@pytest.mark.parametrize(
    ("text", "type", "reason"),
    [
        ("abc", NUMBER, "`abc` is not a number"),
        ("", NUMBER, "`` is not a number"),
        ("7 ", NUMBER, "`7 ` is not a number"),
        ("1_000", NUMBER, "`1_000` is not a number"),
        ("٣", NUMBER, "`٣` is not a number"),
        ("²", NUMBER, "`²` is not a number"),
        ("1.0", NUMBER, "`1.0` is not a number"),
        ("0x", NUMBER, "`0x` is not a number"),
        ("9223372036854775808", NUMBER, "9223372036854775808 is outside the range of number"),
        ("-9223372036854775809", NUMBER, "-9223372036854775809 is outside the range of number"),
        ("0xFFFFFFFFFFFFFFFF", NUMBER, "0xFFFFFFFFFFFFFFFF is outside the range of number"),
        ("9" * 5000, NUMBER, "9" * 57 + "... is outside the range of number"),
        ("-1", UNSIGNED, "`-1` is not unsigned"),
        ("+1", UNSIGNED, "`+1` is not unsigned"),
        ("18446744073709551616", UNSIGNED, "18446744073709551616 is outside the range of unsigned"),
        ("x", FLOAT, "`x` is not a float"),
        ("1_0.5", FLOAT, "`1_0.5` is not a float"),
        ("1.5 ", FLOAT, "`1.5 ` is not a float"),
        ("1e999", FLOAT, "1e999 is outside the range of float"),
        ("True", BOOL, "`True` is not a bool: write true or false"),
        ("20240229", DATE, "`20240229` is not a date: write YYYY-MM-DD"),
        ("2023-02-29", DATE, "`2023-02-29` is not a date: day is out of range for month"),
        ("2024-01-01 25:00:00", TIMESTAMP, "`2024-01-01 25:00:00` is not a timestamp: hour must"),
        ("2024-01-01", TIMESTAMP, "`2024-01-01` is not a timestamp: write YYYY-MM-DD HH:MM:SS"),
        ("2024-01-01 00:00:00.1234567", TIMESTAMP, "`2024-01-01 00:00:00.1234567` is not a time"),
        ("0001-01-01T00:00:00+01:00", TIMESTAMP, "0001-01-01T00:00:00+01:00 is outside the range"),
        ("2024-01-01T00:00:00+25:00", TIMESTAMP, "`2024-01-01T00:00:00+25:00` is not a timestamp"),
        ("1.234", DEC, "`1.234` has more than 2 digits after the point of decimal(5,2)"),
        ("1e-3", DEC, "`1e-3` has more than 2 digits after the point"),
        ("1000", DEC, "`1000` has too many digits for decimal(5,2)"),
        ("1e999999", DEC, "`1e999999` has too many digits for decimal(5,2)"),
        ("1e" + "9" * 25, DEC, "1e9999999999999999999999999 is outside the range of decimal(5,2)"),
        ("nan", DEC, "`nan` is not a decimal(5,2)"),
        ("inf", DEC, "`inf` is not a decimal(5,2)"),
    ],
)
def test_text_is_refused_with_the_reason(text: str, type: Type, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_value(text, type, {})
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (-5, NUMBER, "-5"),
        (1.0, FLOAT, "1"),
        (0.1, FLOAT, "0.1"),
        (1e20, FLOAT, "1e+20"),
        (123456789.0, FLOAT, "123456789"),
        (-0.0, FLOAT, "0"),
        (math.inf, FLOAT, "inf"),
        (-math.inf, FLOAT, "-inf"),
        (NAN, FLOAT, "nan"),
        (True, BOOL, "true"),
        (False, BOOL, "false"),
        (datetime.date(33, 1, 2), DATE, "0033-01-02"),
        (time(2024, 1, 2, 3, 4, 5), TIMESTAMP, "2024-01-02 03:04:05"),
        (time(2024, 1, 2, 3, 4, 5, 60), TIMESTAMP, "2024-01-02 03:04:05.000060"),
        (Decimal("1.50"), DEC, "1.50"),
        (Decimal("-0.01"), DEC, "-0.01"),
        (Decimal("0.0000001"), decimal_type(9, 7), "0.0000001"),
    ],
)
def test_a_value_is_written_as(value: Any, type: Type, text: str) -> None:
    assert format_value(value, type, {}) == text


@given(st.data())
def test_a_written_scalar_reads_back_as_the_same(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(SCALARS))
    value = data.draw(values(type))
    assert repr(parse_value(format_value(value, type, {}), type, {})) == repr(value)


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "+NAN"])
def test_every_nan_is_the_same_object(text: str) -> None:
    assert parse_value(text, FLOAT, {}) is NAN


def test_a_negative_zero_is_read_as_zero() -> None:
    assert math.copysign(1, parse_value("-0.0", FLOAT, {})) == 1


def test_canonical_float_makes_one_nan_and_one_zero() -> None:
    assert canonical_float(float("nan")) is NAN
    assert math.copysign(1, canonical_float(-0.0)) == 1
    assert canonical_float(2.5) == 2.5
