r"""Hypergraph triplets, and the operations that reduce them (section 6.2 of the paper).

A triplet (H, out, preds) has a set of hyperedges, the output variables, and predicates. With

    jv(e)    the variables of e that are output, or occur in another hyperedge
    isol(e)  the variables of e that are neither in jv(e) nor in a predicate
    ext(s)   the variables, outside s, of the predicates that mention a variable of s

a hyperedge e is a *conditional subset* of f if jv(e) is a subset of f, and so is ext(e \ f). There
are three operations:

    ISO  remove isolated variables from a hyperedge
    CSE  remove a conditional subset e of f, and the predicates that mention a variable of e \ f
    FLT  remove the predicates whose variables are all in one hyperedge

Whatever the order of the operations, the result is the same (Proposition 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.plan.body import Condition

Edge: TypeAlias = frozenset[str]


@dataclass(frozen=True)
class ThetaPredicate:
    """A condition between variables. Nothing else is known about it."""

    text: str
    variables: Edge
    number: int
    """Its place in the query, which tells equal texts apart."""
    condition: Condition | None = field(default=None, compare=False, repr=False)
    """The condition of the rule, if the query is one."""


@dataclass(frozen=True)
class Isolate:
    """ISO: remove these variables from a hyperedge."""

    edge: Edge
    variables: Edge


@dataclass(frozen=True)
class Absorb:
    """CSE: remove `edge`, a conditional subset of `into`, and these predicates."""

    edge: Edge
    into: Edge
    predicates: frozenset[ThetaPredicate]


@dataclass(frozen=True)
class DropFilter:
    """FLT: remove predicates whose variables are all in a hyperedge."""

    edge: Edge
    predicates: frozenset[ThetaPredicate]


Operation: TypeAlias = Isolate | Absorb | DropFilter


@dataclass(frozen=True)
class Triplet:
    """Hyperedges, output variables and predicates."""

    edges: frozenset[Edge]
    output: Edge
    predicates: frozenset[ThetaPredicate]

    @property
    def is_empty(self) -> bool:
        """Whether everything has been removed."""
        return not (self.edges or self.output or self.predicates)

    def join_variables(self, edge: Edge) -> Edge:
        """Return jv(e)."""
        others = frozenset().union(*(f for f in self.edges if f != edge))
        return edge & (self.output | others)

    def extended(self, variables: Edge) -> Edge:
        """Return ext(s)."""
        mentioned = (p.variables for p in self.predicates if p.variables & variables)
        return frozenset().union(*mentioned) - variables

    def isolated(self, edge: Edge) -> Edge:
        """Return isol(e)."""
        mentioned = frozenset().union(*(p.variables for p in self.predicates))
        return edge - self.join_variables(edge) - mentioned

    def is_conditional_subset(self, edge: Edge, other: Edge) -> bool:
        """Return whether a hyperedge is a conditional subset of another one."""
        return self.join_variables(edge) <= other and self.extended(edge - other) <= other

    def operations(self) -> Iterator[Operation]:
        """Yield the operations that apply, always in the same order."""
        edges = sorted(self.edges, key=lambda edge: (len(edge), sorted(edge)))
        for edge in edges:
            inside = frozenset(p for p in self.predicates if p.variables <= edge)
            if inside:
                yield DropFilter(edge, inside)
        for edge in edges:
            isolated = self.isolated(edge)
            if isolated:
                yield Isolate(edge, isolated)
        for edge in edges:
            for other in edges:
                if edge != other and self.is_conditional_subset(edge, other):
                    gone = edge - other
                    mentioning = frozenset(p for p in self.predicates if p.variables & gone)
                    yield Absorb(edge, other, mentioning)

    def after(self, operation: Operation) -> Triplet:
        """Return the triplet that an operation makes of this one."""
        match operation:
            case Isolate(edge, variables):
                rest = edge - variables
                edges = (self.edges - {edge}) | ({rest} if rest else set())
                return Triplet(edges, self.output, self.predicates)
            case Absorb(edge, _, predicates):
                return Triplet(self.edges - {edge}, self.output, self.predicates - predicates)
            case DropFilter(_, predicates):
                return Triplet(self.edges, self.output, self.predicates - predicates)

    def residual(self) -> Triplet:
        """Return the triplet without output variables: the second stage begins with it."""
        return Triplet(self.edges, frozenset(), self.predicates)
