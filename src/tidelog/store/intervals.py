"""Aggregates over an interval of keys, in one order of a relation, by the scan trees of its runs.

    max over [low, high)  =  max of the runs' own,  each from O(log n) nodes of its tree

The trees are grown when they are first asked, and follow the epochs from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.store.lookup import Key, position
from tidelog.store.relation import StoredRelation
from tidelog.store.run_tree import nothing

_HALF = 32


@dataclass(frozen=True)
class Summary:
    """What trees know of some rows: their number, and of the ordinals of one column .."""

    count: int
    total: int
    """.. their sum, exactly,"""
    least: int
    """the smallest one,"""
    greatest: int
    """and the largest; both mean nothing where there are no rows."""
    nodes: int
    """How many nodes of trees were put together: a measure of the work."""


def summary(
    relation: StoredRelation, order: tuple[int, ...], low: Key, high: Key, column: int
) -> Summary:
    """Return the summary of a column over the committed rows between two keys: O(log n)."""
    index = relation.index(order)
    into = nothing()
    nodes = 0
    field, bias = index.layout.by_column[column], relation.domains[column].bias
    for run in index.runs:
        start, stop = position(run.words, low), position(run.words, high)
        if start < stop:
            nodes += run.tree(column, field, bias).fold(run, start, stop, into)
    count, high_half, low_half, least, greatest = into[:, 0].tolist()
    return Summary(count, (high_half << _HALF) + low_half, least, greatest, nodes)
