"""Program text as tokens and trees, for the tests of lang/."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import fields
from typing import Any

import tidelog
from tidelog.lang import syntax
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.lexer import tokenize
from tidelog.lang.parser import parse
from tidelog.lang.preprocess import preprocess
from tidelog.source import SourceText


def mistakes(diagnostics: Diagnostics) -> list[tuple[str, int, int]]:
    """Return what was reported: its code, line and column."""
    try:
        diagnostics.raise_if_any()
    except tidelog.ProgramError as error:
        return [(d.code, d.span.line, d.span.column) for d in error.diagnostics if d.span]
    return []


def tokens(text: str, registered: Set[str] = frozenset()) -> list[tuple[str, str]]:
    """Return the tokens of a text that is right, as (type, text)."""
    diagnostics = Diagnostics()
    found, _ = tokenize(SourceText("t.dl", text), diagnostics, registered)
    assert mistakes(diagnostics) == []
    return [(token.type, str(token)) for token in found]


def parsed(text: str) -> syntax.Module:
    """Return the tree of a text that is right."""
    module, found = read(text)
    assert found == []
    return module


def read(text: str) -> tuple[syntax.Module, list[tuple[str, int, int]]]:
    """Return the tree of a text, and what was reported."""
    diagnostics = Diagnostics()
    module = parse(SourceText("t.dl", text), diagnostics)
    return module, mistakes(diagnostics)


def preprocessed(text: str) -> tuple[str, list[tuple[str, int, int]]]:
    """Return what the preprocessor makes of a text, and what was reported."""
    diagnostics = Diagnostics()
    return preprocess(SourceText("t.dl", text), diagnostics).text, mistakes(diagnostics)


def statement(text: str) -> Any:
    """Return the tree of one statement."""
    (only,) = parsed(text).statements
    return only


def body(text: str) -> Any:
    """Return the tree of a rule's body."""
    return statement(f"p() :- {text}.").body


def term(text: str) -> Any:
    """Return the tree of a value."""
    return body(f"x = {text}").right


def shown(node: Any) -> str:
    """Return a term or formula with all that the tree has in it: operators in parentheses."""
    match node:
        case syntax.Call(name, args):
            return f"({name} {' '.join(map(shown, args))})"
        case syntax.Variable(name):
            return name
        case syntax.Anonymous():
            return "_"
        case syntax.IntLiteral(value):
            return str(value)
        case syntax.AtomFormula(relation, args):
            return f"{relation}({', '.join(map(shown, args))})"
        case syntax.Compared(op, left, right):
            return f"({op} {shown(left)} {shown(right)})"
        case syntax.Not(inner):
            return f"(not {shown(inner)})"
        case syntax.Both(parts):
            return f"(and {' '.join(map(shown, parts))})"
        case syntax.Either(parts):
            return f"(or {' '.join(map(shown, parts))})"
        case syntax.AggregateTerm(op, target, inside):
            return f"({op} {'' if target is None else shown(target)}: {shown(inside)})"
    raise AssertionError(f"no text for {node}")


def written(source: str, node: Any) -> str:
    """Return the text that the position of a node covers."""
    span = node.span
    lines = source.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def nodes(tree: Any) -> list[Any]:
    """Return a node and all nodes below it."""
    found = [tree] if hasattr(tree, "span") else []
    if isinstance(tree, tuple):
        children = list(tree)
    elif found:
        children = [getattr(tree, field.name) for field in fields(tree) if field.name != "span"]
    else:
        children = []
    return found + [node for child in children for node in nodes(child)]
