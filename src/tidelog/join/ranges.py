"""The partners of rows in an inequality join: found by binary search, and summed up by scan trees.

A `PartnerRange` reads one relation in the order (key.., bounded column, ..). There the partners of
a row lie between two rows, `low` and `high`, so that many of them cost no more than a few.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.join.rules import RuleJoins
from tidelog.kernel import descriptors as d
from tidelog.kernel import rows as kernel
from tidelog.kernel import scan
from tidelog.kernel.join_layout import PLAIN
from tidelog.logic.program import Comparison
from tidelog.plan.body import AtomUse
from tidelog.plan.ranges import LEAST, MOST, RangeBound, RangedJoin, RangeRead
from tidelog.store.catalog import Catalog
from tidelog.store.domain import Domain
from tidelog.store.run import Run, Words
from tidelog.store.run_tree import RunTree
from tidelog.store.versions import Version

Array = NDArray[np.int64]
_STRICT = (Comparison.LT, Comparison.GT)


class PartnerRange:
    """Reads the partners of rows of another relation."""

    def __init__(self, catalog: Catalog, read: RangeRead) -> None:
        self._read = read
        self._relation = catalog.relations[read.relation]
        first = (*(column for _, column in read.keys), read.column)
        rest = (c for c in range(len(self._relation.domains)) if c not in first)
        self._order = (*first, *rest)

    def prepare(self) -> None:
        """Build the order that is read."""
        self._relation.index(self._order).descriptors()

    def between(self, ordinals: Array) -> tuple[Words, Words, Array]:
        """Return for rows of the other relation where their partners start and end.

        Both are rows that need not exist. The third result numbers the rows that are left: others
        can have no partners.
        """
        read, n = self._read, ordinals.shape[1]
        least, most = np.full(n, read.least), np.full(n, read.most)
        possible = np.ones(n, np.bool_)
        for bound in read.bounds:
            _narrow(bound, ordinals[bound.column], least, most, possible)
        low, high = limits(self._relation.domains[read.column])
        possible &= (least <= most) & (least <= high) & (most >= low)
        which = np.flatnonzero(possible)
        keys = {column: ordinals[own, which] for own, column in read.keys}
        return (
            self._row(keys, np.maximum(least[which], low), highest=False),
            self._row(keys, np.minimum(most[which], high), highest=True),
            which,
        )

    def beyond(self, rows: Words, *, larger: bool) -> tuple[Words, Words, Array]:
        """Return for rows of this relation where those with the same key and more (less) lie."""
        read = self._read
        ordinals = self._relation.ordinals(rows)
        value = ordinals[read.column]
        low, high = limits(self._relation.domains[read.column])
        which = np.flatnonzero(value < high if larger else value > low)
        keys = {column: ordinals[column, which] for _, column in read.keys}
        value = value[which]
        first = value + 1 if larger else np.full(len(which), low)
        last = np.full(len(which), high) if larger else value - 1
        return self._row(keys, first, highest=False), self._row(keys, last, highest=True), which

    def extremes(
        self, low: Words, high: Words, limit: int, *, largest: bool
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Return the smallest or largest ordinal of the bounded column, and which ranges have one.

        Rows with marks up to `limit` count, those that the epoch has inserted included.
        """
        index = self._relation.index(self._order)
        n, column = low.shape[1], self._read.column
        values, found = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        word, shift, mask = (int(part) for part in index.layout.by_column[column])
        d.extremes(
            index.descriptors(), index.layout.words, low, high, n, largest, limit, word, shift,
            mask, values, found,
        )  # fmt: skip
        return values + self._relation.domains[column].bias, found

    def sums(self, low: Words, high: Words, column: int | None, version: Version) -> Array:
        """Return for each range the count of its rows, and the sum of a column in two halves.

        Scan trees show the rows before the epoch; its changes are added.
        """
        column = self._read.column if column is None else column
        relation = self._relation
        index = relation.index(self._order)
        field, bias = index.layout.by_column[column], relation.domains[column].bias
        into = np.zeros((5, low.shape[1]), np.int64)
        for run in index.runs:
            run.tree(column, field, bias).fold_ranges(run, low, high, into)
        if version is Version.NEW and relation.delta:
            for rows, sign in ((relation.delta.inserted, 1), (relation.delta.deleted, -1)):
                if rows.shape[1]:
                    run = relation.arranged(Run(rows), self._order)
                    change = np.zeros_like(into)
                    RunTree(run, field, bias).fold_ranges(run, low, high, change)
                    into += sign * change
        return into[: scan.LOW + 1]

    def _row(self, keys: dict[int, Array], values: Array, *, highest: bool) -> Words:
        """Return the rows before (behind) all with these keys and values in the bounded column."""
        relation, n = self._relation, len(values)
        codes = np.empty((len(relation.domains), n), np.int64)
        for column, domain in enumerate(relation.domains):
            if column == self._read.column:
                codes[column] = values - domain.bias
            elif column in keys:
                codes[column] = keys[column] - domain.bias
            else:
                codes[column] = limits(domain)[highest] - domain.bias
        layout = relation.index(self._order).layout
        words = np.empty((layout.words, n), np.int64)
        kernel.pack(codes, n, layout.by_column, words)
        return words


