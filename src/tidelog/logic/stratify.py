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
from typing import TYPE_CHECKING

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.graph import components
from tidelog.logic.program import Atom, Literal, Reduce, Relation, Rule, Stratum
from tidelog.source import Span

if TYPE_CHECKING:
    import networkx as nx


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
    import networkx as nx

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
    needs: dict[str, dict[str, bool]] = {name: {} for name in relations}
    rules_of: dict[str, list[Rule]] = {name: [] for name in relations}
    for rule in rules:
        head = rule.head.relation
        rules_of[head].append(rule)
        for need in dependencies(rule.body):
            needs[head][need.relation] = needs[head].get(need.relation, False) or bool(need.how)
    strata: list[Stratum] = []
    for members in components(needs):
        inside = set(members)
        edges = [negative for a in members for b, negative in needs[a].items() if b in inside]
        own = sorted((r for name in members for r in rules_of[name]), key=lambda rule: rule.id)
        if any(edges):
            graph = dependency_graph(relations, rules)
            _report_cycle(graph.subgraph(inside), diagnostics)
        strata.append(Stratum(len(strata), members, tuple(own), bool(edges)))
    return tuple(strata)


def _report_cycle(component: nx.DiGraph[str], diagnostics: Diagnostics) -> None:
    """Report the first edge of the component, in order of the text, that closes a bad cycle."""
    import networkx as nx

    bad = [(a, b, span) for a, b, span in component.edges(data="negative") if span is not None]
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
