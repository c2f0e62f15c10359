"""Which strategy maintains which aggregate: the first whose algebra fits it."""

from __future__ import annotations

from tidelog.maintain.aggregate import Aggregate
from tidelog.maintain.extremes import Extremes
from tidelog.maintain.nearest import Nearest
from tidelog.maintain.range_sums import RangeSiblings, RangeSums
from tidelog.maintain.registered import GroupSums, SetFunctions
from tidelog.maintain.scans import Scans
from tidelog.maintain.sets import Sets
from tidelog.maintain.sums import Siblings, Sums
from tidelog.plan.lowered import Aggregation

CLASSES: tuple[type[Aggregate], ...] = (
    Nearest, RangeSiblings, RangeSums, Siblings, Sums, Extremes, Scans, Sets, GroupSums,
    SetFunctions,
)  # fmt: skip


def class_of(aggregation: Aggregation) -> type[Aggregate]:
    """Return the strategy that maintains an aggregate."""
    return next(strategy for strategy in CLASSES if strategy.takes(aggregation))
