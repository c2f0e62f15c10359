"""Components among the tokens: their braces, and the names of what is inside an instance.

A brace after `.comp` encloses statements, other braces enclose the conditions of an aggregate. Only
the first kind becomes BEGIN and END, so that a mistake in one statement of a component does not
hide the next, as everywhere else.

`roads.edge` is the relation `edge` of the instance `roads`. A full stop also ends a rule, so the
parts become one name only where `.init` names the first of them, and nothing stands between them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.lang.tokens import DIRECTIVE_TOKENS

if TYPE_CHECKING:
    from lark import Token


def mark_components(tokens: list[Token]) -> list[Token]:
    """Return the tokens with the braces of components marked, and with the parts of names joined.

    Without `.comp` and `.init` they are returned as they are.
    """
    kinds = {token.type for token in tokens}
    if "COMP" in kinds:
        tokens = _marked(tokens)
    if "INIT" in kinds:
        instances = {str(b) for a, b in pairwise(tokens) if a.type == "INIT"}
        tokens = _joined(tokens, instances)
    return tokens


def _marked(tokens: list[Token]) -> list[Token]:
    out: list[Token] = []
    in_header = False
    open_components = inside = 0  # `inside`: braces of aggregates that are open
    for token in tokens:
        marked = token
        if token.type in DIRECTIVE_TOKENS:
            in_header, inside = token.type == "COMP", 0
        elif token.type == "LBRACE" and in_header:
            in_header, open_components = False, open_components + 1
            marked = token.update(type="BEGIN")
        elif token.type == "LBRACE":
            inside += 1
        elif token.type == "RBRACE" and inside:
            inside -= 1
        elif token.type == "RBRACE" and open_components:
            open_components -= 1
            marked = token.update(type="END")
        elif token.type == "DOT":
            inside = 0
        out.append(marked)
    return out


def _joined(tokens: list[Token], instances: set[str]) -> list[Token]:
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if token.type == "IDENT" and token in instances:
            while _continues(tokens, i):
                last = tokens[i + 1]
                token = token.update(value=f"{token}.{last}")
                token.end_column, token.end_pos = last.end_column, last.end_pos
                i += 2
        out.append(token)
    return out


def _continues(tokens: list[Token], i: int) -> bool:
    """Return whether a full stop and a name stand at `i`, without a gap before them."""
    if [token.type for token in tokens[i : i + 2]] != ["DOT", "IDENT"]:
        return False
    name, dot, last = tokens[i - 1 : i + 2]
    return name.end_pos == dot.start_pos and dot.end_pos == last.start_pos
