"""How the conditions that Python computes split a rule into stages.

A stage is a join by the kernel, followed by the conditions that Python can compute from its result
(join/joins.py). These functions say which slots a stage can bind, which of Python's conditions
follow it, and which slots later stages need. A rule without such conditions has one stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.plan.body import Assign, AtomUse, Condition, LoweredRule, is_external, outputs
from tidelog.plan.order import computed_slots


def needing_externals(conditions: Sequence[Condition]) -> set[str]:
    """Return the slots whose values depend on a condition that Python computes."""
    later: set[str] = set()
    if not any(is_external(c) for c in conditions):
        return later
    later = {"%python"}
    moved = True
    while moved:
        moved = False
        for condition in conditions:
            depends = is_external(condition) or bool(condition.inputs & later)
            if isinstance(condition, Assign) and isinstance(condition.value, str):
                depends = condition.value in later
            if depends and not later.issuperset(outputs(condition)):
                later.update(outputs(condition))
                moved = True
    return later


def reachable_slots(
    atoms: Sequence[AtomUse],
    places: Sequence[int],
    conditions: Sequence[Condition],
    known: set[str],
) -> set[str]:
    """Return the slots that are bound by the atoms and by the kernel's conditions on them."""
    bound = set(known)
    computed = computed_slots(conditions)
    for i in places:
        if not atoms[i].negated:
            bound |= atoms[i].slots
    moved = True
    while moved:
        moved = False
        for condition in conditions:
            if is_external(condition):
                continue
            if condition.inputs <= bound and not bound.issuperset(outputs(condition)):
                bound.update(outputs(condition))
                moved = True
            if isinstance(condition, Assign) and isinstance(condition.value, str):
                reverse = condition.into in bound and condition.value not in bound
                if reverse and condition.value not in computed:
                    bound.add(condition.value)
                    moved = True
    return bound


def first_externals(conditions: Sequence[Condition], bound: set[str]) -> tuple[Condition, ...]:
    """Return Python's conditions that depend only on bound slots and on each other."""
    bound = set(bound)
    taken: list[Condition] = []
    moved = True
    while moved:
        moved = False
        for condition in conditions:
            if is_external(condition) and condition not in taken and condition.inputs <= bound:
                taken.append(condition)
                bound.update(outputs(condition))
                moved = True
    return tuple(taken)


def wanted_later(
    atoms: Sequence[AtomUse],
    waiting: Sequence[int],
    conditions: Sequence[Condition],
    externals: Sequence[Condition],
    rule: LoweredRule,
) -> set[str]:
    """Return the slots that the head, the atoms of later stages and other conditions need."""
    wanted = set(rule.head.slots)
    for i in waiting:
        wanted |= atoms[i].slots
    for condition in (*conditions, *externals):
        wanted |= condition.inputs
        wanted.update(outputs(condition))
    return wanted
