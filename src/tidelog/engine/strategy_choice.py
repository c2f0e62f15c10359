"""Which strategy maintains a layer."""

from __future__ import annotations

from tidelog.maintain.aggregations import class_of
from tidelog.maintain.counting import Counting
from tidelog.maintain.elastic import Elastic
from tidelog.maintain.judging import Errors, Judging
from tidelog.maintain.leapfrog import Leapfrog
from tidelog.maintain.measured import MeasuredCounting, can_be_measured
from tidelog.maintain.recompute import Recompute
from tidelog.maintain.semi_join import SemiJoin
from tidelog.maintain.strategy import Strategy
from tidelog.maintain.theta_tree import ThetaTree
from tidelog.plan.lowered import Layer
from tidelog.plan.traces import NAME as LEAPFROG
from tidelog.store.catalog import Catalog


def strategy_of(catalog: Catalog, layer: Layer) -> Strategy | None:
    """Return the strategy that maintains a layer; None if its relations have no rules."""
    if layer.recompute is not None:
        return Recompute(catalog, layer, strategy_of)
    if layer.aggregation is not None:
        return class_of(layer.aggregation)(catalog, layer.aggregation)
    if not layer.rules:
        return None
    if layer.judges:
        return (Judging if layer.errors_of is None else Errors)(catalog, layer)
    if layer.tree is not None:
        return ThetaTree(catalog, layer)
    if layer.semi_join is not None:
        return SemiJoin(catalog, layer)
    if layer.strategy == LEAPFROG:
        return Leapfrog(catalog, layer)
    if layer.pruned:
        return Counting(catalog, layer)
    if not layer.recursive and layer.strategy is None and any(map(can_be_measured, layer.rules)):
        return MeasuredCounting(catalog, layer)
    return (Elastic if layer.recursive else Counting)(catalog, layer)
