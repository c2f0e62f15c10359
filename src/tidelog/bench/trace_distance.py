"""The edit distance of two traces of a join, by running both from the start.

This is what the cost of an update is measured against: the operations that a whole run on the old
facts has and one on the new facts has not, and the reverse (leapfrog-maintenance.md, 1.1). An
operation is a move of an iterator at a node, and the interval of values that it depends on.

It is brute force, compiled: tables are sorted arrays, and a node that both versions have is entered
in both, so only the operations of one node are compared at a time. It shares no code with the
interpreter whose updates it judges (kernel/trace.py). tests/bench/test_trace_distance.py compares
it with the traces of tests/maintain/tracing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tidelog.plan.steps import Leap, Plan
from tidelog.store.catalog import Catalog

Array = NDArray[np.int64]

_LOWEST, _HIGHEST = -(2**62), 2**62
_PLACE, _FIRST, _LAST = range(3)  # of an operation


@dataclass(frozen=True)
class Distance:
    """How far two traces are apart."""

    edits: int
    """Operations that one of the two has and the other has not."""
    before: int
    after: int
    """The operations of each."""


def tables_of(catalog: Catalog, plan: Plan) -> list[Array]:
    """Return the rows of each atom as columns of codes, in its order and sorted by it."""
    tables = []
    for atom, order in zip(plan.atoms, plan.orders, strict=True):
        relation = catalog.relations[atom.relation]
        columns = relation.unpack(relation.rows())[list(order)]
        tables.append(np.ascontiguousarray(columns[:, np.lexsort(columns[::-1])]))
    return tables


def trace_distance(
    plan: Plan, before: Sequence[Array], after: Sequence[Array], *, stops: bool = False
) -> Distance:
    """Return the distance of the traces on two versions of the tables. All steps are leaps.

    With `stops`, the last leap stops at its first value, as a short-circuit evaluation does.
    """
    leaps = [step for step in plan.steps if isinstance(step, Leap)]
    assert len(leaps) == len(plan.steps)
    starts, parts = [0], []
    for leap in leaps:
        for atom, column in zip(leap.atoms, leap.columns, strict=True):
            parts.append((atom, plan.orders[atom].index(column)))
        starts.append(len(parts))
    height = max(map(len, plan.orders))
    versions = [_laid_out(tables, height) for tables in (before, after)]
    found = _distance(
        np.array(starts), np.array(parts), versions[0][0], versions[0][1], versions[1][0],
        versions[1][1], stops,
    )  # fmt: skip
    return Distance(*(int(number) for number in found))


def _laid_out(tables: Sequence[Array], height: int) -> tuple[Array, Array]:
    """Return all tables side by side, and where each of them begins."""
    starts = np.cumsum([0, *(table.shape[1] for table in tables)])
    rows = np.zeros((height, int(starts[-1])), np.int64)
    for table, start in zip(tables, starts.tolist(), strict=False):
        rows[: table.shape[0], start : start + table.shape[1]] = table
    return rows, starts


@njit(cache=True)
def _seek(values, at, end, target):
    """Return the first position in [at, end) with a value that is not below `target`."""
    step = 1
    while at < end and values[at] < target:
        low = at + 1
        at = min(at + step, end)
        step *= 2
        if at == end or values[at] >= target:
            high = at
            while low < high:
                middle = (low + high) >> 1
                if values[middle] < target:
                    low = middle + 1
                else:
                    high = middle
            return low
    return at


@njit(cache=True)
def _leap(rows, parts, start, stop, low, high, at, values, filled, operations, stops):
    """Run one leap; return its values (from `filled` on) and operations, and their numbers.

    The arrays are returned because they grow.
    """
    written = 0
    here = np.full(stop - start, _LOWEST)  # where each iterator is, or _LOWEST
    for p in range(start, stop):
        at[p] = low[parts[p, 0], parts[p, 1]]
    place, first, value = start, _LOWEST, _LOWEST
    while True:
        atom, depth = parts[place, 0], parts[place, 1]
        position = _seek(rows[depth], at[place], high[atom, depth], value)
        at[place] = position
        is_at_end = position == high[atom, depth]
        found = _HIGHEST if is_at_end else rows[depth, position]
        if written == operations.shape[0]:
            operations = np.concatenate((operations, np.empty_like(operations)))
        operations[written, _PLACE] = place
        operations[written, _FIRST], operations[written, _LAST] = first, found
        written += 1
        if is_at_end:
            return values, filled, operations, written
        here[place - start] = value = found
        place = start
        while place < stop and here[place - start] == value:
            place += 1
        first = value
        if place == stop:
            if filled == values.shape[0]:
                values = np.concatenate((values, np.empty_like(values)))
            values[filled] = value
            filled += 1
            if stops:
                return values, filled, operations, written
            place = start
            value += 1


@njit(cache=True)
def _differing(start, stop, one, ones, other, others):
    """Return how many operations only one of two lists has. Those of an iterator ascend."""
    edits = 0
    for place in range(start, stop):
        i = j = 0
        while True:
            while i < ones and one[i, _PLACE] != place:
                i += 1
            while j < others and other[j, _PLACE] != place:
                j += 1
            if i == ones and j == others:
                break
            order = 0
            if i == ones:
                order = 1
            elif j == others:
                order = -1
            else:
                for field in (_FIRST, _LAST):
                    if one[i, field] != other[j, field]:
                        order = -1 if one[i, field] < other[j, field] else 1
                        break
            edits += order != 0
            i += order <= 0
            j += order >= 0
    return edits


@njit(cache=True)
def _distance(starts, parts, rows_0, starts_0, rows_1, starts_1, stops):
    """Return the edit distance, and the number of operations of each version."""
    atoms, levels, height = starts_0.shape[0] - 1, starts.shape[0] - 1, rows_0.shape[0]
    low = np.zeros((2, atoms, height + 1), np.int64)
    high = np.zeros((2, atoms, height + 1), np.int64)
    for atom in range(atoms):
        low[0, atom, 0], high[0, atom, 0] = starts_0[atom], starts_0[atom + 1]
        low[1, atom, 0], high[1, atom, 0] = starts_1[atom], starts_1[atom + 1]
    at = np.zeros(parts.shape[0], np.int64)
    # The values of the nodes on the way down, as a stack: from begin[level] to end[level].
    values = [np.empty(1024, np.int64), np.empty(1024, np.int64)]
    lists = [np.empty((1024, 3), np.int64), np.empty((1024, 3), np.int64)]
    begin, end = np.zeros((levels + 1, 2), np.int64), np.zeros((levels + 1, 2), np.int64)
    status = np.zeros(levels + 1, np.int64)
    status[0] = 3
    edits = 0
    total = np.zeros(2, np.int64)
    level, down = 0, True
    while level >= 0:
        start, stop = starts[level], starts[level + 1]
        if down:
            written = np.zeros(2, np.int64)
            for v in range(2):
                begin[level, v] = end[level, v] = 0 if level == 0 else end[level - 1, v]
                if (status[level] >> v) & 1:
                    rows = rows_0 if v == 0 else rows_1
                    values[v], end[level, v], lists[v], written[v] = _leap(
                        rows, parts, start, stop, low[v], high[v], at, values[v],
                        begin[level, v], lists[v], stops and level == levels - 1,
                    )  # fmt: skip
                    total[v] += written[v]
            if status[level] == 3:
                edits += _differing(start, stop, lists[0], written[0], lists[1], written[1])
            else:
                edits += written[0] + written[1]
            down = False
        value = _HIGHEST
        for v in range(2):
            if begin[level, v] < end[level, v]:
                value = min(value, values[v][begin[level, v]])
        if value == _HIGHEST or level == levels - 1:
            level -= 1
            continue
        status[level + 1] = 0
        for v in range(2):
            if begin[level, v] < end[level, v] and values[v][begin[level, v]] == value:
                begin[level, v] += 1
                status[level + 1] |= 1 << v
                rows = rows_0 if v == 0 else rows_1
                for p in range(start, stop):
                    atom, depth = parts[p, 0], parts[p, 1]
                    first = _seek(rows[depth], low[v, atom, depth], high[v, atom, depth], value)
                    low[v, atom, depth + 1] = first
                    high[v, atom, depth + 1] = _seek(
                        rows[depth], first, high[v, atom, depth], value + 1
                    )
        level += 1
        down = True
    return edits, total[0], total[1]
