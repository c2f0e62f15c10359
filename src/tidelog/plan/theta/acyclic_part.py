"""The largest acyclic part of a cyclic query: a join tree, and the predicates that it leaves out.

The rows of the tree are a superset of those of the query. The predicates that are left out filter
them during enumeration, so their variables belong to the output of the tree:

    r(x), s(y), t(z), x < y, y < z, z <= x + 3600.        cyclic through all three

    r(x), s(y), t(z), x < y, y < z                        acyclic
    z <= x + 3600                                         a filter of its rows

Only predicates of the residue can be left out to any purpose: the reduction removes all others,
with or without them. If the variables that atoms share are cyclic in themselves, as in a triangle,
there is no such part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

from tidelog.plan.theta.join_tree import JoinShape, analyse_joins
from tidelog.plan.theta.query import ThetaQuery
from tidelog.plan.theta.triplet import ThetaPredicate

_MOST_TRIED = 2_000  # sets of one size; if there are more, predicates are left out one by one


@dataclass(frozen=True)
class AcyclicPart:
    """A join tree for a query without some of its predicates."""

    shape: JoinShape
    """Of the query without `filters`, whose variables are output in addition."""
    filters: tuple[ThetaPredicate, ...]
    """What the rows of the tree are tested by; nothing if the query is acyclic."""


def largest_acyclic_part(query: ThetaQuery) -> AcyclicPart | None:
    """Return an acyclic query that lacks as few predicates as possible; None if there is none.

    Of several, the one that has to enumerate the fewest variables, then the one that keeps the
    predicates that stand first. With very many predicates the number may not be the smallest.
    """
    shape = analyse_joins(query)
    left_out: tuple[ThetaPredicate, ...] = ()
    while not shape.is_acyclic:
        found = _smallest(query, left_out, shape.cyclic_predicates)
        if found is not None:
            return found
        if not shape.cyclic_predicates:
            return None
        left_out += shape.cyclic_predicates[-1:]
        shape = _without(query, left_out).shape
    return _without(query, left_out)


def _smallest(
    query: ThetaQuery, left_out: tuple[ThetaPredicate, ...], cyclic: tuple[ThetaPredicate, ...]
) -> AcyclicPart | None:
    """Return the best part that leaves out the fewest of the cyclic predicates, in addition."""
    for size in range(1, len(cyclic) + 1):
        if comb(len(cyclic), size) > _MOST_TRIED:
            return None
        sets = combinations(reversed(cyclic), size)
        parts = list(_acyclic(_without(query, left_out + more) for more in sets))
        if parts:
            return min(parts, key=lambda part: len(part.shape.frontier))
    return None


def _acyclic(parts: Iterable[AcyclicPart]) -> Iterator[AcyclicPart]:
    return (part for part in parts if part.shape.is_acyclic)


def _without(query: ThetaQuery, left_out: tuple[ThetaPredicate, ...]) -> AcyclicPart:
    read = frozenset().union(*(predicate.variables for predicate in left_out))
    kept = tuple(predicate for predicate in query.predicates if predicate not in left_out)
    part = replace(query, output=query.output | read, predicates=kept)
    filters = tuple(sorted(left_out, key=lambda predicate: predicate.number))
    return AcyclicPart(analyse_joins(part), filters)
