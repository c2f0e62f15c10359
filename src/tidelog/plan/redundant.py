"""What the body of a rule with aggregates says that nothing needs.

Two simplifications, both made before the rule is lowered.

1. An atom that only says that a group has rows. In

       total(g, s) :- sale(g, _), s = sum x : { sale(g, x) }.

   the aggregate has a result for exactly the groups that have rows, so `sale(g, _)` adds nothing.
   It would be joined whenever a sum changes, with as many rows as the group has. And since the rule
   reads no empty group, the aggregate needs no neutral element (`without_redundant_atoms`).

2. A column that nothing else in the rule uses. In

       q(n, s) :- bought(n, _, y), s = setof c : { bought(n, c, y) }.

   the first atom only says which groups there are. Joined as it stands, it would find the row of a
   group once for each of the group's rows, and a changed value would cost as much as its group is
   large. So the atom reads a projection without the unused columns instead, which is maintained by
   counting (`without_unused_columns`).

In a rule without aggregates neither pays: there a join enumerates the rows in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set

from tidelog.logic import program as p
from tidelog.logic.variables import literal_variables, term_variables

Projection = Callable[[str, tuple[int, ...]], str]
"""From a relation and some of its columns to the relation that has only these."""


def holds_iff_group_has_rows(atom: p.Literal, reduce: p.Reduce) -> bool:
    """Return whether an atom holds exactly when the group of an aggregate has rows.

    The body of the aggregate must be one atom of the same relation. Both atoms have the variables
    of the group in the same columns, and any value in all others.
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


def without_redundant_atoms(body: tuple[p.Literal, ...]) -> tuple[p.Literal, ...]:
    """Return a body without the atoms that are implied by one of its aggregates."""
    aggregates = [literal for literal in body if isinstance(literal, p.Reduce)]
    return tuple(
        literal
        for literal in body
        if not any(holds_iff_group_has_rows(literal, aggregate) for aggregate in aggregates)
    )


def without_unused_columns(
    body: tuple[p.Literal, ...],
    head: tuple[p.Term, ...],
    recursive: Set[str],
    projection: Projection,
) -> tuple[p.Literal, ...]:
    """Return the body of a rule with aggregates without the columns that nothing else uses.

    A rule that reads its own recursion is returned unchanged: a projection would be one more
    relation of the recursion.
    """
    atoms = [literal for literal in body if isinstance(literal, p.Atom)]
    if any(atom.relation in recursive for atom in atoms):
        return body
    needed = without_redundant_atoms(body)  # the other atoms are removed later
    used = Counter(name for literal in body for name in literal_variables(literal))
    used.update(term_variables(head))

    def projected(literal: p.Literal) -> p.Literal:
        if not isinstance(literal, p.Atom) or literal.negated or literal not in needed:
            return literal
        columns = tuple(i for i, arg in enumerate(literal.args) if not _is_unused(arg, used))
        if len(columns) == len(literal.args):
            return literal
        args = tuple(literal.args[i] for i in columns)
        return p.Atom(projection(literal.relation, columns), args, literal.span)

    return tuple(map(projected, body))


def _is_unused(arg: p.Term, used: Counter[str]) -> bool:
    return isinstance(arg, p.Wildcard) or (isinstance(arg, p.Var) and used[arg.name] == 1)
