"""Trees become text in one style, and that text becomes the same tree."""

from __future__ import annotations

import pytest

from tests.lang.reading import parsed
from tidelog.lang.printer import format_module


def printed(text: str) -> str:
    module = parsed(text)
    result = format_module(module)
    again = parsed(result)
    assert again.statements == module.statements
    assert format_module(again) == result, "it is not stable"
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p( x,y ):-q(x , y).", "p(x, y) :- q(x, y)."),
        ("p(x):-(q(x)),((r(x))).", "p(x) :- q(x), r(x)."),
        ("p(x) :- (q(x) ; r(x)), s(x).", "p(x) :- (q(x); r(x)), s(x)."),
        ("p(x) :- q(x) ; (r(x), s(x)).", "p(x) :- q(x); r(x), s(x)."),
        ("p(x) :- !(q(x), r(x)).", "p(x) :- !(q(x), r(x))."),
        ("p((x+y)*z) :- q(x,y,z).", "p((x + y) * z) :- q(x, y, z)."),
        ("p((x*y)+z) :- q(x,y,z).", "p(x * y + z) :- q(x, y, z)."),
        ("p(x-(y-z)) :- q(x,y,z).", "p(x - (y - z)) :- q(x, y, z)."),
        ("p((x^y)^z) :- q(x,y,z).", "p((x ^ y) ^ z) :- q(x, y, z)."),
        ("p((-x)^y) :- q(x,y).", "p((-x) ^ y) :- q(x, y)."),
        ("p(0x1F, 2u, 1.50).", "p(0x1F, 2u, 1.50)."),
        (r'p("a\tb\\").', r'p("a\tb\\").'),
        ("p(n) :- n=count:{q(_)}.", "p(n) :- n = count : { q(_) }."),
        ("p(n) :- n=sum x*2:{q(x)}.", "p(n) :- n = sum x * 2 : { q(x) }."),
        (".decl a,b(x:number)  inline", ".decl a, b(x: number) inline"),
        (".decl price[i:symbol]:float", ".decl price[i: symbol]: float"),
        (".type A=B|C", ".type A = B | C"),
        (".type P=[x:number]", ".type P = [x: number]"),
        ('.output p(IO="file")', '.output p(IO="file")'),
    ],
)
def test_one_style(text: str, expected: str) -> None:
    assert printed(text) == expected + "\n"


def test_long_rules_are_broken_at_their_conditions() -> None:
    conditions = [f"condition_number_{i}(x, y)" for i in range(6)]
    lines = printed(f"p(x) :- {', '.join(conditions)}.").splitlines()
    assert lines[0] == "p(x) :-"
    assert lines[1:] == [f"    {c}," for c in conditions[:-1]] + [f"    {conditions[-1]}."]
    lines = printed(f"p(x) :- {' ; '.join(conditions)}.").splitlines()
    assert lines[1] == f"    {conditions[0]};"


def test_comments_stay_with_their_statements() -> None:
    first = "// about p\np(1).   // one\n\n\n\n"
    text = first + "/* about\n   q */\nq(x) :- // inside\n  p(x).\n// the end"
    assert printed(text) == (
        "// about p\np(1).  // one\n\n/* about\n   q */\n// inside\nq(x) :- p(x).\n// the end\n"
    )


def test_blank_lines_are_kept_once() -> None:
    assert printed("p(1).\n\n\n\nq(2).\nr(3).") == "p(1).\n\nq(2).\nr(3).\n"


def test_nothing_is_printed_as_nothing() -> None:
    assert printed("") == ""
    assert printed("\n // only\n") == "// only\n"
