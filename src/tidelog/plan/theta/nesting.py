"""Joins as nested ranges: each atom's rows are a range, found from the row of one atom before it.

    v(k, x, y, z) :- r(k, x), s(k, y), t(k, z), x < y, y < z.

    s           each row
        r       the rows with the same k, and x below y
        t       the rows with the same k, and z above y

Nothing else is tested, so once the ranges of each row are known, the result is known up to writing
it down: its size, and the row of any number (join/nesting.py).

An atom on which no other depends may have bounds on two columns. Its rows are then not adjacent in
any order, but can be counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, Check, FunctorCall, LoweredRule, OnFailure
from tidelog.plan.externals import UNORDERED
from tidelog.plan.ranges import RangeBound, RangeRead
from tidelog.plan.theta.compared import ComparedSlots, compared_slots, range_reads

_MOST_ATOMS = 5  # all ways to nest them are tried


@dataclass(frozen=True)
class NestedAtom:
    """An atom, and where its rows are."""

    place: int
    """Its place in the rule."""
    parent: int
    """The atom before it that has the bounds, by its position in the nesting; -1 for the first."""
    read: RangeRead | None
    """The range; None stands for all rows."""
    also: RangeRead | None = None
    """A range of a second column, which the rows must be in as well."""


Nesting = tuple[NestedAtom, ...]
"""The atoms of a rule, each followed by those that depend on it."""


def nestings(rule: LoweredRule, *, to_count: bool = False) -> list[Nesting]:
    """Return ways to nest the atoms of a rule: one for each atom that can be the first.

    Only a nesting `to_count` the results may have bounds on two columns.
    """
    compared = _comparisons(rule) if len(rule.atoms) > 1 else None
    if compared is None:
        return []
    columns = 2 if to_count else 1
    found = (_nesting(rule, compared, root, columns) for root in range(len(rule.atoms)))
    return [nesting for nesting in found if nesting is not None]


def _comparisons(rule: LoweredRule) -> list[ComparedSlots] | None:
    """Return the comparisons between atoms; None if the rule has anything else."""
    own = [atom.slots for atom in rule.atoms]
    if len(own) > _MOST_ATOMS or rule.on_failure is not OnFailure.RAISE:
        return None
    if not set(rule.head.args) <= frozenset().union(*own):
        return None
    for atom in rule.atoms:
        slots = [slot for slot in atom.args if slot is not None]
        is_plain = len(set(slots)) == len(slots) and atom.slots.isdisjoint(rule.constants)
        if atom.negated or not is_plain:
            return None
    assigned: dict[str, Assign] = {}
    for condition in rule.conditions:
        if isinstance(condition, Assign):
            is_sum = isinstance(condition.value, FunctorCall)
            if not is_sum or condition.into in assigned or any(condition.into in o for o in own):
                return None
            assigned[condition.into] = condition
    found = []
    used: set[str] = set()
    for condition in rule.conditions:
        if isinstance(condition, Assign):
            continue
        if not isinstance(condition, Check):
            return None
        comparison = compared_slots(rule, condition, assigned, own)
        if comparison is None or rule.types[comparison.left.slot].kind in UNORDERED:
            return None
        found.append(comparison)
        used |= condition.inputs
    return found if used.issuperset(assigned) else None


def _nesting(
    rule: LoweredRule, compared: Sequence[ComparedSlots], root: int, columns: int
) -> Nesting | None:
    """Return a nesting that begins with `root`, if there is one.

    `columns` is the most bounded columns that an atom may have.
    """
    parents = next(_parents(rule, compared, {root: -1}, columns), None)
    if parents is None:
        return None
    sequence: list[int] = []

    def follow(place: int) -> None:
        sequence.append(place)
        for other, parent in parents.items():
            if parent == place:
                follow(other)

    follow(root)
    atoms = [NestedAtom(root, -1, None)]
    for place in sequence[1:]:
        parent = parents[place]
        reads = _reads(rule, compared, parent, place)
        atoms.append(NestedAtom(place, sequence.index(parent), *reads))
    return tuple(atoms)


def _parents(
    rule: LoweredRule, compared: Sequence[ComparedSlots], chosen: dict[int, int], columns: int
) -> Iterator[dict[int, int]]:
    """Yield the ways to complete a choice of parents, by place."""
    if len(chosen) == len(rule.atoms):
        inner = set(chosen.values()) - {-1}
        if all(len(_reads(rule, compared, chosen[p], p)) == 1 for p in inner if chosen[p] >= 0):
            yield chosen
        return
    known = frozenset().union(*(rule.atoms[place].slots for place in chosen))
    for place, atom in enumerate(rule.atoms):
        if place in chosen:
            continue
        partners = {p for c in compared for p in _other(c, place) if p in chosen}
        for parent in chosen:
            has_all = partners <= {parent} and atom.slots & known <= rule.atoms[parent].slots
            if has_all and 1 <= len(_reads(rule, compared, parent, place)) <= columns:
                yield from _parents(rule, compared, {**chosen, place: parent}, columns)


def _other(comparison: ComparedSlots, place: int) -> tuple[int, ...]:
    """Return the other atom of a comparison, if it is one of an atom."""
    places = (comparison.left.place, comparison.right.place)
    return tuple(other for other in places if other != place) if place in places else ()


def _reads(
    rule: LoweredRule, compared: Sequence[ComparedSlots], parent: int, place: int
) -> list[RangeRead]:
    """Return a range for each bounded column of an atom; none if nothing relates the two atoms."""
    between = [c for c in compared if {c.left.place, c.right.place} == {parent, place}]
    if between:
        return range_reads(rule.atoms, between, parent, place)
    # Equalities alone: the last one is written as two bounds.
    own, other = rule.atoms[parent], rule.atoms[place]
    keys = [
        (own.args.index(slot), column)
        for column, slot in enumerate(other.args)
        if slot is not None and slot in own.slots
    ]
    if not keys:
        return []
    *keys, (column, bounded) = keys
    bounds = tuple(RangeBound(op, column, 0) for op in (Comparison.GE, Comparison.LE))
    return [RangeRead(other.relation, tuple(keys), bounded, bounds)]
