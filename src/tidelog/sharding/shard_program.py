"""The program of a shard: one relation for each variant, and rules between variants.

    reach(x, y) :- edge(x, y).                  reach by 0, from edge by 0
    reach(x, z) :- reach(x, y), edge(y, z).     reach by 0, from reach by 0 and edge in all shards

    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge@by_all(y, z).

The variant that a view shows keeps the relation's name; the others have names with `@`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic import program as p
from tidelog.logic.stratify import stratify
from tidelog.sharding.sharding import Sharding, Variant
from tidelog.values.types import Row

IsHere = Callable[[Variant, Row], bool]
"""Whether a program fact belongs to the shard."""


def sharded_program(program: p.Program, sharding: Sharding, is_here: IsHere) -> p.Program:
    """Return the program of one shard."""
    relations = {}
    for name, relation in program.relations.items():
        for variant in sharding.variants_of(name):
            called = sharding.name_of(variant)
            relations[called] = replace(relation, name=called)
    rules: list[p.Rule] = []
    for variant in sharding.variants:
        for rule in program.rules:
            if rule.head.relation != variant.relation:
                continue
            reads = iter(sharding.rules[variant, rule.id])
            head = replace(rule.head, relation=sharding.name_of(variant))
            body = _renamed(rule.body, reads, sharding)
            rules.append(replace(rule, id=len(rules), head=head, body=body))
    facts = tuple(
        replace(fact, relation=sharding.name_of(variant))
        for fact in program.facts
        for variant in sharding.variants_of(fact.relation)
        if is_here(variant, fact.row)
    )
    views = {
        sharding.name_of(variant): replace(view, relation=sharding.name_of(variant))
        for view in program.views.values()
        for variant in sharding.variants_of(view.relation)
    }
    strata = stratify(relations, tuple(rules), Diagnostics())
    return replace(
        program, relations=relations, facts=facts, rules=tuple(rules), strata=strata,
        directives=(), views=views, notes=(), retained={},
    )  # fmt: skip


def _renamed(
    body: tuple[p.Literal, ...], reads: Iterator[Variant], sharding: Sharding
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
