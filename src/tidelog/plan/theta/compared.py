"""Comparisons between two atoms of a rule, and the ranges of partners that they give.

y < x + 3600, for atoms a(k, x) and b(k, y): the partners of a row of a are the rows of b with
the same k, and y below a bound
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, AtomUse, Check, FunctorCall, LoweredRule
from tidelog.plan.bounds import MIRRORED, WHOLE, ordinal_range
from tidelog.plan.ranges import LEAST, MOST, RangeBound, RangeRead
from tidelog.values.types import Kind


@dataclass(frozen=True)
class Term:
    """A slot of one atom, plus a constant, as a comparison has it."""

    place: int
    slot: str
    offset: int
    range: tuple[int, int]
    """The values of the slot for which the sum is within its type."""


@dataclass(frozen=True)
class ComparedSlots:
    """A comparison between two atoms, with the term of the first one on the left."""

    op: Comparison
    left: Term
    right: Term
    check: Check


def compared_slots(
    rule: LoweredRule, check: Check, assigned: Mapping[str, Assign], own: Sequence[frozenset[str]]
) -> ComparedSlots | None:
    """Return a comparison between slots of two atoms, each plus a constant; None for any other.

    `assigned` are the computations of the rule, by the slot they define; `own` are the slots of
    each atom.
    """
    if check.op not in MIRRORED:
        return None
    left, right = (_term(rule, slot, assigned, own) for slot in (check.left, check.right))
    if left is None or right is None or left.place == right.place:
        return None
    if left.place > right.place:
        return ComparedSlots(MIRRORED[check.op], right, left, check)
    return ComparedSlots(check.op, left, right, check)


def range_read(
    atoms: Sequence[AtomUse], compared: Sequence[ComparedSlots], place: int, partner: int
) -> RangeRead | None:
    """Return where the partners of the rows of one atom are; None if that is no range.

    The comparisons are those between the two atoms.
    """
    reads = range_reads(atoms, compared, place, partner)
    return reads[0] if len(reads) == 1 else None


def range_reads(
    atoms: Sequence[AtomUse], compared: Sequence[ComparedSlots], place: int, partner: int
) -> list[RangeRead]:
    """Return a range for each bounded column: the partners are the rows in all of them."""
    own, other = atoms[place], atoms[partner]
    keys = tuple(
        (own.args.index(slot), column)
        for column, slot in enumerate(other.args)
        if slot is not None and slot in own.slots
    )
    bounds: dict[int, list[RangeBound]] = {}
    values: dict[int, tuple[int, int]] = {}
    for comparison in compared:
        mine, theirs, op = comparison.left, comparison.right, MIRRORED[comparison.op]
        if mine.place != place:
            mine, theirs, op = theirs, mine, comparison.op
        column = other.args.index(theirs.slot)
        offset = mine.offset - theirs.offset
        bound = RangeBound(op, own.args.index(mine.slot), offset, *mine.range)
        bounds.setdefault(column, []).append(bound)
        least, most = values.get(column, (LEAST, MOST))
        values[column] = max(least, theirs.range[0]), min(most, theirs.range[1])
    return [
        RangeRead(other.relation, keys, column, tuple(bounds[column]), *values[column])
        for column in bounds
    ]


def _term(
    rule: LoweredRule, slot: str, assigned: Mapping[str, Assign], own: Sequence[frozenset[str]]
) -> Term | None:
    offset, range_ = 0, (LEAST, MOST)
    made = assigned.get(slot)
    if made is not None:
        found = _sum(rule, made)
        if found is None:
            return None
        slot, offset, range_ = found
    places = [place for place, slots in enumerate(own) if slot in slots]
    return Term(places[0], slot, offset, range_) if len(places) == 1 else None


def _sum(rule: LoweredRule, made: Assign) -> tuple[str, int, tuple[int, int]] | None:
    """Return a computation as a slot plus a constant, with the values for which it succeeds."""
    match made.value:
        case FunctorCall("add" | "sub" as op, (left, right), type=type_) if type_.kind in WHOLE:
            if op == "add" and left in rule.constants:
                left, right = right, left
            constant = rule.constants.get(right)
            if left in rule.constants or constant is None or constant.type.kind is not Kind.NUMBER:
                return None
            number = int(constant.value) if op == "add" else -int(constant.value)
            low, high = ordinal_range(type_) or (LEAST, MOST)
            return left, number, (max(LEAST, low - number), min(MOST, high - number))
    return None
