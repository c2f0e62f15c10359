"""Text becomes tokens, and words get the role that their neighbours give them.

`total`, `setof` and `concat` are Tidelog's own aggregates, but programs written for Soufflé may
have a relation or a variable called `total`. So no aggregate or qualifier is a reserved word. A
word is an aggregate if what follows can only follow an aggregate.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tidelog.lang.component_tokens import mark_components
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.foreign import replace_foreign
from tidelog.lang.preprocess import Preprocessed, preprocess
from tidelog.lang.syntax import Comment
from tidelog.lang.tokens import CLOSING, DIRECTIVE_TOKENS, OPENING, OPERANDS, starts_rule
from tidelog.source import SourceText

if TYPE_CHECKING:
    from lark import Lark, Token

AGGREGATES = frozenset({"count", "sum", "min", "max", "mean", "total", "setof", "concat"})
QUALIFIERS = frozenset(
    {"inline", "no_inline", "magic", "no_magic", "brie", "btree", "btree_delete", "eqrel"}
    | {"overridable", "input", "output", "printsize"}
)


@cache
def grammar() -> Lark:
    """Return the compiled grammar. It is built on first use: `tidelog --help` does not need it."""
    from lark import Lark

    return Lark(
        files("tidelog.lang").joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="statement",
        propagate_positions=True,
        maybe_placeholders=True,
        lexer_callbacks={"COMMENT": _keep_comment},
    )


_comments: list[Token] = []


def _keep_comment(token: Token) -> Token:
    _comments.append(token)
    return token


def tokenize(
    source: SourceText, diagnostics: Diagnostics, registered: Set[str] = frozenset()
) -> tuple[list[Token], tuple[Comment, ...]]:
    """Return the tokens and the comments of `source`.

    `registered` are names of further aggregates, which are not reserved words either.
    """
    preprocessed = preprocess(source, diagnostics)
    _comments.clear()
    # `grammar().lex` would build the lexer each time.
    reading = grammar().parse_interactive(preprocessed.text).lexer_thread
    tokens = list(reading.lex(None))  # type: ignore[no-untyped-call]
    if preprocessed.replaced:
        for token in (*tokens, *_comments):
            _move_to_source(token, preprocessed)
    tokens = replace_foreign(source, mark_components(tokens), diagnostics)
    comments = tuple(
        Comment(
            str(c),
            c.line or 1,
            c.end_line or 1,
            own_line=not source.line(c.line or 1)[: (c.column or 1) - 1].strip(),
        )
        for c in _comments
    )
    return _give_roles(tokens, AGGREGATES | registered), comments


def _move_to_source(token: Token, preprocessed: Preprocessed) -> None:
    """Give a token the columns it has in the source, where macros are not replaced."""
    line, column = token.line or 1, token.column or 1
    end = token.end_column or column + 1
    if token.end_line == line:
        token.column, token.end_column = preprocessed.source_columns(line, column, end)
    else:
        token.column, _ = preprocessed.source_columns(line, column, column + 1)


def _give_roles(tokens: list[Token], aggregates: Set[str]) -> list[Token]:
    """Return the tokens, with aggregates and qualifiers distinguished from other names."""
    out: list[Token] = []
    in_directive = in_declaration = after_columns = False
    targets: list[int] = []  # the depths at which an aggregate waits for its colon
    depth = 0
    for i, token in enumerate(tokens):
        if token.type in DIRECTIVE_TOKENS:
            in_directive, in_declaration, after_columns = True, token.type == "DECL", False
            depth = 0
            targets.clear()
        elif token.type in ("DOT", "IF"):
            in_directive = False
            targets.clear()
        elif token.type == "COLON" and targets and targets[-1] == depth:
            targets.pop()
        elif token.type in OPENING:
            depth += 1
        elif token.type in CLOSING:
            depth -= 1
            after_columns = in_declaration and depth == 0
        elif token.type == "IDENT":
            is_qualifier = after_columns and depth == 0 and token in QUALIFIERS
            if is_qualifier and not starts_rule(tokens, i):
                out.append(token.update(type="QUALIFIER"))
                continue
            # In `sum max(x, 0) : {..}` the functor is part of the aggregate's target.
            is_target = bool(targets) and targets[-1] == depth
            if token in aggregates and not is_target and _is_aggregate(tokens, i, in_directive):
                out.append(token.update(type="AGGREGATE"))
                targets.append(depth)
                continue
            if in_directive and depth == 0 and starts_rule(tokens, i):
                in_directive = in_declaration = False
        out.append(token)
    return out


def _is_aggregate(tokens: list[Token], i: int, in_directive: bool) -> bool:
    """Return whether the name at `i` starts an aggregate, judged by what follows it."""
    follower = tokens[i + 1].type if i + 1 < len(tokens) else ""
    if in_directive:
        return False
    if follower in ("COLON", "DOLLAR", "AT") or follower in OPERANDS:
        return True
    if follower in ("MINUS", "BNOT", "LNOT", "LSQB"):
        # `min -x : {..}` differs from `min - x` by the colon after the target.
        return _colon_follows(tokens, i + 1)
    if follower != "LPAR":
        return False
    # `min(a, b)` is a functor, `min (a) : {..}` and `sum (a) * b : {..}` are aggregates.
    return _colon_follows(tokens, i + 1)


def _colon_follows(tokens: list[Token], start: int) -> bool:
    """Return whether the expression that starts at `start` ends in `: {` or `: name(`.

    Parentheses with a comma in them enclose the arguments of a functor or an atom.
    """
    depth = 0
    first_closed = tokens[start].type != "LPAR"
    for i in range(start, len(tokens)):
        kind = tokens[i].type
        if kind in OPENING:
            depth += 1
        elif kind in CLOSING:
            depth -= 1
            first_closed = first_closed or depth == 0
            if depth < 0:
                return False
        elif kind == "COMMA" and depth == 1 and not first_closed:
            return False
        elif depth == 0:
            if kind == "COLON":
                return True
            if kind in ("COMMA", "SEMICOLON", "DOT", "EQUAL", "COMPARE", "IF", "AGGREGATE"):
                return False
    return False
