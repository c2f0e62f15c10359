"""Which variables belong to a rule, and which to an aggregate inside it.

If a variable of an aggregate's body also occurs outside the aggregate, it is the outer variable:
the aggregate is computed for each of its values (grouping by outer variables). All others are the
aggregate's own, even if another aggregate of the rule uses the same name. So are those in the
target: in `p(x, z), s = sum z : { p(x, z) }` the two z are different variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.lang import syntax as s
from tidelog.lang.syntax import variables
from tidelog.logic.cells import Cell
from tidelog.logic.normalise import (
    AggregateLiteral,
    AtomLiteral,
    Clause,
    CompareLiteral,
    PlainLiteral,
    RangeLiteral,
    TestLiteral,
)


class Scope:
    """The variables of a rule or of one aggregate body, and their types."""

    def __init__(
        self, names: Iterable[str], parent: Scope | None = None, always_own: Iterable[str] = ()
    ) -> None:
        names = list(dict.fromkeys(names))
        self._parent = parent
        outer = set() if parent is None else parent.visible() - set(always_own)
        self.own = tuple(name for name in names if name not in outer)
        self.shared = tuple(name for name in names if name in outer)
        self.cells: dict[str, Cell] = {}

    def visible(self) -> set[str]:
        """Return the names of this scope and of those around it."""
        return set(self.own) | (self._parent.visible() if self._parent is not None else set())

    def owner(self, name: str) -> Scope:
        """Return the scope that the variable belongs to."""
        if name in self.own or self._parent is None:
            return self
        return self._parent.owner(name)


def scope_of_clause(clause: Clause) -> Scope:
    """Return the scope of the rule's own variables, those outside of aggregates."""
    names = [name for literal in clause.body for name in _names(literal)]
    names += [name for arg in clause.head.args for name in variables(arg)]
    return Scope(names)


def scope_of_body(aggregate: AggregateLiteral, parent: Scope) -> Scope:
    """Return the scope inside an aggregate. Nested aggregates group by its variables, too."""
    names = [name for literal in aggregate.body for name in _names(literal)]
    if aggregate.target is not None:
        names += variables(aggregate.target)
    shared_deeper = [
        name
        for literal in aggregate.body
        if isinstance(literal, AggregateLiteral)
        for name in _all_names(literal)
        if name in parent.visible()
    ]
    return Scope([*names, *shared_deeper], parent, aggregate.target_names)


def _names(literal: PlainLiteral) -> Iterator[str]:
    """Yield the variables of a literal, without those inside an aggregate's braces."""
    for term in literal_terms(literal):
        yield from variables(term)


def literal_terms(literal: PlainLiteral) -> tuple[s.Term, ...]:
    """Return the terms of a literal, without those inside an aggregate's braces."""
    match literal:
        case AtomLiteral(atom):
            return atom.args
        case CompareLiteral(_, left, right):
            return (left, right)
        case TestLiteral(_, args):
            return args
        case RangeLiteral(result, args):
            return (result, *args)
        case AggregateLiteral(result):
            return (result,)


def _all_names(aggregate: AggregateLiteral) -> Iterator[str]:
    for literal in aggregate.body:
        yield from _names(literal)
        if isinstance(literal, AggregateLiteral):
            yield from _all_names(literal)
    if aggregate.target is not None:
        yield from variables(aggregate.target)
