"""Which relations depend on which, and in what order they can be computed.

The dependency graph has an edge from each relation of a rule's body to its head; the edge is
*negative* where the head needs the complete relation: under negation or inside an aggregate. Its
strongly connected components are the strata. A negative edge inside a component means that a
relation needs its own complement: the program is refused, with the cycle shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.program import Atom, Literal, Reduce, Relation, Rule, Stratum
from tidelog.source import Span


@dataclass(frozen=True)
class _Need:
    """Why a rule's head needs a relation: `how` is "", "the absence of " or "an aggregate of "."""

    relation: str
    how: str
    span: Span


def dependencies(body: tuple[Literal, ...], how: str = "") -> Iterator[_Need]:
    """Yield each relation that a body reads, and how."""
    for literal in body:
        if isinstance(literal, Atom):
            yield _Need(literal.relation, how or "the absence of " * literal.negated, literal.span)
        elif isinstance(literal, Reduce):
            yield from dependencies(literal.body, how="an aggregate of ")


def dependency_graph(relations: Mapping[str, Relation], rules: tuple[Rule, ...]) -> nx.DiGraph[str]:
    """Return the signed dependency graph.

    Edge attribute `need` says where the edge comes from; `negative` holds a Span or None.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(relations)
    for rule in rules:
        head = rule.head.relation
        for need in dependencies(rule.body):
            if not graph.has_edge(need.relation, head):
                graph.add_edge(need.relation, head, negative=None, need=need)
            if need.how and graph.edges[need.relation, head]["negative"] is None:
                graph.edges[need.relation, head].update(negative=need.span, need=need)
    return graph


def stratify(
    relations: Mapping[str, Relation], rules: tuple[Rule, ...], diagnostics: Diagnostics
) -> tuple[Stratum, ...]:
    """Return the strata, lower ones first; report cycles through negation or aggregation."""
    graph = dependency_graph(relations, rules)
    order = {name: i for i, name in enumerate(relations)}
    condensed = nx.condensation(graph)
    strata: list[Stratum] = []
    # Among the possible orders take the one closest to the program's text.
    first = {n: min(order[m] for m in condensed.nodes[n]["members"]) for n in condensed}
    for component in nx.lexicographical_topological_sort(condensed, key=first.__getitem__):
        members = sorted(condensed.nodes[component]["members"], key=order.__getitem__)
        inside = set(members)
        recursive = any(graph.has_edge(a, b) for a in members for b in members)
        if recursive:
            _check_negation(graph.subgraph(inside), diagnostics)
        strata.append(
            Stratum(
                len(strata),
                tuple(members),
                tuple(rule for rule in rules if rule.head.relation in inside),
                recursive,
            )
        )
    return tuple(strata)


def _check_negation(component: nx.DiGraph[str], diagnostics: Diagnostics) -> None:
    """Report the first edge of the component, in order of the text, that closes a bad cycle."""
    bad = [(a, b, span) for a, b, span in component.edges(data="negative") if span is not None]
    if not bad:
        return
    source, target, span = min(bad, key=lambda edge: (edge[2].line, edge[2].column))
    cycle = [source, *nx.shortest_path(component, target, source)]
    # Edges point from what is needed to the head; people read rules from the head.
    needs = [(b, component.edges[a, b]["need"]) for a, b in pairwise(cycle)]
    ordered = [needs[0], *reversed(needs[1:])]
    steps = [
        f"`{head}` needs {need.how}`{need.relation}` (line {need.span.line})"
        for head, need in ordered
    ]
    what = "a negation" if needs[0][1].how.startswith("the absence") else "an aggregate"
    hint = (
        f"`{source}` must be complete before `{target}` can use it so, but it depends on `{target}`"
    )
    if source == target:
        hint = (
            f"`{source}` would have to be complete before it is derived: use another relation here"
        )
    diagnostics.error(
        "not-stratified", f"{what} inside a recursion: {', '.join(steps)}", span, hint
    )
