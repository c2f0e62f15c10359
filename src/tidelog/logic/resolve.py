"""Every name in a rule must be declared, with the right number of arguments.

This is checked on the syntax tree, before rules are split into clauses, so that a mistake is
reported once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.declare import Declarations
from tidelog.logic.functors import FUNCTOR_NAMES
from tidelog.source import Span


def resolve(rule: s.RuleStatement, declared: Declarations, diagnostics: Diagnostics) -> bool:
    """Report undeclared names and wrong arities in `rule`; return whether there were none."""
    return _Resolver(declared, diagnostics).rule(rule)


class _Resolver:
    def __init__(self, declared: Declarations, diagnostics: Diagnostics) -> None:
        self._declared = declared
        self._diagnostics = diagnostics
        self._good = True

    def rule(self, rule: s.RuleStatement) -> bool:
        for head in rule.heads:
            if isinstance(head, s.FunctionalHead):
                self._lookup(head.relation, head.args, head.span)
                terms = (*head.args, head.value)
            else:
                self._atom(head.relation, len(head.args), head.span)
                terms = head.args
            for term in terms:
                self._term(term)
                for anonymous in _anonymous(term):
                    self._anonymous_in_head(anonymous, is_fact=rule.body is None)
        if rule.body is not None:
            self._formula(rule.body)
        return self._good

    def _error(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self._diagnostics.error(code, message, span, hint)
        self._good = False

    def _anonymous_in_head(self, term: s.Anonymous, is_fact: bool) -> None:
        place = "a fact" if is_fact else "the head of a rule"
        hint = "write a value" if is_fact else "name a variable that the body binds"
        self._error("anonymous-in-head", f"`_` cannot be used in {place}", term.span, hint)

    def _atom(self, name: str, arity: int, span: Span) -> None:
        relation = self._declared.relations.get(name)
        if relation is None:
            self._undeclared(name, span)
        elif name in self._declared.broken:
            self._good = False  # its declaration was reported
        elif relation.arity != arity:
            hint = f"it is declared as {relation}"
            if relation.functional and relation.arity == arity + 1:
                hint += f": write `{name}[..] = value`"
            self._error(
                "wrong-arity",
                f"`{name}` has {relation.arity} column{'s' * (relation.arity != 1)}, not {arity}",
                span,
                hint,
            )

    def _undeclared(self, name: str, span: Span) -> None:
        hint = None
        if name in FUNCTOR_NAMES:
            hint = f"`{name}` is a functor: compare its value, as in `x = {name}(..)`"
        elif name.lower() == "not":
            hint = "negation is written `!`"
        self._declared.report_undeclared(name, span.first(len(name)), self._diagnostics, hint)
        self._good = False

    def _lookup(self, name: str, args: tuple[s.Term, ...], span: Span) -> None:
        relation = self._declared.relations.get(name)
        if name in self._declared.broken:
            self._good = False  # its declaration was reported
        elif relation is not None and not relation.functional:
            self._error(
                "not-functional", f"`{name}` is not a functional relation", span,
                f"it is declared as {relation}: write it with parentheses, as a condition",
            )  # fmt: skip
        elif relation is not None and relation.arity != len(args) + 1:
            self._error(
                "wrong-arity",
                f"`{name}` has {relation.arity - 1} key column{'s' * (relation.arity != 2)},"
                f" not {len(args)}",
                span,
                f"it is declared as {relation}",
            )
        else:
            self._atom(name, len(args) + 1, span)

    def _formula(self, formula: s.Formula) -> None:
        match formula:
            case s.Not(inner):
                self._formula(inner)
            case s.Both(parts) | s.Either(parts):
                for part in parts:
                    self._formula(part)
            case s.AtomFormula(name, args):
                self._atom(name, len(args), formula.span)
                for arg in args:
                    self._term(arg)
                    if not isinstance(arg, s.Anonymous | s.RecordTerm):
                        self._no_anonymous(arg)
            case s.Tested(_, args):
                for arg in args:
                    self._value(arg)
            case s.Compared(_, left, right):
                self._value(left)
                self._value(right)

    def _value(self, term: s.Term) -> None:
        self._term(term)
        if not isinstance(term, s.RecordTerm):
            self._no_anonymous(term)

    def _no_anonymous(self, term: s.Term) -> None:
        for anonymous in _anonymous(term):
            self._error(
                "anonymous-value", "`_` has no value to compute with", anonymous.span,
                "name a variable that an atom binds",
            )  # fmt: skip

    def _term(self, term: s.Term) -> None:
        match term:
            case s.RecordTerm(args) | s.Call(_, args):
                for arg in args:
                    self._term(arg)
            case s.Cast(inner):
                self._term(inner)
            case s.Lookup(name, args):
                self._lookup(name, args, term.span)
                for arg in args:
                    self._term(arg)
            case s.AggregateTerm(_, target, body):
                self._formula(body)
                if target is not None:
                    self._value(target)


def _anonymous(term: s.Term) -> Iterator[s.Anonymous]:
    match term:
        case s.Anonymous():
            yield term
        case s.RecordTerm(args) | s.Call(_, args):
            for arg in args:
                yield from _anonymous(arg)
        case s.Cast(inner):
            yield from _anonymous(inner)
        case _:
            return  # in a lookup or an aggregate, `_` belongs to an atom
