"""Conditions that a leap skips through, instead of testing each of its values.

    v(x, y) :- p(x), t(x, y), !s(x, y), lo(x, l), hi(x, h), l <= y, y < h.

A plan tests `y` after it is bound. Here the comparisons become a *window* of the leap that binds
it, which begins at `l` and ends before `h`. The negated atom becomes a part of the leap: from a
value that `s` has, the leap goes on to the next one of `t` that `s` lacks, and rows that both have
are skipped by searches (kernel/skipping.py; leapfrog-maintenance.md, 3.1.2).

That is for traces (plan/traces.py). What is skipped is one interval of the trace. Values that are
tested one by one would be an interval each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from tidelog.plan.body import outputs
from tidelog.plan.bounds import SlotBound
from tidelog.plan.order import Order, any_fitting, fitting
from tidelog.plan.steps import Absent, Compute, Leap, Plan, Step, Window


def windowed(plan: Plan, bounds: Iterable[SlotBound], known: Collection[str]) -> Plan:
    """Return the plan with comparisons as windows of leaps, where the other side is bound before.

    `known` are slots with values that are known before all steps.
    """
    bound = set(known)
    checks = {step.what for step in plan.steps if isinstance(step, Compute)}
    steps: list[Step] = []
    for step in plan.steps:
        match step:
            case Leap(slot):
                for limit in bounds:
                    if limit.slot == slot and limit.other in bound and limit.check in checks:
                        steps.append(Window(slot, limit.op, limit.other, limit.offset))
                        checks.discard(limit.check)
                steps.append(step)
                bound.add(slot)
            case Compute(what):
                if what in checks:
                    steps.append(step)
                    bound.update(outputs(what))
            case _:
                steps.append(step)
    return replace(plan, steps=tuple(steps))


def complemented(plan: Plan, held: Callable[[int], Sequence[Order]]) -> Plan:
    """Return the plan with negated atoms as parts of leaps, where a leap binds the last variable.

    Each variable must be in one column, and bound by a leap. `held` returns the orders that an
    atom's relation has.
    """
    steps: list[Step] = []
    orders = list(plan.orders)
    for step in plan.steps:
        leaps = {s.slot: number for number, s in enumerate(steps) if isinstance(s, Leap)}
        args = plan.atoms[step.atom].args if isinstance(step, Absent) else ()
        if (
            not isinstance(step, Absent)
            or len(set(args)) < len(args)
            or not leaps.keys() >= {*args}
        ):
            steps.append(step)
            continue
        number = max(leaps[slot] for slot in args if slot is not None)
        leap = steps[number]
        assert isinstance(leap, Leap)
        last = args.index(leap.slot)
        key = tuple(column for column in range(len(args)) if column != last)
        groups = (key, (last,)) if key else ((last,),)
        orders[step.atom] = fitting(groups, held(step.atom)) or any_fitting(groups)
        steps[number] = replace(leap, absent=(*leap.absent, step.atom))
    return replace(plan, steps=tuple(steps), orders=tuple(orders))


def skipping_atom(plan: Plan, leap: Leap, absent: int) -> int:
    """Return which atom of a leap moves on from the values that a negated atom has.

    Best is one with the same variables, of which the negated atom may be a subset; next best one
    with a row for each value.
    """
    slots = plan.atoms[absent].slots

    def rank(number: int) -> tuple[bool, bool]:
        atom = leap.atoms[number]
        is_last = plan.orders[atom][-1] == leap.columns[number]
        return not (is_last and plan.atoms[atom].slots == slots), not is_last

    return min(range(len(leap.atoms)), key=rank)
