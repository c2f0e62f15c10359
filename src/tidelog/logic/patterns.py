"""Regular expressions: ECMAScript's, with POSIX classes.

Constant patterns are checked when the program is loaded. Otherwise `match("a(b", x)` would fail in
the first transaction that reaches it.
"""

from __future__ import annotations

import re
import warnings

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import Span

_CLASS = re.compile(r"\[:(\w+):\]")
_CLASSES = {
    "digit": r"\d", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "blank": r" \t", "xdigit": "0-9A-Fa-f", "w": r"\w", "d": r"\d", "s": r"\s",
    "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


def python_pattern(pattern: str) -> str:
    r"""Return the pattern with classes in Python's syntax.

    >>> python_pattern("[[:digit:]_]+")
    '[\\d_]+'
    """
    return _CLASS.sub(lambda m: _CLASSES.get(m[1], m[0]), pattern)


def check_pattern(pattern: s.Term, diagnostics: Diagnostics) -> None:
    """Report the first argument of `match` if it is an invalid constant pattern."""
    if not isinstance(pattern, s.StringLiteral):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd patterns are legal
            re.compile(python_pattern(pattern.value))
    except re.error as error:
        hint = r"to match a character such as `(` or `*` itself, write two backslashes: `\\(`"
        if error.msg == "nothing to repeat":
            hint = "it repeats what is before it: any text is `.*`"
        diagnostics.error(
            "bad-pattern",
            f"this regular expression is invalid: {error.msg}",
            _place(pattern.span, error.pos),
            hint,
        )


def _place(literal: Span, position: int | None) -> Span:
    """Return the place of a character of a string literal; all of it when escapes shift it."""
    text = literal.source.line(literal.line)[literal.column - 1 : literal.end_column - 1]
    if position is None or "\\" in text:
        return literal
    column = literal.column + 1 + position
    return Span(literal.source, literal.line, column, literal.line, column + 1)
