"""The variables of typed terms and literals, and which of them a literal binds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.logic import program as p
from tidelog.values.functions import UserFunction
from tidelog.values.types import Type


def newly_bound(literal: p.Literal, bound: set[str]) -> set[str]:
    """Return the variables that `literal` gives values to when those in `bound` have theirs."""
    match literal:
        case p.Atom(args=args, negated=False):
            return set(pattern_variables(args))
        case p.Compare(p.Comparison.EQ, left, right):
            new: set[str] = set()
            if bound.issuperset(term_variables((right,))):
                new |= set(pattern_variables((left,)))
            if bound.issuperset(term_variables((left,))):
                new |= set(pattern_variables((right,)))
            return new
        case p.Generate(target, args) if bound.issuperset(term_variables(args)):
            return set(pattern_variables((target,)))
        case p.Reduce(result, group=group) if bound.issuperset(group):
            return set(pattern_variables((result,)))
        case _:
            return set()


def pattern_variables(terms: Iterable[p.Term]) -> Iterator[str]:
    """Yield the variables that matching the terms against values binds."""
    for term in terms:
        match term:
            case p.Var(name):
                yield name
            case p.MakeRecord(args):
                yield from pattern_variables(args)


def term_variables(terms: Iterable[p.Term]) -> Iterator[str]:
    """Yield all variables of the terms."""
    return (name for name, _ in typed_variables(terms))


def typed_variables(terms: Iterable[p.Term]) -> Iterator[tuple[str, Type]]:
    """Yield all variables of the terms, with their types."""
    for term in terms:
        match term:
            case p.Var(name, type_):
                yield name, type_
            case p.MakeRecord(args) | p.Apply(_, args):
                yield from typed_variables(args)


def literal_variables(literal: p.Literal) -> Iterator[str]:
    """Yield the variables of a literal; of an aggregate, its result and what it groups by."""
    yield from term_variables(terms_of(literal))
    if isinstance(literal, p.Reduce):
        yield from literal.group


def terms_of(literal: p.Literal) -> tuple[p.Term, ...]:
    """Return the terms of a literal; of an aggregate, only its result."""
    match literal:
        case p.Atom(args=args) | p.Test(args=args):
            return args
        case p.Compare(_, left, right):
            return (left, right)
        case p.Generate(target, args):
            return (target, *args)
        case p.Reduce(result):
            return (result,)


def user_functions(program: p.Program) -> Iterator[str]:
    """Yield the names of the functions from Python that a program calls."""
    pruned = (x for x in program.pruned.values() if isinstance(x, p.Subsumption))
    for rule in (*program.rules, *(rule for found in pruned for rule in found.rules)):
        yield from _functions((*rule.head.args, *_all_terms(rule.body)))


def _all_terms(body: Iterable[p.Literal]) -> Iterator[p.Term]:
    for literal in body:
        yield from terms_of(literal)
        if isinstance(literal, p.Reduce):
            yield from _all_terms(literal.body)
            if literal.target is not None:
                yield literal.target


def _functions(terms: Iterable[p.Term]) -> Iterator[str]:
    for term in terms:
        if isinstance(term, p.Apply | p.MakeRecord):
            yield from _functions(term.args)
        if isinstance(term, p.Apply) and isinstance(term.op, UserFunction):
            yield str(term.op)
