"""What the body of a rule outside of its aggregates contributes: rows once, however often found.

In

    q(n, s) :- bought(n, _, y), s = setof c : { bought(n, c, y) }.

the first atom only says which groups there are. Joined as it stands, it would find the row of a
group once for each row of `bought` in it, and a change of the group's value would cost as much as
the group is large. So what an atom says beside what the rule asks is left out: it is replaced by
the projection that has the other columns, kept by counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set

from tidelog.logic import program as p
from tidelog.logic.safety import literal_variables, term_variables
from tidelog.plan.implied import without_implied

Projection = Callable[[str, tuple[int, ...]], str]
"""From a relation and some of its columns to the relation that has only these."""


def without_unasked(
    body: tuple[p.Literal, ...],
    head: tuple[p.Term, ...],
    recursive: Set[str],
    projection: Projection,
) -> tuple[p.Literal, ...]:
    """Return the body of a rule with aggregates without the columns that nothing else asks for.

    Within a recursion nothing is replaced: a projection would be one more relation of it.
    """
    atoms = [literal for literal in body if isinstance(literal, p.Atom)]
    if any(atom.relation in recursive for atom in atoms):
        return body
    needed = without_implied(body)  # the others are left out altogether
    used = Counter(name for literal in body for name in literal_variables(literal))
    used.update(term_variables(head))

    def projected(literal: p.Literal) -> p.Literal:
        if not isinstance(literal, p.Atom) or literal.negated or literal not in needed:
            return literal
        columns = tuple(i for i, arg in enumerate(literal.args) if not _unasked(arg, used))
        if len(columns) == len(literal.args):
            return literal
        args = tuple(literal.args[i] for i in columns)
        return p.Atom(projection(literal.relation, columns), args, literal.span)

    return tuple(map(projected, body))


def _unasked(arg: p.Term, used: Counter[str]) -> bool:
    return isinstance(arg, p.Wildcard) or (isinstance(arg, p.Var) and used[arg.name] == 1)
