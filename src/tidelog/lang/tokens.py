"""Kinds of tokens, and what the neighbours of a token tell about it.

Statements are parsed one by one (lang/parser.py), and directives have no end marker. So the passes
over the tokens before parsing look at neighbours to find out roughly where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.source import SourceText, Span

if TYPE_CHECKING:
    from lark import Token

DIRECTIVE_TOKENS = frozenset(
    {
        "DECL",
        "TYPE",
        "NUMBER_TYPE",
        "SYMBOL_TYPE",
        "DIRECTIVE",
        "RETAIN",
        "PRAGMA",
        "PLAN",
        "COMP",
        "INIT",
        "OVERRIDE",
        "END",
        "REFUSED",
    }
)
OPENING = frozenset({"LPAR", "LSQB", "LBRACE"})
CLOSING = frozenset({"RPAR", "RSQB", "RBRACE"})
OPERANDS = frozenset({"IDENT", "INT", "FLOAT", "STRING", "NIL", "TRUE", "FALSE", "UNDERSCORE"})
# What the parser reports instead of feeding it to the grammar.
UNREADABLE = frozenset(
    {"STRAY", "BAD_NUMBER", "BAD_FRACTION", "UNTERMINATED_STRING", "UNTERMINATED_COMMENT"}
)


def span_of(source: SourceText, token: Token) -> Span:
    """Return the position of `token`."""
    line, column = token.line or 1, token.column or 1
    return Span(source, line, column, token.end_line or line, token.end_column or column + 1)


def ends_value(token: Token | None) -> bool:
    """Return whether a value or an atom may end with `token`."""
    return token is not None and token.type in OPERANDS | CLOSING


def starts_rule(tokens: list[Token], i: int) -> bool:
    """Return whether the name at `i` starts the rule after a directive, which has no end marker."""
    follower = tokens[i + 1].type if i + 1 < len(tokens) else ""
    return follower in ("LPAR", "LSQB") and tokens[i - 1].type not in (
        *DIRECTIVE_TOKENS,
        "COMMA",
        "COLON",
        "EQUAL",
        "SUBTYPE",
        "PIPE",
    )


def next_line(tokens: list[Token], i: int) -> int:
    """Return the position of the first token on a later line than the one at `i`."""
    line = tokens[i].line
    while i < len(tokens) and tokens[i].line == line:
        i += 1
    return i
