"""Equivalence relations: `.decl same(x: t, y: t) eqrel` is closed by two rules.

    same(y, x) :- same(x, y).
    same(x, z) :- same(x, y), same(y, z).

Reflexivity follows: a value that is equal to some value is equal to itself. The rules are a
recursion as any other, so the relation is maintained as recursions are.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import Span


def close_equivalences(module: s.Module, diagnostics: Diagnostics) -> s.Module:
    """Return the module with the rules of its equivalence relations."""
    rules: list[s.Statement] = []
    for statement in module.statements:
        if not isinstance(statement, s.RelationDeclaration) or "eqrel" not in statement.qualifiers:
            continue
        types = [attribute.type for attribute in statement.attributes]
        for name in statement.names:
            if statement.value is not None or len(types) != 2 or types[0] != types[1]:
                diagnostics.error(
                    "bad-qualifier", f"`{name.name}` cannot be an `eqrel`", name.span,
                    f"it needs two columns of one type: `.decl {name.name}(x: t, y: t) eqrel`",
                )  # fmt: skip
                continue
            rules += _rules(name.name, name.span)
    return replace(module, statements=(*module.statements, *rules)) if rules else module


def _rules(name: str, span: Span) -> list[s.RuleStatement]:
    x, y, z = (s.Variable(v, span=span) for v in "xyz")

    def atom(*args: s.Term) -> s.AtomFormula:
        return s.AtomFormula(name, args, span=span)

    both = s.Both((atom(x, y), atom(y, z)), span=span)
    return [
        s.RuleStatement((atom(y, x),), atom(x, y), span=span),
        s.RuleStatement((atom(x, z),), both, span=span),
    ]
