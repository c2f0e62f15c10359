"""Atoms that an aggregate of the same body makes needless.

    total(g, s) :- sale(g, _), s = sum x : { sale(g, x) }.

asks for the groups that have rows, and the aggregate has a result for exactly these. So the first
atom says nothing new: it would only be joined, with as many rows as the group has, whenever the sum
changes. And as no empty group is asked for, the aggregate needs no neutral element.
"""

from __future__ import annotations

from tidelog.logic import program as p


def says_it_has_rows(atom: p.Literal, reduce: p.Reduce) -> bool:
    """Return whether an atom holds exactly when the group of an aggregate has rows.

    The aggregate is over one atom of the same relation. Where that one has a variable of the group
    the other has the same; all other columns are free in both.
    """
    if not isinstance(atom, p.Atom) or atom.negated or len(reduce.body) != 1:
        return False
    (inner,) = reduce.body
    if not isinstance(inner, p.Atom) or inner.negated or inner.relation != atom.relation:
        return False
    met: set[str] = set()
    for outer_arg, inner_arg in zip(atom.args, inner.args, strict=True):
        match outer_arg, inner_arg:
            case p.Var(name), p.Var(inner_name):
                if name != inner_name or name not in reduce.group:
                    return False
                met.add(name)
            case p.Wildcard(), p.Wildcard():
                pass
            case p.Wildcard(), p.Var(name):
                if name in reduce.group or name in met:
                    return False
                met.add(name)
            case _:
                return False
    return met.issuperset(reduce.group)


def without_implied(body: tuple[p.Literal, ...]) -> tuple[p.Literal, ...]:
    """Return a body without the atoms that its aggregates make needless."""
    aggregates = [literal for literal in body if isinstance(literal, p.Reduce)]
    return tuple(
        literal
        for literal in body
        if not any(says_it_has_rows(literal, aggregate) for aggregate in aggregates)
    )
