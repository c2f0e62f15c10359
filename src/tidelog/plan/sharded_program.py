"""The program of a shard: one relation for each version, and rules between versions.

    reach(x, y) :- edge(x, y).                  reach by 0, from edge by 0
    reach(x, z) :- reach(x, y), edge(y, z).     reach by 0, from reach by 0 and edge in all shards

    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge@by_all(y, z).

The version that a view shows has the relation's name; the others have names with `@`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic import program as p
from tidelog.logic.stratify import stratify
from tidelog.plan.sharding import Sharding, Version
from tidelog.values.types import Row

IsHere = Callable[[Version, Row], bool]
"""Whether a row that the program states belongs to the shard."""


def sharded_program(program: p.Program, sharding: Sharding, is_here: IsHere) -> p.Program:
    """Return the program of one shard."""
    relations = {}
    for name, relation in program.relations.items():
        for version in sharding.versions_of(name):
            called = sharding.name_of(version)
            relations[called] = replace(relation, name=called)
    rules: list[p.Rule] = []
    for version in sharding.versions:
        for rule in program.rules:
            if rule.head.relation != version.relation:
                continue
            reads = iter(sharding.rules[version, rule.id])
            head = replace(rule.head, relation=sharding.name_of(version))
            body = _renamed(rule.body, reads, sharding)
            rules.append(replace(rule, id=len(rules), head=head, body=body))
    facts = tuple(
        replace(fact, relation=sharding.name_of(version))
        for fact in program.facts
        for version in sharding.versions_of(fact.relation)
        if is_here(version, fact.row)
    )
    strata = stratify(relations, tuple(rules), Diagnostics())
    return replace(
        program, relations=relations, facts=facts, rules=tuple(rules), strata=strata,
        directives=(), views={}, notes=(),
    )  # fmt: skip


def _renamed(
    body: tuple[p.Literal, ...], reads: Iterator[Version], sharding: Sharding
) -> tuple[p.Literal, ...]:
    renamed: list[p.Literal] = []
    for literal in body:
        match literal:
            case p.Atom():
                renamed.append(replace(literal, relation=sharding.name_of(next(reads))))
            case p.Reduce(body=inner):
                renamed.append(replace(literal, body=_renamed(inner, reads, sharding)))
            case _:
                renamed.append(literal)
    return tuple(renamed)
