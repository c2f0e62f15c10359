"""Which relations are maintained by a join tree, without storing their rows.

A candidate has an inequality between two atoms of its rule, and a free-connex query: then its
result can be enumerated from the relations at the lower end of the tree (rewriting.py). A query
whose head has all variables needs no tree for that, so it may be cyclic: the predicates that make
it so are tested during the enumeration. Some rules may be united. Each of them has an inequality,
or reads one atom; an equality join is stored.

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

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, Condition, Filter, LoweredRule, OnFailure, is_fallible
from tidelog.plan.lowered import Layer, Lowered, TreePart, TreeView, given_of
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
_MOST_UNITED = 4  # rules: each changed row is looked up in all of them
_COMPARED = frozenset(op.value for op in Comparison)
"""What Python tests on symbols, pair by pair: about half of all pairs are results."""
_NO_INEQUALITY = "no inequality relates two of its atoms"


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
        shapes = tree_shapes(current, asked, stored, ignores_readers=True)
        if isinstance(shapes, Refused):
            done.append(layer)
            continue
        before = len(rules.layers)
        if is_counted or not can_take_its_place(left, name, layer.rules):
            if layer.strategy == NAME:
                done.append(layer)
                continue
            trial = rules.copy()
            rewritten = _rewritten(trial, layer, shapes)
            if any(made.semi_join is not None for made in trial.layers[before:]):
                rules, layer = trial, replace(layer, rules=rewritten)
                done.extend(rules.layers[before:])
            done.append(layer)
            continue
        finals = _rewritten(rules, layer, shapes)
        assert all(map(is_injective, finals)), f"a row of `{name}` can have two derivations"
        done.extend(rules.layers[before:])
        parts = map(TreePart, finals, layer.rules, map(is_injective, layer.rules))
        done.append(replace(layer, rules=finals, tree=TreeView(tuple(parts))))
        readers = [unfolded(other, name, finals, ids) for other in left]
        if can_be_given(name) and any(map(operator.is_not, left, readers)):
            relations[given_of(name)] = relations[name]
            done.append(Layer((given_of(name),), (), False))
        left = readers
    kept = {name: relations[name] for layer in done for name in layer.relations}
    return Lowered(MappingProxyType(kept), tuple(done), lowered.facts)


def _rewritten(
    rules: TreeRules, layer: Layer, shapes: Sequence[JoinShape]
) -> tuple[LoweredRule, ...]:
    return tuple(
        rule if is_injective(rule) else rules.rewritten(rule, shape)
        for rule, shape in zip(layer.rules, shapes, strict=True)
    )


def tree_shapes(
    lowered: Lowered, layer: Layer, stored: Collection[str] = (), *, ignores_readers: bool = False
) -> tuple[JoinShape, ...] | Refused:
    """Return the shapes of a layer's joins if trees maintain it, or why none do.

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
    if not layer.rules:
        return Refused("no rule derives it")
    if len(layer.rules) > _MOST_UNITED:
        return Refused(f"it has more than {_MOST_UNITED} rules")
    if layer.judges or layer.errors_of is not None:
        return Refused("it has the failures of another relation")
    if name in stored:
        return Refused("its rows have to be stored")
    shapes = [_shape(layer, rule) for rule in layer.rules]
    refused = next((shape for shape in shapes if isinstance(shape, Refused)), None)
    if refused is not None:
        return refused
    found = tuple(shape for shape in shapes if isinstance(shape, JoinShape))
    if layer.strategy != NAME and not any(shape.query.joins_by_inequality for shape in found):
        return Refused(_NO_INEQUALITY)
    reader = next(_readers(lowered, name), None)
    if reader is not None and not ignores_readers:
        return Refused(f"{reader} looks up its rows")
    if can_be_given(name):
        read = (atom.relation for rule in layer.rules for atom in rule.atoms)
        if not all(map(can_be_given, read)):
            # Those who read a state beside its writer have only relations of the program.
            return Refused("it reads a relation that is not in the program")
    if not all(map(_keeps_failures, layer.rules, found)):
        return Refused("a computation that can fail is below the output")
    return found


def _shape(layer: Layer, rule: LoweredRule) -> JoinShape | Refused:
    """Return the shape of one rule of a layer, or why a tree cannot enumerate it."""
    query = theta_query(rule)
    if query is None or rule.on_failure is not OnFailure.RAISE:
        return Refused("its rule is not a plain join of positive atoms")
    is_alone = len(layer.rules) == 1
    may_be_equal = layer.strategy == NAME or (len(rule.atoms) == 1 and not is_alone)
    if not may_be_equal and not query.joins_by_inequality:
        return Refused(_NO_INEQUALITY if is_alone else "one of its rules joins by equalities only")
    tested = [c for c in rule.conditions if isinstance(c, Filter)]
    if tested and not (is_injective(rule) and all(c.op in _COMPARED for c in tested)):
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