def limits(domain: Domain) -> tuple[int, int]:
    """Return the smallest and the largest ordinal that a domain has a code for."""
    return (LEAST, MOST) if domain.is_raw else (domain.bias, domain.bias + domain.mask)


def _narrow(
    bound: RangeBound, values: Array, least: Array, most: Array, possible: NDArray[np.bool_]
) -> None:
    """Apply a bound to the limits of each row, in place."""
    offset, is_strict = bound.offset, bound.op in _STRICT
    limit = values + offset  # wraps around where it is beyond 64 bits
    is_above = values > MOST - offset if offset > 0 else np.zeros(len(values), np.bool_)
    is_below = values < LEAST - offset if offset < 0 else np.zeros(len(values), np.bool_)
    possible &= (values >= bound.least) & (values <= bound.most)
    if bound.op in (Comparison.LT, Comparison.LE):
        possible &= ~is_below
        if is_strict:
            possible &= is_above | (limit != LEAST)
        np.minimum(most, np.where(is_above, MOST, limit - is_strict), out=most)
    else:
        possible &= ~is_above
        if is_strict:
            possible &= is_below | (limit != MOST)
        np.maximum(least, np.where(is_below, LEAST, limit + is_strict), out=least)


class RangedPairs:
    """The pairs of a ranged join, enumerated where that is necessary."""

    def __init__(self, catalog: Catalog, join: RangedJoin) -> None:
        self._catalog, self._join = catalog, join
        self._joins = RuleJoins(catalog, join.rule)
        self._limited = [
            column for column in self._limited_columns() if column[2:] != (LEAST, MOST)
        ]

    def prepare(self, place: int) -> None:
        """Prepare the enumeration from small changes of an atom."""
        self._joins.prepare(place, PLAIN)

    def run(
        self, place: int | None, rows: Words | None, *, checks: bool = False
    ) -> Iterator[Words]:
        """Yield the pairs of some rows of an atom, as rows of the head; None stands for all pairs.

        Atoms before the one at `place` are read as after the epoch, those behind it as before. With
        `checks` failures are looked for.
        """
        after = self._reader(None) if checks else None
        driver = None if rows is None else [Run(rows)]
        for found in self._joins.run(place, PLAIN, self._reader(place), driver, after=after):
            yield found.rows

    def check(self, *, new_only: bool) -> None:
        """Raise an error if the rule fails on a pair, with `new_only` on one of changed rows.

        Only sums with constants can fail, and only for values that hardly anybody has. If no column
        can have such a value, there is nothing to do.
        """
        if not self._limited or not self._can_fail():
            return
        if not new_only:
            for _ in self.run(None, None, checks=True):
                pass
            return
        for place, atom in enumerate(self._join.rule.atoms):
            inserted = self._catalog.relations[atom.relation].delta.inserted
            if inserted.shape[1]:
                for _ in self.run(place, inserted, checks=True):
                    pass

    def _can_fail(self) -> bool:
        for relation, column, least, most in self._limited:
            low, high = limits(self._catalog.domains(relation)[column])
            if low < least or high > most:
                return True
        return False

    def _limited_columns(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield the columns that a sum is made of, with the values for which it succeeds."""
        for read, atom in zip(self._join.reads, self._join.rule.atoms, strict=True):
            if read is not None:
                yield read.relation, read.column, read.least, read.most
                for bound in read.bounds:
                    yield atom.relation, bound.column, bound.least, bound.most

    def _reader(self, driver: int | None) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            version = Version.NEW if driver is None or place < driver else Version.OLD
            return reading(self._catalog.relations[atom.relation].index(order), version)

        return read
