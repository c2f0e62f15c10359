"""The result of a join as nested ranges: its size, and its rows by number, as columns.

    s             r with x below y     t with z above y     results before
    (k, y) = 1, 5      rows 0 to 3          rows 2 to 4           0
             1, 9      rows 0 to 4          row 4                 6
             2, 3      row 7                rows 8 to 9           10

For each row of an atom, a search finds the ranges of those that depend on it, with one pass over
rows that are sorted alike. Rows without a partner are left out, and the results of the others are
counted, from the last atom to the first. All of this takes time and room for the atoms' rows, and
none for the result. Then the results are written in any number of parts, by several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.join.spreading import Columns
from tidelog.kernel import nesting as kernel
from tidelog.kernel import wavelet
from tidelog.logic.program import Comparison
from tidelog.plan.body import LoweredRule
from tidelog.plan.ranges import RangeBound, RangeRead
from tidelog.plan.theta.nesting import Nesting, nestings
from tidelog.runtime.workers import Workers
from tidelog.store.catalog import Catalog
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation, ordinals_by
from tidelog.store.run import Run
from tidelog.store.versions import Version

Array = NDArray[np.int64]

_ROOM = 1 << 10  # ranges that are found before their rows are written
_MANY = 1 << 16  # rows that several workers find, or write


@dataclass
class _Level:
    """The rows of one atom, as columns, with what depends on them."""

    columns: Columns
    size: int
    """The number of rows. Columns may be longer."""
    order: tuple[int, ...]
    """The order in which they are sorted."""
    below: dict[int, Array]
    """For each atom that depends on this one, by its level: the range of each row, in two rows."""
    before: Array | None = None
    """The sums of the results before each row; None if each row has one."""


class NestedResults:
    """The results of one rule, as they were when this was made."""

    def __init__(self, nesting: Nesting, rule: LoweredRule, levels: Sequence[_Level]) -> None:
        self._levels = levels  # the kernel has addresses only
        first = levels[0]
        self.size = first.size if first.before is None else int(first.before[first.size])
        """The number of results."""
        steps = np.zeros((len(levels), 4), np.int64)
        steps[0] = (-1, 0, first.size, 0)
        for parent, level in enumerate(levels):
            for step, (low, high) in level.below.items():
                steps[step, :3] = (parent, low.ctypes.data, high.ctypes.data)
            if level.before is not None:
                steps[parent, kernel.BEFORE] = level.before.ctypes.data
        self._steps = steps
        places = []
        for slot in rule.head.args:
            atoms = (rule.atoms[atom.place].args for atom in nesting)
            step, args = next((s, args) for s, args in enumerate(atoms) if slot in args)
            column = levels[step].columns[args.index(slot)]
            places.append((step, column.ctypes.data, len(column)))
        self._columns = np.array(places, np.int64).reshape(-1, 3)

    def columns(self, start: int, stop: int, workers: Workers) -> Columns:
        """Return the results with these numbers as columns of ordinals."""
        into = np.empty((len(self._columns), stop - start), np.int64)

        def write(low: int, high: int) -> None:
            at = np.empty((2, len(self._steps)), np.int64)
            heads = np.empty((len(self._steps) + 1, _ROOM), np.int64)
            kernel.write(self._steps, self._columns, start + low, into, low, high, at, heads)

        _sliced(workers, stop - start, write)
        return into


def nested_results(catalog: Catalog, rule: LoweredRule, version: Version) -> NestedResults | None:
    """Return the results of a rule as nested ranges; None if they are not, or are too many."""
    return _results(catalog, rule, version, nestings(rule))


def nested_size(catalog: Catalog, rule: LoweredRule, version: Version) -> int | None:
    """Return the number of results; None if their atoms cannot be nested, or they are too many.

    An atom on which no other depends may have bounds on two columns.
    """
    found = _results(catalog, rule, version, nestings(rule, to_count=True))
    return None if found is None else found.size


def _results(
    catalog: Catalog, rule: LoweredRule, version: Version, found: Sequence[Nesting]
) -> NestedResults | None:
    if not found:
        return None
    nesting = min(found, key=lambda nesting: _unsorted(catalog, rule, nesting))
    levels: dict[int, _Level] = {}
    for step in reversed(range(len(nesting))):
        order, keys = _order(nesting, step)
        relation = catalog.relations[rule.atoms[nesting[step].place].relation]
        columns, order = _sorted_columns(relation, order, keys, version)
        level = _Level(columns, columns.shape[1], order, {})
        followers = [i for i in range(step + 1, len(nesting)) if nesting[i].parent == step]
        for inner in followers:
            level.below[inner] = _ranges(level, levels[inner], nesting[inner].read, catalog.workers)
        if followers and not _count(level, levels, nesting):
            return None
        levels[step] = level
    return NestedResults(nesting, rule, [levels[step] for step in range(len(nesting))])


def _ranges(level: _Level, partners: _Level, read: RangeRead | None, workers: Workers) -> Array:
    """Return for each row of a level where its partners are: their first one, and the end."""
    assert read is not None
    low, high = found = np.empty((2, level.size), np.int64)
    by_order = sorted(read.keys, key=lambda pair: partners.order.index(pair[1]))
    keys = np.array(by_order, np.int64).reshape(-1, 2)
    bounds = np.array([_described(bound) for bound in read.bounds], np.int64)

    def find(start: int, stop: int) -> None:
        kernel.find_partners(
            level.columns, start, stop, partners.columns, partners.size, keys, read.column, bounds,
            read.least, read.most, low, high,
        )  # fmt: skip

    _sliced(workers, level.size, find)
    return found


def _count_points(
    level: _Level, partners: _Level, read: RangeRead, ranges: Array, counts: Array
) -> bool:
    """Multiply counts by the partners in a range that are within limits of a second column.

    Returns False if there are too many results.
    """
    limits = np.empty((2, level.size), np.int64)
    bounds = np.array([_described(bound) for bound in read.bounds], np.int64)
    kernel.limits(level.columns, level.size, bounds, read.least, read.most, limits)
    values = partners.columns[read.column]
    in_order = np.sort(values)
    before = np.empty((partners.size.bit_length(), partners.size + 1), np.int32)
    wavelet.build(np.searchsorted(in_order, values), np.empty_like(values), before)
    least = np.searchsorted(in_order, limits[0])
    behind = np.searchsorted(in_order, limits[1], side="right")
    return bool(wavelet.multiply_by_points(before, ranges, least, behind, level.size, counts))


def _described(bound: RangeBound) -> tuple[int, ...]:
    is_upper = bound.op in (Comparison.LT, Comparison.LE)
    is_strict = bound.op in (Comparison.LT, Comparison.GT)
    return is_upper, is_strict, bound.column, bound.offset, bound.least, bound.most


def _count(level: _Level, levels: Mapping[int, _Level], nesting: Nesting) -> bool:
    """Count the results of each row, and leave out rows without any.

    Returns False if there are too many results.
    """
    counts = np.ones(level.size, np.int64)
    for inner, (low, high) in level.below.items():
        also, before = nesting[inner].also, levels[inner].before
        if also is not None:
            if not _count_points(level, levels[inner], also, level.below[inner], counts):
                return False
            continue
        sums = counts if before is None else before
        if not kernel.multiply(low, high, sums, before is None, level.size, counts):
            return False
    level.before = np.empty(level.size + 1, np.int64)
    kept = int(kernel.add_up(counts, level.size, level.before))
    if 0 <= kept < level.size:
        for rows in (level.columns, *level.below.values()):
            kernel.leave_out(counts, level.size, rows)
        level.size = kept
    return kept >= 0


def _sliced(workers: Workers, size: int, run: Callable[[int, int], object]) -> None:
    if size >= _MANY:
        workers.slices(size, run)
    elif size:
        run(0, size)


# --- orders ---


def _order(nesting: Nesting, step: int) -> tuple[tuple[int, ...], int]:
    """Return the first columns by which the rows of an atom are sorted.

    The second result says how many of them, at the beginning, may come in any order.
    """
    read = nesting[step].read
    if read is not None:
        keys = tuple(column for _, column in read.keys)
        return (*keys, read.column), len(keys)
    if len(nesting) == 1:
        return (), 0
    below = nesting[1].read
    assert below is not None
    own = [*(column for column, _ in below.keys), below.bounds[0].column]
    return tuple(dict.fromkeys(own)), 0


def _unsorted(catalog: Catalog, rule: LoweredRule, nesting: Nesting) -> int:
    """Return how many rows have to be sorted for a nesting."""
    total = 0
    for step, atom in enumerate(nesting):
        relation = catalog.relations[rule.atoms[atom.place].relation]
        if _stored_order(relation, *_order(nesting, step)) is None:
            total += relation.stored
    return total


def _stored_order(
    relation: StoredRelation, order: tuple[int, ...], keys: int
) -> tuple[int, ...] | None:
    """Return an order of a relation that begins with some columns, and has one run."""
    for stored, index in relation.indexes.items():
        is_alike = sorted(stored[:keys]) == sorted(order[:keys])
        if is_alike and stored[keys : len(order)] == order[keys:] and index.only_run() is not None:
            return stored
    return None


def _sorted_columns(
    relation: StoredRelation, order: tuple[int, ...], keys: int, version: Version
) -> tuple[Columns, tuple[int, ...]]:
    """Return the rows of a relation as columns of ordinals, and the order that they have."""
    stored = _stored_order(relation, order, keys)
    if stored is not None:
        index = relation.indexes[stored]
        run, layout = index.only_run(), index.layout
        assert run is not None
        return ordinals_by(run.words, layout.biased), stored
    whole = (*order, *(c for c in range(len(relation.domains)) if c not in order))
    run = relation.arranged(Run(relation.rows(version)), whole)
    return ordinals_by(run.words, Layout(whole, relation.domains).biased), whole
