"""Preprocessor lines are carried out, and positions stay those of the source."""

from __future__ import annotations

import pytest

from tests.lang.reading import parsed, preprocessed, read, tokens


def done(text: str) -> str:
    found, mistakes = preprocessed(text)
    assert mistakes == []
    assert found.count("\n") == text.count("\n")
    return found


def test_what_has_no_such_line_stays_as_it_is() -> None:
    text = 'p("#x"). // #define\n/* \n#ifdef A\n*/\n'
    assert done(text) == text


def test_a_macro_is_replaced_in_words_only() -> None:
    assert done('#define N 10\np(N, NN, "N", N). // N') == '\np(10, NN, "N", 10). // N'


def test_macros_in_macros() -> None:
    assert done("#define A B + 1\n#define B 2\np(A).") == "\n\np(2 + 1)."


def test_a_macro_that_names_itself_comes_to_an_end() -> None:
    found, mistakes = preprocessed("#define A (A)\np(A).")
    assert mistakes == []
    assert found.startswith("\np(((")


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("p(ADD(1, 2)).", "p((1 + 2))."),
        ("p(ADD (f(1, 2), [3, 4])).", "p((f(1, 2) + [3, 4]))."),
        ('p(ADD("a, b)", ADD(1, 2))).', 'p(("a, b)" + (1 + 2))).'),
        ("p(ADD(1), ADD).", "p(ADD(1), ADD)."),
        ("p(NONE(), NONE).", "p(0, NONE)."),
        ("p(TWICE(3)).", "p(((3) + (3)))."),
    ],
)
def test_macros_with_arguments(use: str, expected: str) -> None:
    macros = "#define ADD(x, y) (x + y)\n#define NONE() 0\n#define TWICE(z) ADD((z), (z))\n"
    assert done(macros + use) == f"\n\n\n{expected}"


def test_a_backslash_continues_a_definition() -> None:
    assert done("#define BOTH(x) \\\n  a(x), \\\n  b(x)\np(x) :- BOTH(x).") == (
        "\n\n\np(x) :- a(x),    b(x)."
    )


def test_undefined_again() -> None:
    assert done("#define A 1\np(A).\n#undef A\nq(A).") == "\np(1).\n\nq(A)."


@pytest.mark.parametrize(
    ("first", "kept"), [("#define X", "p(1)."), ("", "p(2)."), ("#define Y", "p(2).")]
)
def test_conditions(first: str, kept: str) -> None:
    text = f"{first}\n#ifdef X\np(1).\n#else\np(2).\n#endif\n#ifndef X\nq().\n#endif"
    lines = [line for line in done(text).split("\n") if line]
    assert lines == [kept, *([] if kept == "p(1)." else ["q()."])]


def test_conditions_within_conditions() -> None:
    text = "#define A\n#ifdef A\n#ifdef B\np(1).\n#else\np(2).\n#endif\n#else\np(3).\n#endif"
    assert done(text).split() == ["p(2)."]


def test_definitions_in_a_branch_that_is_not_taken_do_not_count() -> None:
    assert done("#ifdef A\n#define N 1\n#endif\np(N).").split() == ["p(N)."]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("#endif", ("preprocessor", 1, 1)),
        ("p(1).\n  #else", ("preprocessor", 2, 3)),
        ("#ifdef A\np(1).", ("preprocessor", 1, 1)),
        ("#define", ("preprocessor", 1, 1)),
        ("#define F(x + 1) x", ("preprocessor", 1, 1)),
        ("#define F(x x", ("preprocessor", 1, 1)),
        ('#include "a.dl"', ("not-supported", 1, 1)),
        ("#if 1", ("not-supported", 1, 1)),
        ("# a comment", ("stray-character", 1, 1)),
    ],
)
def test_what_is_refused(text: str, mistake: tuple[str, int, int]) -> None:
    assert preprocessed(text)[1] == [mistake]


def test_columns_behind_a_macro_are_those_of_the_source() -> None:
    text = "#define LONG 1000000\np(LONG, x) :- q(x, LONG), r(x)."
    rule = parsed(text).statements[0]
    names = [(node.relation, node.span.line, node.span.column) for node in rule.body.parts]
    assert names == [("q", 2, 15), ("r", 2, 27)]
    value = rule.heads[0].args[0]
    assert (value.value, value.span.column, value.span.end_column) == (1000000, 3, 7)


def test_a_mistake_behind_a_macro_is_reported_in_its_place() -> None:
    _, found = read("#define N 123456\np(N, x y).")
    assert [(line, column) for _, line, column in found] == [(2, 8)]


def test_a_macro_may_be_several_tokens() -> None:
    found = tokens("#define BOTH a(x), b(x)\np(x) :- BOTH.")
    assert [text for type_, text in found if type_ == "IDENT"] == ["p", "x", "a", "x", "b", "x"]
