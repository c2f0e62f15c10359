"""Rules that compute the complement of a subset.

    v(x..) :- a(x..), !b(x..).        where every rule for b has a(x..) in its body:
    b(x..) :- a(x..), ...

If b has no given rows, it is a subset of a for all data, and v is the set difference a - b. Such a
rule can be evaluated without enumerating the rows of b (store/complement.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.plan.lowered import Layer


@dataclass(frozen=True)
class ComplementRule:
    """A rule with the head `whole - part`, valid as long as `part` has no given rows.

    The columns of all three correspond: the i-th entries of the orders are the same variable.
    """

    whole: AtomUse
    part: AtomUse
    part_order: tuple[int, ...]
    """For each column of `whole`, the column of `part`."""
    head_order: tuple[int, ...]
    """For each column of `whole`, the column of the head."""


def complement_rule(rule: LoweredRule, layers: Iterable[Layer]) -> ComplementRule | None:
    """Return the complement that a rule computes, or None if it is another kind of rule."""
    if len(rule.atoms) != 2 or rule.conditions or rule.constants:
        return None
    whole, part = sorted(rule.atoms, key=lambda atom: atom.negated)
    slots = whole.slots
    distinct = all(
        len(atom.slots) == len(atom.args) and atom.slots == slots
        for atom in (whole, part, rule.head)
    )
    if whole.negated or not part.negated or not distinct or whole.relation == part.relation:
        return None
    part_order = tuple(part.args.index(slot) for slot in whole.args)
    head_order = tuple(rule.head.args.index(slot) for slot in whole.args)
    return (
        ComplementRule(whole, part, part_order, head_order)
        if is_subset(part.relation, whole.relation, part_order, layers)
        else None
    )


def is_subset(part: str, whole: str, order: tuple[int, ...], layers: Iterable[Layer]) -> bool:
    """Return whether every rule for `part` has its head's variables in an atom of `whole`."""
    layer = next((layer for layer in layers if part in layer.relations), None)
    if layer is None:
        return False
    rules = [rule for rule in layer.rules if rule.head.relation == part]
    if not rules or layer.aggregation is not None or layer.recompute is not None:
        return False
    return all(
        any(
            not atom.negated
            and atom.relation == whole
            and atom.args == tuple(rule.head.args[column] for column in order)
            and None not in atom.args
            for atom in rule.atoms
        )
        for rule in rules
    )
