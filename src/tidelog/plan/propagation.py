"""Update propagation and filtration, as questions of a demand program (EPF, section 3).

A change of a body relation is *propagated*: joined with the rest of the body, which gives rows of
the head that may have changed. They are an approximation.

    p(x, z) :- q(x, y), !r(y, z).           p@approx(x, z) :- q@changed(x, y), !r(y, z).
                                            p@approx(x, z) :- q(x, y), r@opposite(y, z).

There are tables for each version (maintain/tables.py). In those of the new one, `changed` has
inserted rows and `opposite` deleted ones; in those of the old one it is the other way round. So the
approximation of the new version has what may have been inserted, and that of the old one what may
have been deleted.

Then it is *filtered*: a row that holds in the other version has not changed. That is a question
about the row, with all columns bound.

The groups of an aggregate that may have changed are computed in both versions, and compared.

Rules can change, too. An added rule is evaluated as a whole in the new version, a dropped one in
the old version (section 3.5):

    p@approx(x, z) :- p@rules(), q(x, y), !r(y, z).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.plan.demand import (
    Definition,
    DemandCall,
    DemandProgram,
    DemandRewriting,
    unit_after,
)
from tidelog.plan.lowered import Layer
from tidelog.plan.order import Stats
from tidelog.values.types import Type


@dataclass(frozen=True)
class PropagatedLayer:
    """A layer with the rules that derive its relations in one version."""

    layer: Layer
    kept: tuple[LoweredRule, ...]
    """The rules that both versions have."""
    changed: tuple[LoweredRule, ...] = ()
    """The rules that only this version has: they are evaluated as a whole."""


@dataclass(frozen=True)
class Propagation:
    """The questions of some layers, and how they are asked."""

    program: DemandProgram
    proofs: Mapping[str, DemandCall]
    """For each relation the question whether rows hold."""
    groups: Mapping[str, DemandCall]
    """For each aggregate the question for its groups."""


def approximation(relation: str) -> str:
    """Return the relation of the rows that may have changed."""
    return f"{relation}@approx"


def changed(relation: str, layer: Layer) -> str:
    """Return the relation of the changes that a layer propagates."""
    return f"{relation}@changed:{layer.relations[0]}"


def opposite(relation: str, layer: Layer) -> str:
    """Return the relation of the changes of the other sign, for negated atoms."""
    return f"{relation}@opposite:{layer.relations[0]}"


def rules_changed(layer: Layer) -> str:
    """Return the relation without columns that has the changed rules of a layer evaluated."""
    return f"{layer.relations[0]}@rules"


def propagation(
    layers: Sequence[PropagatedLayer],
    defined: Mapping[str, Definition],
    types: Mapping[str, tuple[Type, ...]],
    stats: Callable[[str], Stats],
) -> Propagation:
    """Return the questions of layers; `defined` are the relations that are not stored.

    A version need not have all relations of the layers: of the others it has no rows.
    """
    rewriting = DemandRewriting(defined, types.__getitem__, stats)

    def add(name: str, relation: str) -> None:
        if not rewriting.has(name):
            columns = range(max(1, len(types[relation])))
            rewriting.add_relation(name, types[relation], tuple((relation, i) for i in columns))

    last = unit_after(defined.values())
    proofs: dict[str, DemandCall] = {}
    groups: dict[str, DemandCall] = {}
    for part in layers:
        layer = part.layer
        if layer.aggregation is not None:
            a = layer.aggregation
            if a.result in types:
                groups[a.result] = rewriting.call(a.result, tuple(range(len(a.group))))
            continue
        for rule in part.changed:
            add(approximation(rule.head.relation), rule.head.relation)
            rewriting.add_relation(rules_changed(layer), (), ())
            head = replace(rule.head, relation=approximation(rule.head.relation))
            rewriting.add_question(replace(rule, head=head), last, rules_changed(layer))
        for rule in part.kept:
            add(approximation(rule.head.relation), rule.head.relation)
            for place, atom in enumerate(rule.atoms):
                sign = opposite if atom.negated else changed
                add(sign(atom.relation, layer), atom.relation)
                seed = AtomUse(sign(atom.relation, layer), atom.args)
                rewriting.add_question(_propagating(rule, place, seed), last)
        for name in layer.relations:
            if name in types:
                proofs[name] = rewriting.call(name, tuple(range(len(types[name]))))
    return Propagation(rewriting.program(), proofs, groups)


def _propagating(rule: LoweredRule, place: int, seed: AtomUse) -> LoweredRule:
    """Return the rule that joins the changes of one atom with the rest of the body."""
    atoms = (seed, *(atom for i, atom in enumerate(rule.atoms) if i != place))
    head = replace(rule.head, relation=approximation(rule.head.relation))
    return replace(rule, head=head, atoms=atoms)
