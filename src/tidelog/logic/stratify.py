"""Which relations depend on which, and in what order they can be computed.

The dependency graph has an edge from each relation of a rule's body to its head. The edge is
*negative* if the head needs the complete relation: under negation or inside an aggregate. The
strongly connected components are the strata. A negative edge inside a component means that a
relation depends on its own completeness. Such a program is refused, and the message shows the
cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.graph import components, shortest_path
from tidelog.logic.program import (
    Atom,
    ChoiceDomain,
    Literal,
    Reduce,
    Relation,
    Rule,
    Stratum,
    Subsumption,
)
from tidelog.source import Span

_KINDS = {
    "the absence": "a negation",
    "an aggregate": "an aggregate",
    "rows compared": "a subsumption",
}


@dataclass(frozen=True)
class _Need:
    """Why a rule's head needs a relation: `how` is "", "the absence of ", "an aggregate of ", .."""

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


def stratify(
    relations: Mapping[str, Relation],
    rules: tuple[Rule, ...],
    diagnostics: Diagnostics,
    pruned: Mapping[str, ChoiceDomain | Subsumption] = MappingProxyType({}),
) -> tuple[Stratum, ...]:
    """Return the strata, lower ones first; report cycles through negation or aggregation."""
    needs: dict[str, dict[str, bool]] = {name: {} for name in relations}
    rules_of: dict[str, list[Rule]] = {name: [] for name in relations}
    for rule in rules:
        head = rule.head.relation
        rules_of[head].append(rule)
        for need in dependencies(rule.body):
            needs[head][need.relation] = needs[head].get(need.relation, False) or bool(need.how)
    subsumptions = [
        rule for kept in pruned.values() if isinstance(kept, Subsumption) for rule in kept.rules
    ]
    for rule in subsumptions:
        needs[rule.head.relation].update({need.relation: True for need in _conditions(rule)})
    strata: list[Stratum] = []
    for members in components(needs):
        inside = set(members)
        edges = [negative for a in members for b, negative in needs[a].items() if b in inside]
        own = sorted((r for name in members for r in rules_of[name]), key=lambda rule: rule.id)
        if any(edges):
            _report_cycle(inside, own, subsumptions, diagnostics)
        strata.append(Stratum(len(strata), members, tuple(own), bool(edges)))
    return tuple(strata)


def _conditions(rule: Rule) -> Iterator[_Need]:
    """Yield each relation that a subsumption reads to compare two rows, as if it was negated."""
    for need in dependencies(rule.body[2:]):
        yield replace(need, how="rows compared by ")


def _report_cycle(
    inside: set[str], rules: list[Rule], subsumptions: list[Rule], diagnostics: Diagnostics
) -> None:
    """Report the first edge of a component, in order of the text, that closes a bad cycle."""
    edges: dict[tuple[str, str], _Need] = {}  # a negative need hides others of the same edge
    heads: dict[str, list[str]] = {name: [] for name in inside}
    compared = [(rule.head.relation, _conditions(rule)) for rule in subsumptions]
    derived = [(rule.head.relation, dependencies(rule.body)) for rule in rules]
    for head, read in (*derived, *compared):
        for need in read:
            if need.relation in inside and head in inside:
                held = edges.setdefault((need.relation, head), need)
                if need.how and not held.how:
                    edges[need.relation, head] = need
                if head not in heads[need.relation]:
                    heads[need.relation].append(head)
    bad = [(a, b, need.span) for (a, b), need in edges.items() if need.how]
    source, target, span = min(bad, key=lambda edge: (edge[2].line, edge[2].column))
    cycle = [source, *shortest_path(heads, target, source)]
    # Edges point from what is needed to the head; people read rules from the head.
    needs = [(b, edges[a, b]) for a, b in pairwise(cycle)]
    ordered = [needs[0], *reversed(needs[1:])]
    steps = [
        f"`{head}` needs {need.how}`{need.relation}` (line {need.span.line})"
        for head, need in ordered
    ]
    what = next(what for how, what in _KINDS.items() if needs[0][1].how.startswith(how))
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
