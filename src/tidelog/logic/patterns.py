"""Regular expressions that the program writes out are checked when it is loaded.

`match("a(b", x)` would otherwise stop the first transaction that reaches it.
"""

from __future__ import annotations

import re
import warnings

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import Span
from tidelog.values.patterns import python_pattern


def check_pattern(pattern: s.Term, diagnostics: Diagnostics) -> None:
    """Report the first argument of `match` if it is a constant and no regular expression."""
    if not isinstance(pattern, s.StringLiteral):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd but legal patterns are the user's business
            re.compile(python_pattern(pattern.value))
    except re.error as error:
        hint = r"a sign such as `(` or `*` itself is written with two backslashes: `\\(`"
        if error.msg == "nothing to repeat":
            hint = "it repeats what stands before it: any text is `.*`"
        diagnostics.error(
            "bad-pattern",
            f"this regular expression cannot be read: {error.msg}",
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
