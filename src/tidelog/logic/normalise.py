"""Rules become clauses: one head, a conjunction of plain literals.

    a(x), b(x) :- c(x), (d(x) ; !(e(x), f(x))).

has two heads and, with the negation pushed inwards, three alternatives: six clauses. Lookups,
ranges and aggregates inside expressions become literals of their own, bound to fresh variables:

    p(price[i] * 2, n) :- q(i), n = count : { r(i, _) } + 1.
    p($1 * 2, n)       :- q(i), price(i, $1), $2 = count : { r(i, $3) }, n = $2 + 1.

Functors move out of atoms and record patterns, too: `q(x + 1)` becomes `$1 = x + 1, q($1)`. So the
arguments of a body atom are variables, constants and patterns.

Here everything is still syntax; types come next (logic/infer.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.printer import format_rule
from tidelog.lang.syntax import variables
from tidelog.source import Span

MAX_ALTERNATIVES = 4096
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True)
class AtomLiteral:
    """An atom, or its absence."""

    atom: s.AtomFormula
    negated: bool = False


@dataclass(frozen=True)
class CompareLiteral:
    """A comparison between plain terms."""

    op: str
    left: s.Term
    right: s.Term
    span: Span = field(compare=False)


@dataclass(frozen=True)
class TestLiteral:
    """`match` or `contains`, or its negation."""

    name: str
    args: tuple[s.Term, ...]
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class RangeLiteral:
    """`result = range(args)`."""

    result: s.Term
    args: tuple[s.Term, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class AggregateLiteral:
    """`result = op target : { body }`; `target_names` are the variables that the user put in it."""

    result: s.Term
    op: str
    target: s.Term | None
    target_names: tuple[str, ...]
    body: tuple[PlainLiteral, ...]
    span: Span = field(compare=False)


PlainLiteral: TypeAlias = (
    AtomLiteral | CompareLiteral | TestLiteral | RangeLiteral | AggregateLiteral
)


@dataclass(frozen=True)
class Clause:
    """One head and a conjunction of plain literals."""

    head: s.AtomFormula
    body: tuple[PlainLiteral, ...]
    text: str
    span: Span = field(compare=False)


def normalise(rule: s.RuleStatement, diagnostics: Diagnostics) -> list[Clause]:
    """Return the clauses of `rule`; an empty list when its body can never hold, or is wrong."""
    text = format_rule(rule)
    try:
        bodies = [()] if rule.body is None else _alternatives(rule.body, negated=False)
    except _TooManyError:
        diagnostics.error(
            "too-many-alternatives",
            f"the body of this rule has more than {MAX_ALTERNATIVES} alternatives",
            rule.heads[0].span,
            "give a part of the disjunction a relation of its own",
        )
        return []
    clauses = []
    for head in rule.heads:
        for body in bodies:
            clauses.append(_Flattener(diagnostics).clause(head, body, text, rule.span))
    return clauses


# --- disjunction and negation -----------------------------------------------------------------

_Simple: TypeAlias = s.AtomFormula | s.Compared | s.Tested
_Signed: TypeAlias = tuple[_Simple, bool]  # (formula, negated)
_Conjunction: TypeAlias = tuple[_Signed, ...]


class _TooManyError(Exception):
    pass


def _alternatives(formula: s.Formula, negated: bool) -> list[_Conjunction]:
    """Return the disjunctive normal form of `formula`, or of its negation.

    not (a, b) = not a ; not b          not (a ; b) = not a, not b
    """
    match formula:
        case s.Not(inner):
            return _alternatives(inner, not negated)
        case s.Truth(value):
            return [()] if value != negated else []
        case s.Both(parts) | s.Either(parts):
            each = [_alternatives(part, negated) for part in parts]
            if isinstance(formula, s.Both) == negated:
                return [conjunction for part in each for conjunction in part]
            product: list[_Conjunction] = [()]
            for part in each:
                product = [left + right for left in product for right in part]
                if len(product) > MAX_ALTERNATIVES:
                    raise _TooManyError
            return product
        case _:
            return [((formula, negated),)]


# --- lookups, ranges and aggregates -----------------------------------------------------------


class _Flattener:
    """Flattens the expressions of one clause; fresh variables are numbered within it."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._fresh = 0
        self._in_head = False
        self._depth = 0  # the number of enclosing aggregates

    def _variable(self, span: Span) -> s.Variable:
        self._fresh += 1
        return s.Variable(f"${self._fresh}", span=span)

    def clause(self, head: s.Head, body: _Conjunction, text: str, span: Span) -> Clause:
        out: list[PlainLiteral] = []
        for formula, negated in body:
            self._literal(formula, negated, out)
        terms = head.args if isinstance(head, s.AtomFormula) else (*head.args, head.value)
        self._in_head = True  # records in the head are built, never matched
        args = tuple(self._term(term, out) for term in terms)
        return Clause(s.AtomFormula(head.relation, args, span=head.span), tuple(out), text, span)

    def _literal(self, formula: _Simple, negated: bool, out: list[PlainLiteral]) -> None:
        match formula:
            case s.AtomFormula(relation, args):
                self._atom(relation, self._patterns(args, out), negated, formula.span, out)
            case s.Tested(name, args):
                out.append(TestLiteral(name, self._terms(args, out), negated, formula.span))
            case s.Compared("=", s.Lookup() as key, value) | s.Compared(
                "=", value, s.Lookup() as key
            ):
                self._lookup(key, self._term(value, out), negated, out)
            case s.Compared(op, left, right):
                op = _OPPOSITE[op] if negated else op
                if op == "=" and self._binding(left, right, out, formula.span):
                    return
                left, right = self._term(left, out), self._term(right, out)
                out.append(CompareLiteral(op, left, right, formula.span))

    def _binding(self, left: s.Term, right: s.Term, out: list[PlainLiteral], span: Span) -> bool:
        """Flatten `x = range(..)` and `x = sum ..` without a fresh variable."""
        for term, other in ((right, left), (left, right)):
            if isinstance(term, s.AggregateTerm):
                self._aggregate(term, self._term(other, out), out)
                return True
            if isinstance(term, s.Call) and term.name == "range":
                result = self._term(other, out)
                out.append(RangeLiteral(result, self._terms(term.args, out), span))
                return True
        return False

    def _terms(self, terms: tuple[s.Term, ...], out: list[PlainLiteral]) -> tuple[s.Term, ...]:
        return tuple(self._term(term, out) for term in terms)

    def _term(self, term: s.Term, out: list[PlainLiteral]) -> s.Term:
        """Return `term` without lookups, ranges and aggregates; they are added to `out`."""
        match term:
            case s.Lookup():
                value = self._variable(term.span)
                self._lookup(term, value, False, out)
                return value
            case s.AggregateTerm():
                value = self._variable(term.span)
                self._aggregate(term, value, out)
                return value
            case s.Call("range", args):
                value = self._variable(term.span)
                out.append(RangeLiteral(value, self._terms(args, out), term.span))
                return value
            case s.Call(name, args):
                return s.Call(name, self._terms(args, out), span=term.span)
            case s.RecordTerm(args):
                inside = self._terms if self._in_head else self._patterns
                return replace(term, args=inside(args, out))
            case s.Cast(inner, type_name):
                return s.Cast(self._term(inner, out), type_name, span=term.span)
            case _:
                return term

    def _patterns(self, terms: tuple[s.Term, ...], out: list[PlainLiteral]) -> tuple[s.Term, ...]:
        """Return the terms without functors: those are computed into fresh variables."""
        plain: list[s.Term] = []
        for term in self._terms(terms, out):
            if isinstance(_without_casts(term), s.Call):
                value = self._variable(term.span)
                out.append(CompareLiteral("=", value, term, term.span))
                plain.append(value)
            else:
                plain.append(term)
        return tuple(plain)

    def _atom(
        self,
        relation: str,
        args: tuple[s.Term, ...],
        negated: bool,
        span: Span,
        out: list[PlainLiteral],
    ) -> None:
        if self._depth and not negated:
            # In an aggregate every `_` is a variable of its own: its values are counted.
            args = tuple(self._name_anonymous(arg) for arg in args)
        out.append(AtomLiteral(s.AtomFormula(relation, args, span=span), negated))

    def _lookup(self, key: s.Lookup, value: s.Term, negated: bool, out: list[PlainLiteral]) -> None:
        args = self._patterns((*key.args, value), out)
        self._atom(key.relation, args, negated, key.span, out)

    def _aggregate(
        self, aggregate: s.AggregateTerm, result: s.Term, out: list[PlainLiteral]
    ) -> None:
        bodies = _alternatives(aggregate.body, negated=False)
        if len(bodies) != 1:
            self._diagnostics.error(
                "not-supported",
                "a disjunction inside an aggregate is not supported",
                aggregate.body.span,
                "give it a relation of its own, and aggregate over that",
            )
            bodies = [()]
        inner: list[PlainLiteral] = []
        in_head, self._in_head = self._in_head, False
        self._depth += 1
        for formula, negated in bodies[0]:
            self._literal(formula, negated, inner)
        target = None
        if aggregate.target is not None:
            target = self._term(aggregate.target, inner)
        self._depth -= 1
        self._in_head = in_head
        names = () if aggregate.target is None else tuple(variables(aggregate.target))
        out.append(
            AggregateLiteral(result, aggregate.op, target, names, tuple(inner), aggregate.span)
        )

    def _name_anonymous(self, term: s.Term) -> s.Term:
        match term:
            case s.Anonymous():
                return self._variable(term.span)
            case s.RecordTerm(args):
                return replace(term, args=tuple(map(self._name_anonymous, args)))
            case _:
                return term


def _without_casts(term: s.Term) -> s.Term:
    while isinstance(term, s.Cast):
        term = term.term
    return term
