"""A program as stages: what each shard computes by itself, and what is exchanged in between.

In one stage, rows of different shards never meet: the rules of the stage are computed where the
rows of their atoms are. Where that would need a large relation whole in every shard, the program is
*cut* at a derived relation. The stage that derives it is done first. Its net changes are exchanged:
each row goes to the shards that need it in a later stage, for which it is a given row like any
other.

    pays(shop, x) :- ..                           stage 0, located by the customer
    ──────────── exchange of pays ────────────
    best(shop, x) :- pays(shop, x), ..            stage 1, located by the shop

A stage is a program of its own, with its own sharding. An epoch does the stages one after the
other, so each one sees the complete change of all that it reads, and no state in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic import program as p
from tidelog.logic.stratify import dependencies, stratify
from tidelog.sharding.key_relations import is_hidden, owner_of
from tidelog.source import Span
from tidelog.values.types import NUMBER, Field

SENT = "@sent"
_PARTIAL = "@part"
JOIN, GROUPS = "@join", "@groups"
_MADE = {_PARTIAL: "partial results", JOIN: "join", GROUPS: "groups"}
_SHARD = p.Var("$sent by", NUMBER)


def is_partial(relation: str) -> bool:
    """Return whether a relation has partial results of an aggregate, others in each shard."""
    return _PARTIAL in relation and not relation.endswith(SENT)


def shown_name(relation: str) -> str:
    """Return the name of a relation, which splitting may have made, for people."""
    for ending, what in _MADE.items():
        name, found, _ = relation.partition(ending)
        if found:
            received = ", as received" if relation.endswith(SENT) else ""
            return f"{what} of {name}{received}"
    return f"{relation.removesuffix(SENT)}, as received" if relation.endswith(SENT) else relation


def partial_name(relation: str, rule: int, aggregate: int) -> str:
    """Return a name for the partial results of an aggregate in a rule of a relation."""
    return f"{relation}{_PARTIAL}{rule}_{aggregate}"


@dataclass(frozen=True)
class Exchange:
    """The net changes of a relation go from the stage that has it to a later one."""

    relation: str
    source: int
    target: int
    is_counted: bool = False
    """Whether several shards may send a row, which is then received from each of them."""

    @property
    def received(self) -> str:
        """The relation of the later stage that receives the rows."""
        return self.relation + SENT if self.is_counted else self.relation


@dataclass(frozen=True)
class Stages:
    """A program cut into stages."""

    programs: tuple[p.Program, ...]
    home: Mapping[str, int]
    """The stage of each relation, where its rows are given or derived."""
    exchanges: tuple[Exchange, ...]

    def into(self, stage: int) -> Iterator[Exchange]:
        """Yield the exchanges that a stage receives."""
        return (exchange for exchange in self.exchanges if exchange.target == stage)


def cut(program: p.Program, at: Collection[str]) -> Stages:
    """Return the stages of a program that is cut at some derived relations.

    A stratum is in the first stage that follows all cuts that it depends on. What it reads of
    earlier stages is exchanged, too.
    """
    home = _homes(program, at)
    count = max(home.values(), default=0) + 1
    read: dict[tuple[str, int], None] = {}
    for rule in program.rules:
        stage = home[rule.head.relation]
        for need in dependencies(rule.body):
            if home[need.relation] < stage:
                read[need.relation, stage] = None
    exchanges = tuple(Exchange(name, home[name], stage) for name, stage in read)
    programs = tuple(
        _part(program, home, stage, {e.relation for e in exchanges if e.target == stage})
        for stage in range(count)
    )
    return Stages(programs, home, exchanges)


def _homes(program: p.Program, at: Collection[str]) -> dict[str, int]:
    home = dict.fromkeys(program.relations, 0)
    derived = program.derived
    readers: dict[str, list[int]] = {}
    for stratum in program.strata:
        own = [need.relation for rule in stratum.rules for need in dependencies(rule.body)]
        below = [name for name in own if name in derived and name not in stratum.relations]
        stage = max((home[name] + (name in at) for name in below), default=0)
        for name in stratum.relations:
            home[name] = stage
        for name in own:
            readers.setdefault(name, []).append(stage)
    for name in program.relations.keys() - derived:
        # Rows that only later stages read are given there.
        home[name] = min(readers.get(name, [0]))
    for name in filter(is_hidden, program.relations):
        home[name] = home[owner_of(name)]
    return home


def _part(
    program: p.Program, home: Mapping[str, int], stage: int, received: Collection[str]
) -> p.Program:
    own = {name for name in program.relations if home[name] == stage}
    relations = {n: r for n, r in program.relations.items() if n in own or n in received}
    rules = tuple(rule for rule in program.rules if rule.head.relation in own)
    return replace(
        program,
        relations=relations,
        rules=rules,
        facts=tuple(fact for fact in program.facts if fact.relation in own),
        strata=stratify(relations, rules, Diagnostics()),
        directives=(),
        views={name: view for name, view in program.views.items() if name in own},
        retained={name: held for name, held in program.retained.items() if name in own},
        pruned={name: kept for name, kept in program.pruned.items() if name in own},
        notes=(),
    )


def counted(program: p.Program, exchange: Exchange, number: int) -> p.Program:
    """Return the program of a stage for rows that several shards may send.

    Each is received with the number of the shard that sent it. A row is there as long as any shard
    has it; of partial results, every one counts. `number` is that of the rule to add.
    """
    relation = program.relations[exchange.relation]
    columns = (*relation.columns, Field("sent by", NUMBER, "number"))
    received = p.Relation(exchange.received, columns)
    relations = {**program.relations, received.name: received}
    if is_partial(relation.name):
        del relations[relation.name]
        rules = tuple(
            replace(rule, body=tuple(_reading_all(x, exchange) for x in rule.body))
            for rule in program.rules
        )
    else:
        rules = (*program.rules, _union(relation, received, number, program.rules[0].span))
    strata = stratify(relations, rules, Diagnostics())
    return replace(program, relations=relations, rules=rules, strata=strata)


def _reading_all(literal: p.Literal, exchange: Exchange) -> p.Literal:
    """Return an aggregate that reads what all shards have sent; other literals as they are."""
    if not isinstance(literal, p.Reduce):
        return literal
    body = tuple(
        replace(atom, relation=exchange.received, args=(*atom.args, _SHARD))
        if isinstance(atom, p.Atom) and atom.relation == exchange.relation
        else atom
        for atom in literal.body
    )
    more = () if body == literal.body else (_SHARD.name,)
    return replace(literal, body=body, local=(*literal.local, *more))


def _union(relation: p.Relation, received: p.Relation, number: int, span: Span) -> p.Rule:
    terms = tuple(p.Var(f"c{i}", column.type) for i, column in enumerate(relation.columns))
    body = p.Atom(received.name, (*terms, p.Wildcard(NUMBER)), span)
    text = f"{relation.name} is what the shards have sent"
    return p.Rule(number, p.Atom(relation.name, terms, span), (body,), text, span)
