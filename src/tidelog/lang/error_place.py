"""Where a statement could not be read further: the token that did not fit, and what is around it.

lang/mistakes.py looks at the place to explain the mistake, lang/parser.py to find where the next
statement begins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidelog.lang.tokens import CLOSING, DIRECTIVE_TOKENS, OPENING, span_of
from tidelog.source import SourceText, Span

if TYPE_CHECKING:
    from lark import Token


@dataclass(frozen=True)
class ErrorPlace:
    """The token that did not fit, at `position`, in the statement that begins at `start`."""

    source: SourceText
    tokens: list[Token]
    start: int
    position: int
    accepts: Collection[str]

    @property
    def token(self) -> Token | None:
        """Return the token that did not fit; None at the end of the program."""
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    @property
    def type(self) -> str:
        """Return the type of that token; the empty string at the end of the program."""
        return self.token.type if self.token is not None else ""

    @property
    def previous(self) -> Token | None:
        """Return the token before it, within the statement."""
        return self.tokens[self.position - 1] if self.position > self.start else None

    @property
    def following(self) -> Token | None:
        """Return the token after it."""
        after = self.position + 1
        return self.tokens[after] if after < len(self.tokens) else None

    @property
    def first(self) -> Token:
        """Return the token that the statement begins with."""
        return self.tokens[self.start]

    @cached_property
    def read(self) -> list[Token]:
        """Return the tokens of the statement up to the one that did not fit."""
        return self.tokens[self.start : self.position]

    @cached_property
    def open(self) -> list[Token]:
        """Return the brackets that are open here, outermost first."""
        stack: list[Token] = []
        for token in self.read:
            if token.type in OPENING:
                stack.append(token)
            elif token.type in CLOSING and stack:
                stack.pop()
        return stack

    @cached_property
    def has_if(self) -> bool:
        """Return whether the statement has its `:-` already."""
        return any(token.type == "IF" for token in self.read)

    @property
    def is_rule(self) -> bool:
        """Return whether the statement is a rule or a fact."""
        return self.first.type not in DIRECTIVE_TOKENS

    @cached_property
    def begins_statement(self) -> bool:
        """Return whether the next statement seems to begin here."""
        return self.token is None or begins_statement(self.tokens, self.start, self.position)

    def span(self, token: Token) -> Span:
        """Return the position of `token`."""
        return span_of(self.source, token)

    def here(self) -> Span:
        """Return the position of the token that did not fit; at the end, after the last one."""
        return self.span(self.token) if self.token is not None else self.after()

    def after(self) -> Span:
        """Return the position right after the previous token."""
        span = self.span(self.tokens[self.position - 1])
        return Span(self.source, span.end_line, span.end_column, span.end_line, span.end_column + 1)


def begins_statement(tokens: list[Token], start: int, position: int) -> bool:
    """Return whether a statement seems to begin at `position`, after the broken one at `start`.

    A directive always does. A rule does on a new line that is not indented deeper than the line
    on which the broken statement began.
    """
    token = tokens[position]
    if token.type in DIRECTIVE_TOKENS:
        return token.type != "PLAN"
    if token.line == tokens[position - 1].line or token.type not in ("IDENT", "DOT"):
        return False
    first_of_line = start
    while first_of_line and tokens[first_of_line - 1].line == tokens[start].line:
        first_of_line -= 1
    follower = tokens[position + 1].type if position + 1 < len(tokens) else ""
    looks_like_one = token.type == "DOT" or follower in ("LPAR", "LSQB")
    return looks_like_one and (token.column or 1) <= (tokens[first_of_line].column or 1)


def directive_before(tokens: list[Token], start: int) -> int | None:
    """Return the position of the directive that ends right before `start`, on the same line."""
    position = start - 1
    if position < 0 or tokens[position].line != tokens[start].line:
        return None
    while position >= 0 and tokens[position].type not in DIRECTIVE_TOKENS:
        if tokens[position].type in ("DOT", "IF"):
            return None
        position -= 1
    return position if position >= 0 else None
