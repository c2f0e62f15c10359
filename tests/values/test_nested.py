"""Records and sets as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.typed_values import LIST, NESTED, PAIR, RECORDS, TREE, UNIT, deep_list, values
from tidelog.values.text import format_value, parse_value, sort_key
from tidelog.values.types import NUMBER, SYMBOL, Type, set_type

DEPTH = 10_000
NUMBERS = set_type(NUMBER)
WORDS = set_type(SYMBOL)


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("nil", LIST, None),
        ("[1, nil]", LIST, (1, None)),
        ("[1,[2,nil]]", LIST, (1, (2, None))),
        (" [ 1 , [ 2 , nil ] ] ", LIST, (1, (2, None))),
        ("[a b, 1.5]", PAIR, ("a b", 1.5)),
        ("[nil, 1]", PAIR, ("nil", 1.0)),
        ("[, 1]", PAIR, ("", 1.0)),
        ('["a, b", 1]', PAIR, ("a, b", 1.0)),
        (r'["say \"hi\\", 1]', PAIR, ('say "hi\\', 1.0)),
        ("[a}, 1]", PAIR, ("a}", 1.0)),
        ("[]", UNIT, ()),
        ("{}", NUMBERS, frozenset()),
        ("{2, 1,1}", NUMBERS, frozenset({1, 2})),
        ('{""}', WORDS, frozenset({""})),
        ("{a], b}", WORDS, frozenset({"a]", "b"})),
        ("[x, {[y, {}], nil}]", TREE, ("x", frozenset({("y", frozenset()), None}))),
    ],
)
def test_text_is_read_as(text: str, type: Type, value: Any) -> None:
    assert parse_value(text, type, RECORDS) == value


@pytest.mark.parametrize(
    ("text", "type", "reason"),
    [
        ("", LIST, "`` is not a List: expected `[` or `nil` at character 1, found the end"),
        ("1", LIST, "`1` is not a List: expected `[` or `nil` at character 1, found `1`"),
        ("[1, nil", LIST, "`[1, nil` is not a List: expected `]` at character 8, found the end"),
        ("[1]", LIST, "`[1]` is not a List: expected `,` at character 3, found `]`"),
        ("[1, nil, 2]", LIST, "`[1, nil, 2]` is not a List: expected `]` at character 8"),
        ("[1, nil] x", LIST, "`[1, nil] x` is not a List: expected the end at character 10"),
        ("nilly", LIST, "`nilly` is not a List: expected the end at character 4, found `l`"),
        ("[x, nil]", LIST, "`x` is not a number"),
        ('["a, 1]', PAIR, '`["a, 1]`: no closing `"` for the one at character 2'),
        ("[1]", UNIT, "`[1]` is not a Unit: expected `]` at character 2, found `1`"),
        ("1", NUMBERS, "`1` is not a set(number): expected `{` at character 1, found `1`"),
        ("{1", NUMBERS, "`{1` is not a set(number): expected `,` at character 3, found the end"),
        ("{1,}", NUMBERS, "`` is not a number"),
    ],
)
def test_text_is_refused_with_the_reason(text: str, type: Type, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_value(text, type, RECORDS)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (None, LIST, "nil"),
        ((1, (2, None)), LIST, "[1, [2, nil]]"),
        (("a b", 1.0), PAIR, "[a b, 1]"),
        (("a, b", 1.0), PAIR, '["a, b", 1]'),
        (('"', 1.0), PAIR, r'["\"", 1]'),
        ((" a", 1.0), PAIR, '[" a", 1]'),
        ((), UNIT, "[]"),
        (frozenset({10, 9}), NUMBERS, "{9, 10}"),
        (frozenset(), NUMBERS, "{}"),
        (frozenset({""}), WORDS, '{""}'),
        (("x", frozenset({("y", frozenset()), None})), TREE, "[x, {nil, [y, {}]}]"),
    ],
)
def test_a_value_is_written_as(value: Any, type: Type, text: str) -> None:
    assert format_value(value, type, RECORDS) == text


@given(st.data())
def test_what_is_written_reads_back_as_the_same(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(NESTED))
    value = data.draw(values(type))
    assert parse_value(format_value(value, type, RECORDS), type, RECORDS) == value


def test_a_deep_list_is_written() -> None:
    text = format_value(deep_list(DEPTH), LIST, RECORDS)
    assert text.startswith("[0, [1, ") and text.endswith("nil" + "]" * DEPTH)


def test_a_deep_list_is_read() -> None:
    text = format_value(deep_list(DEPTH), LIST, RECORDS)
    cell, heads = parse_value(text, LIST, RECORDS), []
    while cell is not None:  # comparing deep tuples would exceed the recursion limit
        head, cell = cell
        heads.append(head)
    assert heads == list(range(DEPTH))


def test_deep_lists_are_compared() -> None:
    key = sort_key(LIST, RECORDS)
    assert key(deep_list(DEPTH - 1)) < key(deep_list(DEPTH))


def test_deep_sets_are_written_and_read() -> None:
    tree: Any = None
    for _ in range(500):
        tree = ("x", frozenset({tree}))
    text = format_value(tree, TREE, RECORDS)
    assert format_value(parse_value(text, TREE, RECORDS), TREE, RECORDS) == text
