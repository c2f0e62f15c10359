"""What functors compute, and where they fail, value by value."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from tidelog.reference.functors import FunctorFailure, apply, number_range, test
from tidelog.values.types import (
    DATE,
    FLOAT,
    NUMBER,
    NUMBER_MAX,
    NUMBER_MIN,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    UNSIGNED_MAX,
    Type,
    decimal_type,
)

MONEY = decimal_type(5, 2)
test.__test__ = False  # type: ignore[attr-defined]  # it is no test of pytest


def of(op: str, *args: Any, type_: Type = NUMBER, result: Type | None = None) -> Any:
    """Apply a functor to values of one type."""
    return apply(op, list(args), [type_] * len(args), result or type_, {})


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("add", (2, 3), 5), ("sub", (2, 3), -1), ("mul", (-2, 3), -6), ("neg", (2,), -2),
        ("div", (7, 2), 3), ("div", (-7, 2), -3), ("div", (7, -2), -3), ("div", (-7, -2), 3),
        ("mod", (7, 3), 1), ("mod", (-7, 3), -1), ("mod", (7, -3), 1), ("mod", (-7, -3), -1),
        ("pow", (2, 10), 1024), ("pow", (2, -1), 0), ("pow", (-1, -3), -1), ("pow", (0, 0), 1),
        ("min", (3, 1, 2), 1), ("max", (3, 1, 2), 3),
        ("band", (12, 10), 8), ("bor", (12, 10), 14), ("bxor", (12, 10), 6), ("bnot", (0,), -1),
        ("bshl", (1, 63), NUMBER_MIN), ("bshl", (1, 64), 1), ("bshr", (-8, 1), -4),
        ("bshru", (-1, 63), 1), ("land", (2, 0), 0), ("lor", (2, 0), 1), ("lxor", (2, 3), 0),
        ("lnot", (0,), 1),
    ],
)  # fmt: skip
def test_numbers(op: str, args: tuple[int, ...], expected: int) -> None:
    assert of(op, *args) == expected


@pytest.mark.parametrize(
    ("op", "args", "reason"),
    [
        ("add", (NUMBER_MAX, 1), "overflows `number`"),
        ("sub", (NUMBER_MIN, 1), "overflows `number`"),
        ("mul", (2**32, 2**32), "overflows `number`"),
        ("neg", (NUMBER_MIN,), "overflows `number`"),
        ("div", (NUMBER_MIN, -1), "overflows `number`"),
        ("div", (1, 0), "division by zero: 1 / 0"),
        ("mod", (1, 0), "division by zero: 1 % 0"),
        ("pow", (2, 63), "overflows"),
        ("pow", (2, 1000), "overflows"),
        ("pow", (0, -1), "division by zero"),
    ],
)
def test_numbers_that_fail(op: str, args: tuple[int, ...], reason: str) -> None:
    with pytest.raises(FunctorFailure, match=reason):
        of(op, *args)


def test_unsigned_numbers() -> None:
    assert of("add", UNSIGNED_MAX - 1, 1, type_=UNSIGNED) == UNSIGNED_MAX
    assert of("bnot", 0, type_=UNSIGNED) == UNSIGNED_MAX
    assert of("bshl", 1, 63, type_=UNSIGNED) == 2**63
    with pytest.raises(FunctorFailure, match="overflows `unsigned`"):
        of("sub", 0, 1, type_=UNSIGNED)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("div", (1.0, 0.0), math.inf), ("div", (-1.0, 0.0), -math.inf), ("div", (1.0, 4.0), 0.25),
        ("mul", (1e308, 10.0), math.inf), ("pow", (2.0, 0.5), 2**0.5),
        ("pow", (0.0, -1.0), math.inf), ("pow", (-10.0, 309.0), -math.inf), ("neg", (0.0,), 0.0),
    ],
)  # fmt: skip
def test_floats_never_fail(op: str, args: tuple[float, ...], expected: float) -> None:
    assert of(op, *args, type_=FLOAT) == expected
    assert math.copysign(1, of(op, *args, type_=FLOAT)) == math.copysign(1, expected)


def test_floats_without_a_value_are_nan() -> None:
    for op, args in (("div", (0.0, 0.0)), ("sub", (math.inf, math.inf)), ("pow", (-1.0, 0.5))):
        assert math.isnan(of(op, *args, type_=FLOAT))


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("add", ("1.10", "2.25"), "3.35"), ("mul", ("1.15", "0.50"), "0.58"),
        ("mul", ("0.25", "0.50"), "0.12"), ("div", ("1.00", "3.00"), "0.33"),
        ("neg", ("0.00",), "0.00"),
    ],
)  # fmt: skip
def test_decimals_are_rounded_half_to_even(op: str, args: tuple[str, ...], expected: str) -> None:
    assert str(of(op, *map(Decimal, args), type_=MONEY)) == expected


def test_decimals_that_fail() -> None:
    with pytest.raises(FunctorFailure, match="overflows"):
        of("add", Decimal("999.99"), Decimal("0.01"), type_=MONEY)
    with pytest.raises(FunctorFailure, match="division by zero"):
        of("div", Decimal("1.00"), Decimal("0.00"), type_=MONEY)


def test_dates_and_timestamps_move() -> None:
    day, moment = dt.date(2024, 2, 28), dt.datetime(2024, 2, 28, 23, 59, 59, 999_999)
    assert apply("add", [day, 2], [DATE, NUMBER], DATE, {}) == dt.date(2024, 3, 1)
    assert apply("add", [2, day], [NUMBER, DATE], DATE, {}) == dt.date(2024, 3, 1)
    assert apply("sub", [day, 59], [DATE, NUMBER], DATE, {}) == dt.date(2023, 12, 31)
    assert apply("sub", [day, dt.date(2024, 1, 1)], [DATE, DATE], NUMBER, {}) == 58
    after = apply("add", [moment, 1], [TIMESTAMP, NUMBER], TIMESTAMP, {})
    assert after == dt.datetime(2024, 2, 29)
    with pytest.raises(FunctorFailure, match="outside the years 1 to 9999"):
        apply("add", [dt.date(9999, 12, 31), 1], [DATE, NUMBER], DATE, {})


def test_text() -> None:
    assert of("cat", "a", "", "b", type_=SYMBOL) == "ab"
    assert of("strlen", "äb", type_=SYMBOL, result=NUMBER) == 2

    def part(start: int, length: int) -> Any:
        return apply("substr", ["abc", start, length], [SYMBOL, NUMBER, NUMBER], SYMBOL, {})

    assert [part(0, 2), part(1, 9), part(1, -1), part(3, 1), part(4, 1), part(-1, 1)] == [
        "ab", "bc", "bc", "", "", "",
    ]  # fmt: skip


def test_tests_of_text() -> None:
    assert test("match", ["a.c", "abc"])
    assert not test("match", ["a.c", "abcd"])
    assert test("contains", ["b", "abc"])
    assert not test("contains", ["ac", "abc"])
    with pytest.raises(FunctorFailure, match="not a regular expression"):
        test("match", ["(", "a"])


@pytest.mark.parametrize(
    ("op", "value", "type_", "result", "expected"),
    [
        ("to_number", "-12", SYMBOL, NUMBER, -12), ("to_number", -2.9, FLOAT, NUMBER, -2),
        ("to_number", dt.date(1970, 1, 2), DATE, NUMBER, 1),
        ("to_unsigned", 3, NUMBER, UNSIGNED, 3), ("to_float", 3, NUMBER, FLOAT, 3.0),
        ("to_string", 1.0, FLOAT, SYMBOL, "1"), ("to_string", -3, NUMBER, SYMBOL, "-3"),
        ("to_date", "2024-02-29", SYMBOL, DATE, dt.date(2024, 2, 29)),
        ("to_timestamp", dt.date(2024, 2, 29), DATE, TIMESTAMP, dt.datetime(2024, 2, 29)),
        ("to_decimal", 1.005, FLOAT, MONEY, Decimal("1.00")),
    ],
)  # fmt: skip
def test_conversions(op: str, value: Any, type_: Type, result: Type, expected: Any) -> None:
    assert of(op, value, type_=type_, result=result) == expected


@pytest.mark.parametrize(
    ("op", "value", "type_", "result"),
    [
        ("to_number", "x", SYMBOL, NUMBER), ("to_number", math.inf, FLOAT, NUMBER),
        ("to_number", 1e300, FLOAT, NUMBER), ("to_unsigned", -1, NUMBER, UNSIGNED),
        ("to_date", "2023-02-29", SYMBOL, DATE), ("to_decimal", math.nan, FLOAT, MONEY),
        ("to_decimal", 1000, NUMBER, MONEY),
    ],
)  # fmt: skip
def test_conversions_that_fail(op: str, value: Any, type_: Type, result: Type) -> None:
    with pytest.raises(FunctorFailure):
        of(op, value, type_=type_, result=result)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 3, None), [0, 1, 2]), ((3, 0, None), [3, 2, 1]), ((0, 0, None), []),
        ((0, 5, 2), [0, 2, 4]), ((5, 0, -2), [5, 3, 1]), ((0, 5, -1), []),
    ],
)  # fmt: skip
def test_ranges(bounds: tuple[Any, ...], expected: list[int]) -> None:
    assert number_range(*bounds, NUMBER) == expected


def test_ranges_that_fail() -> None:
    with pytest.raises(FunctorFailure, match="step 0"):
        number_range(0, 1, 0, NUMBER)
    with pytest.raises(FunctorFailure, match="finite"):
        number_range(0.0, math.inf, None, FLOAT)
    with pytest.raises(FunctorFailure, match="no progress"):
        number_range(1e300, 2e300, 1.0, FLOAT)
    assert number_range(0.0, 1.0, 0.25, FLOAT) == [0.0, 0.25, 0.5, 0.75]
