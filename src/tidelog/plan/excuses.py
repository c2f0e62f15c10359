"""Which literals of a rule can excuse the failure of an aggregate.

A failure is an error exactly when all other conditions of the rule hold, leaving out those that
depend on the missing value (docs/decisions/0001). So a literal can excuse a failure if it does not
depend on the value, and may be false although the group has rows:

    p(g, s) :- t(g, _), q(g), s = sum x : { t(g, x) }, s > 2.

    t(g, _)   cannot: it holds in every group in which the sum can fail
    q(g)      can: where it is false, the failure is not an error
    s > 2     cannot: it depends on the missing value

If nothing can excuse a failure, it is an error at once, and plan/failure_rules.py adds no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog.logic import program as p
from tidelog.logic.variables import literal_variables, newly_bound, term_variables
from tidelog.plan.aggregates import NEUTRAL
from tidelog.plan.redundant import holds_iff_group_has_rows

Family = tuple[p.Reduce, ...]
"""Aggregates that share one relation (plan/siblings.py); most families have one member."""


def is_used(reduce: p.Reduce, body: Iterable[p.Literal]) -> bool:
    """Return whether another literal of a body depends on the result of an aggregate."""
    if not isinstance(reduce.result, p.Var):
        return True
    name = reduce.result.name
    return any(literal is not reduce and name in literal_variables(literal) for literal in body)


def matters_without(reduce: p.Reduce, failed: p.Reduce, body: Sequence[p.Literal]) -> bool:
    """Return whether something depends on an aggregate even if another one has failed."""
    return is_used(reduce, [literal for literal, _ in independent_literals(body, {id(failed)})])


def excuses(
    body: Sequence[p.Literal], family: Family, failed: Collection[p.Reduce]
) -> list[p.Literal]:
    """Return the literals of a body that may be false if members of a family have failed."""
    unvalued = {id(part) for part in failed}
    reached = independent_literals(body, unvalued)
    literals = [literal for literal, _ in reached]

    def can_excuse(literal: p.Literal, new: set[str]) -> bool:
        if id(literal) in unvalued:
            return False
        match literal:
            case p.Reduce(result) if isinstance(result, p.Var) and result.name in new:
                if any(literal is part for part in family):
                    return False
                has_value = literal.op in NEUTRAL or any(_has_same_rows(f, literal) for f in family)
                return not has_value or is_used(literal, literals)
            case p.Atom():
                return not is_implied(literal, family, body)
            case _:
                return True

    return [literal for literal, new in reached if can_excuse(literal, new)]


def is_implied(atom: p.Atom, family: Family, body: Sequence[p.Literal]) -> bool:
    """Return whether an atom only says that a group of these aggregates has rows."""
    return any(
        holds_iff_group_has_rows(atom, other)
        and any(other is part or _has_same_rows(part, other) for part in family)
        for other in body
        if isinstance(other, p.Reduce)
    )


def _has_same_rows(one: p.Reduce, other: p.Reduce) -> bool:
    """Return whether two aggregates are known to have rows in the same groups."""
    if (one.body, set(one.group)) == (other.body, set(other.group)):
        return True
    match one.body:
        case [p.Atom(args=args, negated=False) as atom]:
            terms = tuple(
                p.Wildcard(arg.type) if isinstance(arg, p.Var) and arg.name in one.local else arg
                for arg in args
            )
            outer = replace(atom, args=terms)
            return holds_iff_group_has_rows(outer, one) and holds_iff_group_has_rows(outer, other)
    return False


def independent_literals(
    body: Sequence[p.Literal], unvalued: Collection[int]
) -> list[tuple[p.Literal, set[str]]]:
    """Return the literals that do not depend on the aggregates without a value, given by `id`.

    And the variables that each of them binds.
    """
    unknown: set[str] = set()
    reached = []
    for literal, new in binding_order(body):
        if not unknown.isdisjoint(literal_variables(literal)):
            unknown |= new
            continue
        reached.append((literal, new))
        if id(literal) in unvalued:
            unknown |= new
    return reached


def binding_order(body: Sequence[p.Literal]) -> Iterator[tuple[p.Literal, set[str]]]:
    """Yield the literals of a body, positive atoms first, with the variables that each binds.

    The order matters in one case: a variable that several literals can bind has a value if the
    first of these has one. Atoms always have.
    """
    bound: set[str] = set()
    waiting = list(body)
    while waiting:
        number = min(range(len(waiting)), key=lambda i: _rank(waiting[i], bound))
        literal = waiting.pop(number)
        new = newly_bound(literal, bound) - bound
        bound |= new
        yield literal, new


def _rank(literal: p.Literal, bound: set[str]) -> int:
    """Return the rank: atoms, conditions, those that bind variables, ranges, then aggregates."""
    used = set(literal_variables(literal))
    later = 9
    match literal:
        case p.Atom(negated=False):
            return 0
        case p.Reduce(group=group):
            return 4 if bound.issuperset(group) else later
        case p.Generate(_, args):
            return 3 if bound.issuperset(term_variables(args)) else later
        case p.Compare(p.Comparison.EQ) if not used <= bound:
            new = newly_bound(literal, bound)
            return 2 if new and used - new <= bound else later
        case _:
            return 1 if used <= bound else later
