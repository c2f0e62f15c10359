"""Comparisons as bounds: how the value of one slot limits another.

    tried(a, t, u) :- small(a, t), large(a, u), t < u, u <= t + 3600.

When t is known, `u` lies in (t, t + 3600]; when u is known, `t` lies in [u - 3600, u). In an order
that has the bounded column next, those rows are adjacent. So a join need not test all rows of the
account: it finds the first and the last one by binary search.

A sum with a constant is turned around: from `u <= t + 3600` follows `t >= u - 3600`. That is exact
only if no sum fails, so the caller decides for which slots it is (`is_safe`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, Check, Condition, Constant, FunctorCall
from tidelog.values.types import Kind, Type

MIRRORED = {
    Comparison.LT: Comparison.GT,
    Comparison.LE: Comparison.GE,
    Comparison.GT: Comparison.LT,
    Comparison.GE: Comparison.LE,
}
"""The comparison with its sides exchanged."""
WHOLE = (Kind.NUMBER, Kind.DATE, Kind.TIMESTAMP)
"""Kinds whose sums with a number are sums of ordinals."""
_RANGES = {
    Kind.DATE: (-719162, 2932896),
    Kind.TIMESTAMP: (-62135596800000000, 253402300799999999),
}

IsSafe = Callable[[str, int, Type], bool]
"""Whether no value of a slot, plus a constant, leaves the range of a type."""


@dataclass(frozen=True)
class SlotBound:
    """`slot op other + offset`."""

    slot: str
    op: Comparison
    other: str
    offset: int
    check: Check
    """The comparison that says so."""
    sum: Assign | None = None
    """The sum that was turned around. If only `check` needs it, the bound replaces it as well."""


def ordinal_range(type_: Type) -> tuple[int, int] | None:
    """Return the ordinals that a result of this type may have; None if all 64 bits are used."""
    if type_.kind is Kind.DECIMAL:
        return -(10**type_.precision) + 1, 10**type_.precision - 1
    return _RANGES.get(type_.kind)


def slot_bounds(
    conditions: Iterable[Condition], constants: Mapping[str, Constant], is_safe: IsSafe
) -> tuple[SlotBound, ...]:
    """Return the bounds that follow from comparisons."""
    conditions = tuple(conditions)
    sums = dict(_sums(conditions, constants, is_safe))
    return tuple(bound for c in conditions if isinstance(c, Check) for bound in _of(c, sums))


def _of(check: Check, sums: Mapping[str, tuple[str, int, Assign]]) -> Iterator[SlotBound]:
    if check.op not in MIRRORED or check.left == check.right:
        return
    for slot, op, other in (
        (check.left, check.op, check.right), (check.right, MIRRORED[check.op], check.left),
    ):  # fmt: skip
        yield SlotBound(slot, op, other, 0, check)
        if slot in sums:
            base, constant, made_by = sums[slot]
            if base != other:
                yield SlotBound(base, op, other, -constant, check, made_by)


def _sums(
    conditions: Iterable[Condition], constants: Mapping[str, Constant], is_safe: IsSafe
) -> Iterator[tuple[str, tuple[str, int, Assign]]]:
    """Yield the slots that are another slot plus a constant, with these two."""
    for condition in conditions:
        match condition:
            case Assign(into, FunctorCall("add" | "sub" as op, (left, right), type=type_)):
                if type_.kind not in WHOLE:
                    continue
                if op == "add" and left in constants:
                    left, right = right, left
                constant = constants.get(right)
                if left in constants or constant is None or constant.type.kind is not Kind.NUMBER:
                    continue
                number = int(constant.value) if op == "add" else -int(constant.value)
                if is_safe(left, number, type_):
                    yield into, (left, number, condition)
