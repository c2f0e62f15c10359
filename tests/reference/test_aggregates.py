"""What aggregates give for a list of values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from tidelog.reference.aggregates import NOTHING, exact_ratio, reduce, reduce_registered
from tidelog.reference.functors import FunctorFailure
from tidelog.values.algebra import Group, Semigroup, SetFunction, UserAggregate
from tidelog.values.types import (
    FLOAT,
    NUMBER,
    NUMBER_MAX,
    NUMBER_MIN,
    SYMBOL,
    UNSIGNED,
    Type,
    decimal_type,
    set_type,
)

MONEY = decimal_type(5, 2)
INFINITY = math.inf


def of(op: str, values: list[Any], type_: Type | None, result: Type | None = None) -> Any:
    return reduce(op, values, type_, result or type_ or NUMBER, {})


@pytest.mark.parametrize(
    ("op", "values", "type_", "expected"),
    [
        ("count", [None, None, None], None, 3),
        ("count", [1, 1, 2], NUMBER, 2),
        ("sum", [1, 1, 2], NUMBER, 4),
        ("sum", [NUMBER_MAX, 1, -1], NUMBER, NUMBER_MAX),
        ("sum", [Decimal("1.10"), Decimal("2.20")], MONEY, Decimal("3.30")),
        ("sum", [0.1] * 10, FLOAT, 1.0),
        ("sum", [1e308, 1e308, -1e308], FLOAT, 1e308),
        ("min", [3, 1, 2], NUMBER, 1),
        ("max", ["b", "a"], SYMBOL, "b"),
        ("max", [frozenset({1}), frozenset({1, 2})], set_type(NUMBER), frozenset({1, 2})),
        ("concat", ["b", "", "a"], SYMBOL, "ba"),
    ],
)
def test_values(op: str, values: list[Any], type_: Type | None, expected: Any) -> None:
    assert of(op, values, type_) == expected


def test_results_of_other_types() -> None:
    assert of("mean", [1, 2], NUMBER, FLOAT) == 1.5
    assert of("total", [1, 2], NUMBER, FLOAT) == 3.0
    assert of("setof", [2, 1, 2], NUMBER, set_type(NUMBER)) == frozenset({1, 2})


@pytest.mark.parametrize(
    ("op", "type_", "neutral"),
    [
        ("count", None, 0), ("sum", NUMBER, 0), ("sum", FLOAT, 0.0), ("sum", MONEY, Decimal(0)),
        ("total", NUMBER, 0.0), ("setof", NUMBER, frozenset()), ("concat", SYMBOL, ""),
    ],
)  # fmt: skip
def test_of_nothing_it_is_the_neutral_element(op: str, type_: Type | None, neutral: Any) -> None:
    assert of(op, [], type_) == neutral


@pytest.mark.parametrize("op", ["min", "max", "mean"])
def test_of_nothing_it_does_not_hold(op: str) -> None:
    assert of(op, [], NUMBER) is NOTHING


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([NUMBER_MAX, 1], NUMBER),
        ([NUMBER_MIN, -1], NUMBER),
        ([2**63, 2**63], UNSIGNED),
        ([Decimal("999.99"), Decimal("0.01")], MONEY),
    ],
)
def test_a_sum_may_overflow(values: list[Any], type_: Type) -> None:
    with pytest.raises(FunctorFailure, match="the sum of 2 values overflows"):
        of("sum", values, type_)


@pytest.mark.parametrize(
    ("values", "divisor", "expected"),
    [
        ([0.1, 0.2, -0.3], 1, 2.7755575615628914e-17),
        ([1e16, 1.0, -1e16], 1, 1.0),
        ([INFINITY, 1.0], 1, INFINITY),
        ([1e308, 1e308], 1, INFINITY),
        ([-1e308, -1e308], 1, -INFINITY),
        ([1e308, 1e308], 2, 1e308),
        ([-0.0], 1, 0.0),
    ],
)
def test_sums_of_floats_are_exact_and_rounded_once(
    values: list[float], divisor: int, expected: float
) -> None:
    assert exact_ratio(values, divisor) == expected
    assert exact_ratio(values[::-1], divisor) == expected


def test_opposite_infinities_have_no_sum() -> None:
    assert math.isnan(exact_ratio([INFINITY, -INFINITY], 1))
    assert math.isnan(exact_ratio([math.nan, 1.0], 1))


# --- registered from Python ---------------------------------------------------------------------


def registered(algebra: Any, gives: Type = NUMBER) -> UserAggregate:
    return UserAggregate("mine", algebra, takes=NUMBER, gives=gives)


def test_functions_of_sets_and_of_pairs() -> None:
    median = registered(SetFunction(lambda found: sorted(found)[len(found) // 2]))
    assert reduce_registered(median, [5, 1, 3, 1], {}) == 3
    product = registered(Semigroup(lambda a, b: a * b))
    assert reduce_registered(product, [2, 3, 7], {}) == 42
    squares = registered(Group(lambda a, b: a + b, lambda a: -a, 0, lift=lambda a: a * a))
    assert reduce_registered(squares, [1, 2, 3], {}) == 14


def test_of_nothing_a_registered_one_does_not_hold() -> None:
    assert reduce_registered(registered(SetFunction(len)), [], {}) is NOTHING


def test_what_goes_wrong_in_python_is_a_failure() -> None:
    with pytest.raises(FunctorFailure, match="`mine` failed: ZeroDivisionError"):
        reduce_registered(registered(SetFunction(lambda found: 1 // 0)), [1], {})
    with pytest.raises(FunctorFailure, match="`mine` gave a wrong result"):
        reduce_registered(registered(SetFunction(lambda found: "text")), [1], {})
