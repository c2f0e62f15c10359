"""Which relations are maintained by a join tree, without storing their rows.

A candidate has one rule, an inequality between two of its atoms, and a free-connex query: then its
result can be enumerated from the relations at the lower end of the tree (rewriting.py). A query
whose head has all variables needs no tree for that, so it may be cyclic: the predicates that make
it so are tested during the enumeration.

Rows are left out only if nobody needs them in an index. Sums and counts read the changes alone.
Other rules read what the relation joins, if they can (unfolding.py). If they cannot, the rows are
stored, but a projection still reads reducts, in which only the presence of a partner matters.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType

from tidelog.plan.body import Assign, Condition, Filter, LoweredRule, OnFailure, is_fallible
from tidelog.plan.lowered import Layer, Lowered, TreeView, given_of
from tidelog.plan.theta.join_tree import JoinShape, analyse_joins
from tidelog.plan.theta.query import theta_query
from tidelog.plan.theta.rewriting import TreeRules, output_conditions
from tidelog.plan.theta.unfolding import (
    can_be_given,
    can_take_its_place,
    is_sum,
    reads,
    unfolded,
)
from tidelog.values.types import Type

NAME = "theta-tree"
COUNTING = "counting"


@dataclass(frozen=True)
class Refused:
    """Why a relation is not maintained by a join tree."""

    why: str


def with_trees(lowered: Lowered, stored: Collection[str] = ()) -> Lowered:
    """Return the program with join trees where they serve, or are forced.

    `stored` are relations whose rows must be stored.
    """
    relations: dict[str, tuple[Type, ...]] = dict(lowered.relations)

    def new_relation(hint: str, types: Sequence[Type]) -> str:
        name = f"{hint.partition('@')[0]}@tree{len(relations)}"
        relations[name] = tuple(types)
        return name

    rule_ids = (r.id for layer in lowered.every_layer() for r in layer.rules)
    ids = count(1 + max(rule_ids, default=0))
    rules = TreeRules(new_relation, ids)
    done: list[Layer] = []
    left = list(lowered.layers)
    while left:
        layer, left = left[0], left[1:]
        name = layer.relations[0]
        # Forced counting reads the same semi-joins as counting that was chosen: a snapshot says
        # only that a relation was maintained by counting.
        is_counted = layer.strategy == COUNTING
        asked = replace(layer, strategy=None) if is_counted else layer
        current = replace(lowered, layers=(*done, asked, *left))
        shape = tree_shape(current, asked, stored, ignores_readers=True)
        if isinstance(shape, Refused):
            done.append(layer)
            continue
        (rule,) = layer.rules
        before = len(rules.layers)
        if is_counted or not can_take_its_place(left, name, rule):
            if layer.strategy == NAME:
                done.append(layer)
                continue
            trial = rules.copy()
            rewritten = rule if is_injective(rule) else trial.rewritten(rule, shape)
            if any(made.semi_join is not None for made in trial.layers[before:]):
                rules, layer = trial, replace(layer, rules=(rewritten,))
                done.extend(rules.layers[before:])
            done.append(layer)
            continue
        final = rule if is_injective(rule) else rules.rewritten(rule, shape)
        assert is_injective(final), f"a row of {rule.text} can have two derivations"
        done.extend(rules.layers[before:])
        tree = TreeView(final, rule, is_injective(rule))
        done.append(replace(layer, rules=(final,), tree=tree))
        readers = [unfolded(other, name, final, ids) for other in left]
        if can_be_given(name) and any(map(operator.is_not, left, readers)):
            relations[given_of(name)] = relations[name]
            done.append(Layer((given_of(name),), (), False))
        left = readers
    kept = {name: relations[name] for layer in done for name in layer.relations}
    return Lowered(MappingProxyType(kept), tuple(done), lowered.facts)


def tree_shape(
    lowered: Lowered, layer: Layer, stored: Collection[str] = (), *, ignores_readers: bool = False
) -> JoinShape | Refused:
    """Return the shape of a layer's join if a tree maintains it, or why none does.

    If it is forced, the join need not have an inequality. With `ignores_readers` it does not matter
    that rules look up its rows.
    """
    name = layer.relations[0]
    if layer.strategy not in (None, NAME):
        return Refused(f"`{layer.strategy}` is forced")
    if layer.aggregation is not None:
        return Refused("it is an aggregate")
    if layer.recursive or layer.recompute is not None:
        return Refused("it depends on itself")
    if len(layer.rules) != 1:
        return Refused("it has several rules" if layer.rules else "no rule derives it")
    if layer.judges or layer.errors_of is not None:
        return Refused("it has the failures of another relation")
    if name in stored:
        return Refused("its rows have to be stored")
    (rule,) = layer.rules
    query = theta_query(rule)
    if query is None or rule.on_failure is not OnFailure.RAISE:
        return Refused("its rule is not a plain join of positive atoms")
    if layer.strategy != NAME and not query.joins_by_inequality:
        return Refused("no inequality relates two of its atoms")
    if any(isinstance(c, Filter) for c in rule.conditions):
        return Refused("Python tests one of its conditions")
    shape = analyse_joins(query)
    if not is_injective(rule):  # otherwise nothing is projected, and any join will do
        if not query.output <= _determined(rule):
            return Refused("its head computes a value that different rows can share")
        if not shape.is_acyclic:
            return Refused("its join is cyclic, and some of its variables are not in the head")
        if not shape.is_free_connex:
            return Refused("its join is not free-connex")
        if not query.output <= _determined(rule, output_conditions(rule, shape)):
            return Refused("an equality below its output decides what its rows are")
    reader = next(_readers(lowered, name), None)
    if reader is not None and not ignores_readers:
        return Refused(f"{reader} looks up its rows")
    if can_be_given(name) and not all(can_be_given(atom.relation) for atom in rule.atoms):
        # Those who read a state beside its writer have the rows of the program's relations only.
        return Refused("it reads a relation that is not in the program")
    if not _keeps_failures(rule, shape):
        return Refused("a computation that can fail is below the output")
    return shape


def _readers(lowered: Lowered, name: str) -> Iterator[str]:
    """Yield what needs the rows of a relation in an index."""
    for layer in lowered.layers:
        if layer.recompute is not None and name in layer.recompute.reads:
            yield f"`{layer.relations[0]}`"
        aggregation = layer.aggregation
        if aggregation is not None:
            if name in reads(layer) or (aggregation.source == name and not is_sum(aggregation)):
                yield f"`{aggregation.op}`"
            continue
        for rule in layer.rules:
            if any(atom.relation == name for atom in rule.atoms):
                yield f"`{rule.head.relation}`"


def _keeps_failures(rule: LoweredRule, shape: JoinShape) -> bool:
    """Return whether the failures of a rule are those of its rewritten form.

    A reduct would fail on rows that the rest of the rule excuses. And a value that can fail must
    still be computed.
    """
    if is_injective(rule):
        return True
    kept = output_conditions(rule, shape)
    return all(condition in kept for condition in rule.conditions if is_fallible(condition))


def is_injective(rule: LoweredRule) -> bool:
    """Return whether a row of the head determines the rows of all atoms.

    No argument is left open, and every slot of an atom follows from those of the head.
    """
    if any(arg is None for atom in rule.atoms for arg in atom.args):
        return False
    known = _determined(rule)
    return all(atom.slots <= known for atom in rule.atoms)


def _determined(rule: LoweredRule, conditions: Iterable[Condition] | None = None) -> set[str]:
    """Return the slots whose values follow from those of the head, by some of the conditions."""
    known = set(rule.constants).union(rule.head.slots)
    equal: Mapping[str, str] = {
        c.into: c.value
        for c in (rule.conditions if conditions is None else conditions)
        if isinstance(c, Assign) and isinstance(c.value, str)
    }
    size = -1
    while size != len(known):
        size = len(known)
        for into, value in equal.items():
            if into in known or value in known:
                known |= {into, value}
    return known
