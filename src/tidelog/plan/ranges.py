"""Ranges: the partners of a row in an inequality join, as an interval of sorted rows.

    s = sum y : { a(k, x), b(k, y), y < x }.

For a row of `a`, its partners are the rows of `b` with the same k and y < x. In the order (k, y)
they are adjacent. So an aggregate over them needs no pairs: it is read from a scan tree, or by a
search. plan/theta/ranged.py finds the aggregates for which this is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.logic.program import Comparison
from tidelog.plan.body import LoweredRule

LEAST, MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class RangeBound:
    """`y op x + offset`, for the column x of a row. There is no such y unless least <= x <= most.

    That is where a sum of the rule, such as x + 3600, is within its type.
    """

    op: Comparison
    column: int
    offset: int
    least: int = LEAST
    most: int = MOST


@dataclass(frozen=True)
class RangeRead:
    """Where the partners of a row are: equal keys, and one column within bounds."""

    relation: str
    keys: tuple[tuple[int, int], ...]
    """Columns that are equal: of the row, and of its partners."""
    column: int
    """The column of the partners that is bounded."""
    bounds: tuple[RangeBound, ...]
    least: int = LEAST
    """No partner has less in the bounded column, or more than `most`."""
    most: int = MOST


@dataclass(frozen=True)
class Neighbours:
    """How the groups are found whose nearest partner changes with a row (maintain/nearest.py)."""

    moved: str
    """Rows (key.., y, next): a changed y, and the next value beyond it, toward the group."""
    last: str
    """Rows (key.., y): a changed y with nothing beyond it."""
    moved_rules: tuple[LoweredRule, ...]
    """Derive groups from `moved`."""
    last_rule: LoweredRule
    """Derives groups from `last`."""


@dataclass(frozen=True)
class RangedJoin:
    """The join of two atoms that an aggregate is over. Its pairs are not stored."""

    rule: LoweredRule
    """Derives the pairs."""
    reads: tuple[RangeRead | None, RangeRead | None]
    """Where the partners of a row are, for the rows of each atom; None: pairs are enumerated."""
    neighbours: Neighbours | None = None
    """For `min` and `max`. The groups are then the rows of the first atom."""

    @property
    def rules(self) -> tuple[LoweredRule, ...]:
        """All rules."""
        if self.neighbours is None:
            return (self.rule,)
        return (self.rule, *self.neighbours.moved_rules, self.neighbours.last_rule)
