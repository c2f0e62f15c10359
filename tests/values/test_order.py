"""The order of values and rows."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.typed_values import LIST, PAIR, RECORDS, TYPES, relation, rows, values
from tidelog.values.order import sort_columns, sort_columns_by_arrow, sort_rows
from tidelog.values.text import NAN, sort_key
from tidelog.values.types import BOOL, FLOAT, NUMBER, SYMBOL, UNSIGNED, Kind, Type, set_type

SIMPLE = [NUMBER, UNSIGNED, FLOAT, SYMBOL, BOOL]


def is_less(left: Any, right: Any, type: Type) -> bool:
    """Say the order again, recursively and straight from its definition."""
    if type.kind is Kind.FLOAT and (math.isnan(left) or math.isnan(right)):
        return not math.isnan(left)  # NaN is the largest
    if type.kind is Kind.RECORD:
        if left is None or right is None:
            return left is None
        fields = RECORDS[type.record]
        return first_difference_is_less(left, right, [f.type for f in fields])
    if type.kind is Kind.SET:
        element = type.element
        assert element is not None

        def compare(a: Any, b: Any) -> int:
            return 0 if a == b else -1 if is_less(a, b, element) else 1

        a, b = (sorted(s, key=functools.cmp_to_key(compare)) for s in (left, right))
        shorter = min(len(a), len(b))
        if a[:shorter] == b[:shorter]:
            return len(a) < len(b)
        return first_difference_is_less(a, b, [element] * shorter)
    return bool(left < right)


def first_difference_is_less(left: Any, right: Any, types: list[Type]) -> bool:
    for a, b, type in zip(left, right, types, strict=False):
        if not (a is b or a == b):
            return is_less(a, b, type)
    return False


@given(st.data())
def test_keys_order_values_as_defined(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(TYPES))
    left, right = data.draw(values(type)), data.draw(values(type))
    key = sort_key(type, RECORDS)
    if left is right or left == right:
        assert key(left) == key(right)
    else:
        assert (key(left) < key(right)) == is_less(left, right, type)
        assert (key(left) > key(right)) != is_less(left, right, type)


@pytest.mark.parametrize(
    ("type", "ordered"),
    [
        (NUMBER, [-2, -1, 0, 10]),
        (FLOAT, [-math.inf, -1.0, 0.0, 2.5, math.inf, NAN]),
        (SYMBOL, ["", "A", "Z", "a", "ab", "é", "\uffff", "\U00010000"]),
        (BOOL, [False, True]),
        (LIST, [None, (1, None), (1, (0, None)), (2, None)]),
        (PAIR, [None, ("a", 2.0), ("a", NAN), ("b", 1.0)]),
        (set_type(NUMBER), [frozenset(), frozenset({1}), frozenset({1, 2}), frozenset({2})]),
        (set_type(FLOAT), [frozenset({1.0}), frozenset({1.0, NAN}), frozenset({NAN})]),
    ],
)
def test_values_sort_as(type: Type, ordered: list[Any]) -> None:
    assert sorted(reversed(ordered), key=sort_key(type, RECORDS)) == ordered


def test_rows_sort_by_the_first_column_then_by_the_second() -> None:
    columns = relation(SYMBOL, FLOAT).columns
    ordered = [("a", 1.0), ("a", NAN), ("b", 0.0), ("b", 2.0)]
    assert sort_rows(reversed(ordered), columns, {}) == ordered


@given(st.data())
def test_rows_sort_as_their_keys_do(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    of = relation(*types)
    drawn = data.draw(rows(of))
    keys = [sort_key(t, RECORDS) for t in types]
    expected = sorted(drawn, key=lambda row: [k(v) for k, v in zip(keys, row, strict=True)])
    assert sort_rows(drawn, of.columns, RECORDS) == expected


@given(st.data())
def test_the_fast_sort_equals_the_plain_one(data: st.DataObject) -> None:
    of = relation(*data.draw(st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=3)))
    drawn = data.draw(rows(of))
    ordered = sort_rows(drawn, of.columns, {})
    fast = sort_columns_by_arrow(drawn, of.columns)
    assert repr(fast) == repr([[row[i] for row in ordered] for i in range(of.arity)])


def test_the_fast_sort_declines_what_arrow_cannot_hold() -> None:
    assert sort_columns_by_arrow([("\ud800",)], relation(SYMBOL).columns) is None
    assert sort_columns_by_arrow([(None,)], relation(LIST).columns) is None


def test_many_rows_sort_as_few_do() -> None:
    columns = relation(NUMBER, SYMBOL).columns
    many = [(i * 7919 % 30_011, f"s{i % 13}") for i in range(30_011)]
    assert list(zip(*sort_columns(many, columns, {}), strict=True)) == sorted(many)
