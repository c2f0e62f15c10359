"""Which relations can gain rows, and which can lose some, given what is inserted and deleted.

A positive atom passes the sign of a change on, a negated one reverses it. An aggregate replaces the
row of a group, so any change below it gives both signs. This is the dependency graph analysis of
the EPF paper (section 4): a removal is possible only along a path that allows it.

    reach(x, y) :- road(x, y).                 insertions of roads only insert
    stuck(x) :- town(x), !road(x, _).          insertions of roads only delete
    n = count : { road(_, _) }                 insertions of roads do both
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from tidelog.logic.program import Atom, Literal, Program, Reduce, Rule, Stratum, Subsumption


class Signs(enum.Flag):
    """What can happen to the rows of a relation."""

    NONE = 0
    PLUS = 1
    """Rows can be inserted."""
    MINUS = 2
    """Rows can be deleted."""
    BOTH = 3

    @staticmethod
    def of(*, inserted: bool, deleted: bool) -> Signs:
        """Return the signs of a change."""
        return (Signs.PLUS if inserted else Signs.NONE) | (Signs.MINUS if deleted else Signs.NONE)

    @property
    def reversed(self) -> Signs:
        """The signs for a negated atom.

        >>> Signs.PLUS.reversed is Signs.MINUS, Signs.BOTH.reversed is Signs.BOTH
        (True, True)
        """
        return _REVERSED[self]


_REVERSED = {
    Signs.NONE: Signs.NONE,
    Signs.PLUS: Signs.MINUS,
    Signs.MINUS: Signs.PLUS,
    Signs.BOTH: Signs.BOTH,
}


def signs(program: Program, given: Mapping[str, Signs]) -> dict[str, Signs]:
    """Return what can happen to each relation, if this happens to the given rows."""
    found = {name: given.get(name, Signs.NONE) for name in program.relations}
    for name in program.retained:
        if found[name] & Signs.PLUS:  # a newer row makes others too old
            found[name] |= Signs.MINUS
    for name in program.pruned:
        found[name] = Signs.BOTH if found[name] else Signs.NONE
    for stratum in program.strata:
        changing = True
        while changing:
            changing = False
            for rule in (*stratum.rules, *_comparing(program, stratum)):
                head = rule.head.relation
                more = found[head] | _of_body(rule.body, found)
                if more and head in program.pruned:  # a candidate can replace others
                    more = Signs.BOTH
                changing |= more != found[head] and stratum.recursive
                found[head] = more
    return found


def _comparing(program: Program, stratum: Stratum) -> Iterator[Rule]:
    """Yield the rules that say which rows of a stratum are left out."""
    for name in stratum.relations:
        kept = program.pruned.get(name)
        if isinstance(kept, Subsumption):
            yield from kept.rules


def signs_of_insertions(program: Program) -> dict[str, Signs]:
    """Return what can happen to each relation, if given rows are only inserted."""
    return signs(program, dict.fromkeys(program.relations, Signs.PLUS))


def _of_body(body: tuple[Literal, ...], found: Mapping[str, Signs]) -> Signs:
    result = Signs.NONE
    for literal in body:
        match literal:
            case Atom(relation, negated=negated):
                result |= found[relation].reversed if negated else found[relation]
            case Reduce(body=inner):
                result |= Signs.BOTH if _of_body(inner, found) else Signs.NONE
    return result
