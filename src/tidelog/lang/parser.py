"""Tokens become statements, one at a time.

Each statement is parsed on its own. Tokens are fed to the LALR parser until it can take no more. If
the statement is complete there, the next one begins. Otherwise that is a mistake, which
lang/mistakes.py explains, and parsing continues where the next statement seems to begin. So one run
reports several mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.lang import syntax
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.error_place import ErrorPlace, begins_statement, directive_before
from tidelog.lang.lexer import grammar, tokenize
from tidelog.lang.mistakes import explain
from tidelog.lang.preprocess import includes_files
from tidelog.lang.tokens import DIRECTIVE_TOKENS, UNREADABLE, next_line, span_of
from tidelog.source import SourceText, Span

if TYPE_CHECKING:
    from lark import Token

    from tidelog.lang.build import Builder

# What a refused directive is called, and what to do instead.
_REFUSED = {
    ".functor": (
        "declaring functors (`.functor`) is",
        "remove it, and register the function from Python with `tidelog.function`",
    ),
    ".lattice": (
        "lattices (`.lattice`) are",
        "keep the best value with an aggregate: `min` or `max`",
    ),
    ".include": (
        "`.include` is",
        "only a program in a file can include others, by a line of its own",
    ),
    ".once": ("`.once` is", "remove it"),
    ".limitsize": ("`.limitsize` is", "remove it: views are always complete"),
    ".debug_delta": ("`.debug_delta` is", "remove it"),
}
_DECLARE = frozenset({"DECL", "TYPE", "COMP"})
# A rule body alone is parsed as that of a rule with this head.
_HEAD = (("IDENT", "query"), ("LPAR", "("), ("RPAR", ")"), ("IF", ":-"))


def parse(
    source: SourceText, diagnostics: Diagnostics, registered: Set[str] = frozenset()
) -> syntax.Module:
    """Return the syntax tree of `source`, without the statements whose mistakes are reported.

    `registered` are names of aggregates besides the built-in ones.
    """
    from tidelog.lang.build import Builder

    tokens, comments = tokenize(source, diagnostics, registered)
    builder = Builder(source, diagnostics)
    statements: list[syntax.Statement] = []
    outside: list[_OpenComponent] = []
    unread: set[str] = set()
    hidden = includes_files(source.text)  # whether names are declared where Tidelog does not look
    position = 0
    while position < len(tokens):
        start = position
        token = tokens[start]
        if token.type == "REFUSED":
            what, hint = _REFUSED[str(token)]
            diagnostics.error(
                "not-supported", f"{what} not supported", span_of(source, token), hint
            )
            hidden |= token == ".include"
            position = _after_refused(tokens, start)
            continue
        if token.type == "END":
            if outside:  # or the mistake in its first line was reported
                statements = outside.pop().close(statements, span_of(source, token))
            position += 1
            continue
        statement, position = _parse_statement(source, tokens, start, builder, diagnostics)
        if isinstance(statement, syntax.ComponentDeclaration):
            outside.append(_OpenComponent(statement, statements))
            statements = []
        elif statement is not None:
            statements.append(statement)
        else:
            names = set(_declared_names(tokens, start))
            unread |= names
            # What a component declares has other names in its instances.
            hidden |= bool(outside) or (token.type in _DECLARE and not names)
    while outside:
        head = outside[-1].head
        message = f"the component `{head.name}` is not closed"
        diagnostics.error("unexpected-end", message, head.span, "close it with `}`")
        statements = outside.pop().close(statements, head.span)
        hidden = True
    return syntax.Module(source, tuple(statements), comments, frozenset(unread), hidden)


@dataclass(frozen=True)
class _OpenComponent:
    """A component whose end has not been read, and the statements around it."""

    head: syntax.ComponentDeclaration
    around: list[syntax.Statement]

    def close(self, body: list[syntax.Statement], end: Span) -> list[syntax.Statement]:
        """Return the statements around the component, with the component."""
        span = self.head.span.to(end)
        return [*self.around, replace(self.head, body=tuple(body), span=span)]


def parse_body(
    source: SourceText, diagnostics: Diagnostics, registered: Set[str] = frozenset()
) -> syntax.Formula | None:
    """Return the body of a rule that is all of `source`; None if its mistakes are reported.

    A full stop may end it.
    """
    from lark import Token

    from tidelog.lang.build import Builder

    tokens, _ = tokenize(source, diagnostics, registered)
    if not tokens:
        diagnostics.error("syntax", "there is no rule body here", Span(source, 1, 1, 1, 2))
        return None

    def made(kind: str, text: str, line: int | None, column: int | None) -> Token:
        """Return a token that does not stand in the text."""
        return Token(kind, text, None, line, column, line, (column or 1) + 1)

    first, last = tokens[0], tokens[-1]
    head = [made(*token, first.line, first.column) for token in _HEAD]
    end = [] if last.type == "DOT" else [made("DOT", ".", last.end_line, last.end_column)]
    tokens = [*head, *tokens, *end]
    statement, position = _parse_statement(
        source, tokens, 0, Builder(source, diagnostics), diagnostics
    )
    if statement is None:
        return None
    if position < len(tokens):
        span = span_of(source, tokens[position])
        diagnostics.error("syntax", "the rule body ends before this", span, "ask one question")
        return None
    assert isinstance(statement, syntax.RuleStatement)
    return statement.body


def _parse_statement(
    source: SourceText,
    tokens: list[Token],
    start: int,
    builder: Builder,
    diagnostics: Diagnostics,
) -> tuple[syntax.Statement | None, int]:
    """Return the statement that starts at `start`, None if it is wrong, and the next start."""
    from lark.exceptions import UnexpectedToken

    from tidelog.lang.build import RefusedConstruct

    parser = grammar().parse_interactive()
    position = start
    while position < len(tokens) and tokens[position].type not in UNREADABLE:
        try:
            parser.feed_token(tokens[position])
        except UnexpectedToken:
            break
        position += 1
    try:
        last = tokens[max(start, position - 1)]
        tree = parser.feed_eof(last)  # type: ignore[no-untyped-call]
    except UnexpectedToken:
        accepts = parser.accepts()  # type: ignore[no-untyped-call]
        mistake = explain(ErrorPlace(source, tokens, start, position, accepts))
        diagnostics.error(mistake.code, mistake.message, mistake.span, mistake.hint)
        if mistake.resume is not None:
            return None, max(mistake.resume, start + 1)
        return None, _resume(tokens, start, mistake.skip_from or position)
    try:
        return builder.transform(tree), position
    except RefusedConstruct:
        return None, position


def _resume(tokens: list[Token], start: int, position: int) -> int:
    """Return where parsing continues: after the next full stop, or where a statement begins."""
    is_rule = tokens[start].type not in DIRECTIVE_TOKENS
    line = tokens[min(position, len(tokens) - 1)].line
    while position < len(tokens):
        if position > start and begins_statement(tokens, start, position):
            return position
        token = tokens[position]
        # A declaration does not end with a full stop: one on its line is part of the mistake.
        ends = token.type == "DOT" and (is_rule or token.line != line)
        if ends and [t.type for t in tokens[position + 1 : position + 2]] != ["PLAN"]:
            return position + 1
        position += 1
    return position


def _declared_names(tokens: list[Token], start: int) -> Iterator[str]:
    """Yield the names that a statement which could not be read would have declared.

    They are not reported as undeclared: one mistake, one message.
    """
    position = start + 1
    before = directive_before(tokens, start)
    if before is not None and tokens[start].type != "IDENT":
        position = before + 1  # `.decl edge(x: number), y: number)`: half of it was read
    elif [t.type for t in tokens[start : start + 2]] == ["DOT", "IDENT"]:
        position += 1  # a misspelled directive, such as `.declare`
    elif tokens[start].type not in DIRECTIVE_TOKENS:
        # `edge(x: number)` was meant as a declaration. What stands before it does not matter.
        kinds = [token.type for token in tokens[start : start + 5]]
        typed = (["IDENT", bracket, "IDENT", "COLON"] for bracket in ("LPAR", "LSQB"))
        if not any(pattern in (kinds[:4], kinds[1:]) for pattern in typed):
            return
        position = start + kinds.index("IDENT")
    while position < len(tokens) and tokens[position].type in ("IDENT", "COMMA"):
        if tokens[position].type == "IDENT":
            yield str(tokens[position])
        position += 1


def _after_refused(tokens: list[Token], start: int) -> int:
    """Return the position after a refused directive: its braces, or the rest of its line."""
    if tokens[start] != ".lattice":
        return next_line(tokens, start)
    position, depth = start, 0
    while position < len(tokens):
        token = tokens[position]
        if token.type == "LBRACE":
            depth += 1
        elif token.type == "RBRACE":
            depth -= 1
            if depth == 0:
                return position + 1
        elif depth == 0 and token.type in DIRECTIVE_TOKENS and position > start:
            break  # it has no braces
        position += 1
    return position
