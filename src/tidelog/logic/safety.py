"""Every variable must be bound: some literal must say which values it can have.

Literals bind variables as follows, and the rule is safe when this reaches all of them:

- a positive atom binds the variables among its arguments, also inside record patterns;
- an equality with one side bound binds the variables of a pattern on the other side
  (`x = y + 1` binds x, `[a, b] = r` binds a and b; `y + 1 = x` does not bind y);
- `x = range(..)` binds x once its arguments are bound;
- an aggregate binds its result once the outer variables that it groups by are bound.

Negation, comparisons, tests and functors only use values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.syntax import variable_nodes, variables
from tidelog.logic import program as p
from tidelog.logic.normalise import AggregateLiteral, AtomLiteral, Clause, PlainLiteral
from tidelog.logic.scopes import literal_terms
from tidelog.logic.variables import newly_bound
from tidelog.source import Span
from tidelog.values.types import Kind


def check_safety(rule: p.Rule, clause: Clause, diagnostics: Diagnostics) -> None:
    """Report the variables of `rule` that nothing binds; `clause` has their positions."""
    uses = [*_uses(rule.body, clause.body), *_head_uses(rule, clause)]
    if not rule.body:
        uses = uses[:1]  # a fact that was meant as a rule is one mistake
    bound = _bind(rule.body, set())
    _report_unbound(rule.body, bound, uses, diagnostics)
    if not any(use.name not in bound for use in uses):
        _check_aggregates(rule.body, clause.body, bound, diagnostics)


def _bind(body: tuple[p.Literal, ...], bound: set[str]) -> set[str]:
    """Return `bound` and all that the literals of `body` bind from there."""
    bound = set(bound)
    size = -1
    while len(bound) != size:
        size = len(bound)
        for literal in body:
            bound |= newly_bound(literal, bound)
    return bound


@dataclass(frozen=True)
class _Use:
    """Where a variable is used, and what to say there if nothing binds it."""

    name: str
    span: Span
    hint: str


def _report_unbound(
    body: tuple[p.Literal, ...], bound: set[str], uses: list[_Use], diagnostics: Diagnostics
) -> None:
    """Report each unbound variable once, and only causes, not consequences.

    In `n = range(0, top)` only `top` is reported: with it, `n` would be bound as well.
    """
    everything = {use.name for use in uses} | bound
    while missing := [use for use in uses if use.name not in bound]:
        causes = [
            use
            for use in missing
            if not any(use.name in newly_bound(lit, everything - {use.name}) for lit in body)
        ]
        use = (causes or missing)[0]
        if not use.name.startswith("$"):  # made by normalisation: its cause was reported
            diagnostics.error(
                "unbound-variable", f"variable `{use.name}` is not bound", use.span, use.hint
            )
        bound = _bind(body, bound | {use.name})


def _check_aggregates(
    body: tuple[p.Literal, ...],
    written: tuple[PlainLiteral, ...],
    outer: set[str],
    diagnostics: Diagnostics,
) -> None:
    """Check inside the aggregates of a body whose own variables are all bound.

    Inside the braces only the variables that they share with the body have values; `outer` may have
    others of the same name.
    """
    for literal, plain in zip(body, written, strict=True):
        if not isinstance(literal, p.Reduce):
            continue
        assert isinstance(plain, AggregateLiteral)
        inner = _bind(literal.body, set(literal.group))
        uses = _uses(literal.body, plain.body)
        if plain.target is not None:
            uses += [
                _Use(v.name, v.span, _target_hint(v.name, outer))
                for v in variable_nodes(plain.target)
            ]
        _report_unbound(literal.body, inner, uses, diagnostics)
        _check_aggregates(literal.body, plain.body, outer | inner, diagnostics)


def _target_hint(name: str, outer: set[str]) -> str:
    hint = "the conditions in the braces must bind what is aggregated"
    return f"{hint}; the `{name}` outside is another variable" if name in outer else hint


# --- where variables are used -------------------------------------------------------------------


def _uses(body: tuple[p.Literal, ...], written: tuple[PlainLiteral, ...]) -> list[_Use]:
    """Return the uses of variables in a body, in the order of the text."""
    uses: list[_Use] = []
    for literal, plain in zip(body, written, strict=True):
        if isinstance(plain, AggregateLiteral) and isinstance(literal, p.Reduce):
            uses += _group_uses(literal, plain)
        for term in literal_terms(plain):
            alone = isinstance(term, s.Variable)
            for node in variable_nodes(term):
                uses.append(_Use(node.name, node.span, _hint(literal, alone)))
    return uses


def _hint(literal: p.Literal, alone: bool) -> str:
    match literal:
        case p.Atom(negated=True):
            return "a negated atom binds nothing: use the variable in a positive atom, or write `_`"
        case p.Compare(p.Comparison.EQ) if not alone:
            return (
                "an expression binds nothing: only a variable alone on one side of `=` gets a value"
            )
        case p.Generate():
            return "the arguments of `range` must be bound elsewhere"
        case p.Compare(op) if op is not p.Comparison.EQ:
            return f"`{op.value}` binds nothing: use the variable in a positive atom as well"
        case p.Test(name):
            return f"`{name}` binds nothing: use the variable in a positive atom as well"
        case _:
            return "a variable is bound by a positive atom, or by an equality with bound terms"


def _group_uses(literal: p.Reduce, plain: AggregateLiteral) -> list[_Use]:
    """Return the uses, inside an aggregate, of the variables that it groups by."""
    inside = [
        (node, part)
        for part in plain.body
        for term in literal_terms(part)
        for node in variable_nodes(term)
    ]
    results = set(variables(plain.result))
    uses = []
    for name in literal.group:
        found = next(((node, part) for node, part in inside if node.name == name), None)
        hint = f"the aggregate is taken for each `{name}`: bind it outside the braces as well"
        if name in results:
            hint = "the result of an aggregate cannot occur inside it: use another name there"
        elif found is not None and isinstance(found[1], AtomLiteral) and not found[1].negated:
            hint += f", with {_example(found[1].atom, name)}"
        uses.append(_Use(name, found[0].span if found is not None else literal.span, hint))
    return uses


def _example(atom: s.AtomFormula, name: str) -> str:
    """Return `edge(x, _)` for the variable `x` of `edge(x, y)`."""
    kept = [name if isinstance(a, s.Variable) and a.name == name else "_" for a in atom.args]
    return f"`{atom.relation}({', '.join(kept)})`"


def _head_uses(rule: p.Rule, clause: Clause) -> list[_Use]:
    nodes = [node for arg in clause.head.args for node in variable_nodes(arg)]
    types = {arg.name: arg.type for arg in rule.head.args if isinstance(arg, p.Var)}
    if not rule.body:
        texts = {name for name, type_ in types.items() if type_.kind is Kind.SYMBOL}
        hints = {name: f'write it as a string: "{name}"' for name in texts}
        hint = "a fact has values, not variables"
        return [_Use(n.name, n.span, hints.get(n.name, hint)) for n in nodes]
    counted = Counter(name for part in clause.body for name in _all_names(part))
    once = [name for name, count in counted.items() if count == 1 and not name.startswith("$")]
    uses = []
    for node in nodes:
        guess = did_you_mean(node.name, [name for name in once if name != node.name])
        hint = "every variable of the head must be bound by the body"
        if ";" in clause.text:
            hint += ", in each of its alternatives"
        uses.append(_Use(node.name, node.span, f"{hint}: {guess}" if guess else hint))
    return uses


def _all_names(literal: PlainLiteral) -> Iterator[str]:
    return (name for term in literal_terms(literal) for name in variables(term))
