"""Recursions that pass on what they are not asked for: only the way to them has to be followed.

    reach(x, z) :- reach(x, y), edge(y, z).             asked for  reach(x, "d")

Answers for "d" are those for every y before it, with the same x. Computed one by one, each y would
get all its answers, although nobody asks for them. So the recursion is followed instead, together
with what was asked at first, and only the rules that end it give answers:

    reached(s, s) :- asked(s).
    reached(s, y) :- reached(s, z), edge(y, z).
    reach(x, s)   :- reached(s, z), edge(x, z).

That is right if each rule has one recursive atom at most, the columns that are not bound are the
same there as in the head, and nothing else in the body reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidelog.plan.body import AtomUse, LoweredRule, outputs
from tidelog.plan.order import Stats
from tidelog.plan.sideways import Passing
from tidelog.values.types import Type


@dataclass(frozen=True)
class FollowedRules:
    """A recursion in two parts. Each rule reads `reached` by the atom that stands first."""

    follow: tuple[LoweredRule, ...]
    """The rules for `reached`."""
    end: tuple[LoweredRule, ...]
    """The rules that give answers."""


def followed(
    rules: Sequence[LoweredRule],
    relation: str,
    bound: tuple[int, ...],
    types: tuple[Type, ...],
    own: frozenset[str],
    reached: str,
    is_on_demand: Callable[[str], bool],
    stats: Callable[[str], Stats],
) -> FollowedRules | None:
    """Return a recursion in two parts; None if it does not pass on the columns that are not bound.

    `own` are the relations that depend on each other with this one.
    """
    free = [column for column in range(len(types)) if column not in bound]
    seeds = {column: f"%seed{column}" for column in bound}
    of_seeds = {seeds[column]: types[column] for column in bound}
    follow: list[LoweredRule] = []
    end: list[LoweredRule] = []
    if not free or not bound:
        return None
    for rule in rules:
        places = [i for i, atom in enumerate(rule.atoms) if atom.relation in own]
        before = AtomUse(reached, (*seeds.values(), *(rule.head.args[column] for column in bound)))
        if len(set(before.args)) < len(before.args):
            return None
        if not places:
            args = [seeds.get(i, arg) for i, arg in enumerate(rule.head.args)]
            head = AtomUse(relation, tuple(args))
            end.append(_reading(rule, head, before, rule.atoms, of_seeds))
            continue
        if len(places) > 1:
            return None
        recursive = rule.atoms[places[0]]
        rest = tuple(atom for i, atom in enumerate(rule.atoms) if i != places[0])
        if recursive.negated or recursive.relation != relation:
            return None
        if not _passes_on(rule, recursive, rest, free):
            return None
        wanted = tuple(recursive.args[column] for column in bound)
        head = AtomUse(reached, (*seeds.values(), *wanted))
        way = _reading(rule, head, before, rest, of_seeds)
        passing = Passing(replace(way, atoms=rest), before, own, is_on_demand, stats)
        if None in wanted or not passing.binds(slot for slot in wanted if slot is not None):
            return None
        follow.append(way)
    return FollowedRules(tuple(follow), tuple(end)) if follow else None


def _passes_on(
    rule: LoweredRule, recursive: AtomUse, rest: Sequence[AtomUse], free: Sequence[int]
) -> bool:
    """Return whether the free columns only go from the recursive atom to the head."""
    passed = [rule.head.args[column] for column in free]
    if passed != [recursive.args[column] for column in free] or len(set(passed)) < len(passed):
        return False
    others = [arg for i, arg in enumerate(rule.head.args) if i not in free]
    others += [arg for i, arg in enumerate(recursive.args) if i not in free]
    used = {*others, *rule.constants}.union(*(atom.slots for atom in rest))
    for condition in rule.conditions:
        used |= condition.inputs.union(outputs(condition))
    return None not in passed and used.isdisjoint(passed)


def _reading(
    rule: LoweredRule,
    head: AtomUse,
    before: AtomUse,
    atoms: Sequence[AtomUse],
    of_seeds: dict[str, Type],
) -> LoweredRule:
    types = {**rule.types, **of_seeds}
    return replace(rule, head=head, atoms=(before, *atoms), types=types)
