"""Tokens, and the roles that words get from their neighbours."""

from __future__ import annotations

import pytest

from tests.lang.reading import tokens
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.lexer import tokenize
from tidelog.source import SourceText


def types(text: str) -> list[str]:
    return [type_ for type_, _ in tokens(text)]


def roles(text: str, word: str, **more: frozenset[str]) -> list[str]:
    """Return the types that the occurrences of a word have."""
    return [type_ for type_, found in tokens(text, **more) if found == word]


def test_a_rule() -> None:
    assert tokens("p(x) :- q(x, _), !r(x).") == [
        ("IDENT", "p"), ("LPAR", "("), ("IDENT", "x"), ("RPAR", ")"), ("IF", ":-"),
        ("IDENT", "q"), ("LPAR", "("), ("IDENT", "x"), ("COMMA", ","), ("UNDERSCORE", "_"),
        ("RPAR", ")"), ("COMMA", ","), ("BANG", "!"), ("IDENT", "r"), ("LPAR", "("),
        ("IDENT", "x"), ("RPAR", ")"), ("DOT", "."),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("12", "INT"), ("0x1F", "INT"), ("0b101", "INT"), ("12u", "INT"), ("0xFFu", "INT"),
        ("1.5", "FLOAT"), ("1e3", "FLOAT"), ("1.5e-3", "FLOAT"), ('"a \\" b"', "STRING"),
        ("true", "TRUE"), ("nil", "NIL"), ("_", "UNDERSCORE"), ("_x", "IDENT"), ("?x", "IDENT"),
        ("truely", "IDENT"), ("nilly", "IDENT"), ("bandit", "IDENT"), ("band", "BAND"),
        ("bshru", "SHIFT"), ("bshruX", "IDENT"), ("**", "CARET"), ("^", "CARET"),
        ("<:", "SUBTYPE"), ("<=", "COMPARE"), (".decl", "DECL"), (".view", "DIRECTIVE"),
    ],
)  # fmt: skip
def test_one_token(text: str, type_: str) -> None:
    assert tokens(text) == [(type_, text)]


def test_a_full_stop_ends_a_rule_behind_a_number() -> None:
    assert types("p(x) :- x = 1.")[-2:] == ["INT", "DOT"]
    assert types("p(x) :- x = 1.5.")[-2:] == ["FLOAT", "DOT"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p(n) :- n = count : { q(_) }.", ["AGGREGATE"]),
        ("p(n) :- n = count : q(_).", ["AGGREGATE"]),
        ("p(count) :- q(count).", ["IDENT", "IDENT"]),
        (".decl count(count: number)", ["IDENT", "IDENT"]),
        ("count(x) :- q(x).", ["IDENT"]),
        ("p(x) :- x = count[1].", ["IDENT"]),
    ],
)
def test_an_aggregate_is_no_reserved_word(text: str, expected: list[str]) -> None:
    assert roles(text, "count") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p(x) :- x = min(a, b).", ["IDENT"]),
        ("p(x) :- x = min a : { q(a) }.", ["AGGREGATE"]),
        ("p(x) :- x = min (a) : { q(a) }.", ["AGGREGATE"]),
        ("p(x) :- x = min (a) * b : { q(a, b) }.", ["AGGREGATE"]),
        ("p(x) :- x = min -a : { q(a) }.", ["AGGREGATE"]),
        ("p(x) :- q(min), x = min - 1.", ["IDENT", "IDENT"]),
        ("p(x) :- x = min min(a, b) : { q(a, b) }.", ["AGGREGATE", "IDENT"]),
    ],
)
def test_functors_are_told_from_aggregates(text: str, expected: list[str]) -> None:
    assert roles(text, "min") == expected


def test_registered_names_are_aggregates_where_one_can_stand() -> None:
    text = "p(x) :- x = median a : { q(a) }, r(median)."
    assert roles(text, "median") == ["IDENT", "IDENT"]
    assert roles(text, "median", registered=frozenset({"median"})) == ["AGGREGATE", "IDENT"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".decl p(x: number) inline", ["QUALIFIER"]),
        (".decl inline(inline: number)", ["IDENT", "IDENT"]),
        (".decl p(x: number)\ninline(x) :- p(x).", ["IDENT"]),
    ],
)
def test_qualifiers_stand_behind_the_columns(text: str, expected: list[str]) -> None:
    assert roles(text, "inline") == expected


def test_comments_are_kept_beside_the_tokens() -> None:
    text = "// first\np(1). // behind\n/* two\nlines */ q(2).\n"
    found, comments = tokenize(SourceText("t.dl", text), Diagnostics())
    assert [str(token) for token in found] == ["p", "(", "1", ")", ".", "q", "(", "2", ")", "."]
    assert [(c.text, c.line, c.end_line, c.own_line) for c in comments] == [
        ("// first", 1, 1, True), ("// behind", 2, 2, False), ("/* two\nlines */", 3, 4, True),
    ]  # fmt: skip


def test_positions_count_lines_and_columns_from_one() -> None:
    found, _ = tokenize(SourceText("t.dl", 'p("ä",\n  x).'), Diagnostics())
    assert [(str(t), t.line, t.column) for t in found] == [
        ("p", 1, 1), ("(", 1, 2), ('"ä"', 1, 3), (",", 1, 6),
        ("x", 2, 3), (")", 2, 4), (".", 2, 5),
    ]  # fmt: skip
