"""Plans of joins whose traces are recorded: every column is bound by a leap of its own.

A join that is maintained by its trace (join/trace.py) reads each column of an atom as one level of
a trie. So where the planner scans the remaining columns of an atom at once, the plan here leaps to
each of them in turn. Where it bounds a column, the leap has a window (plan/skipping.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tidelog.plan.body import AtomUse, LoweredRule, OnFailure, Range, copied_columns, is_external
from tidelog.plan.order import in_order
from tidelog.plan.steps import Bound, Leap, Plan, Scan, Seek, Step, Window

NAME = "leapfrog"

_SMALL = 8  # how many times smaller a relation is whose variables are bound last


def untraceable(rule: LoweredRule) -> str | None:
    """Return why the trace of a rule cannot be maintained; None if it can be."""
    if rule.on_failure is not OnFailure.RAISE:
        return "its rule has the failures of another"
    if any(isinstance(condition, Range) for condition in rule.conditions):
        return "its rule counts through a range"
    if any(map(is_external, rule.conditions)):
        return "Python computes one of its conditions"
    if copied_columns(rule) is not None:
        return "its rule only copies rows"
    return None


def named_atoms(rule: LoweredRule) -> tuple[AtomUse, ...]:
    """Return the atoms of a rule with a slot for each argument that can have any value."""
    return tuple(
        replace(
            atom,
            args=tuple(
                f"%any{place}.{column}" if slot is None else slot
                for column, slot in enumerate(atom.args)
            ),
        )
        for place, atom in enumerate(rule.atoms)
    )


def small_atoms(atoms: Sequence[AtomUse], rows: Callable[[int], float]) -> frozenset[int]:
    """Return the atoms whose variables should be bound last, because they have few rows.

        f(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z).

    If z came first, then all of the trace below a value would come and go with a row of `r`. If it
    comes last, a row of `r` is found in its index, with those x and y that depend on it. That is
    for a relation which is much smaller than another one that has all of its variables.
    """
    positive = [i for i, atom in enumerate(atoms) if not atom.negated]
    return frozenset(
        i
        for i in positive
        if any(atoms[i].slots < atoms[j].slots and rows(i) * _SMALL < rows(j) for j in positive)
    )


def leaps_only(plan: Plan, small: Collection[int] = ()) -> Plan:
    """Return the plan with a leap for each column that a scan binds, and windows for bounds.

    In each leap the atoms come first whose columns so far are all that is bound: where they have
    no value, nothing has to be recorded of the others. Those in `small` come last: they are asked
    only for values that all others have.
    """
    steps: list[Step] = []
    bound: list[str] = []
    own: list[set[str]] = [set() for _ in plan.atoms]
    windows: dict[str, dict[Window, None]] = {}  # of leaps to come; their atoms share them

    def leap(slot: str, atoms: tuple[int, ...], columns: tuple[int, ...]) -> None:
        pairs = sorted(
            zip(atoms, columns, strict=True),
            key=lambda pair: (pair[0] in small, not own[pair[0]].issuperset(bound)),
        )
        steps.extend(windows.pop(slot, ()))
        steps.append(Leap(slot, tuple(a for a, _ in pairs), tuple(c for _, c in pairs)))
        for atom in atoms:
            own[atom].add(slot)
        bound.append(slot)

    for step in plan.steps:
        if isinstance(step, Leap):
            leap(step.slot, step.atoms, step.columns)
        elif isinstance(step, Bound):
            bounded = str(plan.atoms[step.atom].args[step.column])
            window = Window(bounded, step.op, step.slot, step.offset)
            windows.setdefault(bounded, {})[window] = None
        elif isinstance(step, Scan):
            args = plan.atoms[step.atom].args
            for column in in_order(step.columns, plan.orders[step.atom]):
                slot = args[column]
                assert slot is not None
                if slot in bound:
                    steps.append(Seek(step.atom, (column,)))
                else:
                    leap(slot, (step.atom,), (column,))
        else:
            if isinstance(step, Seek):
                args = plan.atoms[step.atom].args
                own[step.atom].update(str(args[column]) for column in step.columns)
            steps.append(step)
    assert not windows, "a bound without a leap"
    return replace(plan, steps=tuple(steps))
