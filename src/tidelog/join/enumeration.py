"""The rows that a rule derives, enumerated and looked up without storing them.

A join that starts from some rows of one atom gives all results that have these rows. So the result
comes in parts: the rows of one atom, the *leader*, are taken in the order of the first column of
the head, as many at a time as give a result of bounded size. Each part is sorted by itself, and the
parts are in order. Between two parts nothing is kept but a position, so memory is linear in the
atoms' rows, whatever the size of the result.

If the join binds slots in the order in which the head has them, it writes sorted rows. Then its
output is taken as it comes, chunk by chunk, and nothing is sorted. A bound asks for an order that
has the bounded column first, so its rows often have to be sorted. If a large share of all
combinations of rows are results, it is faster to test each of them, in the order of the head.

Whoever reads all rows in any order gets columns instead, which are never packed into rows
(spreading.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.join.gather import distinct
from tidelog.join.joins import HEAD, AtomReading, Instances, Reader, reading
from tidelog.join.nesting import NestedResults, nested_results, nested_size
from tidelog.join.rules import RuleJoins
from tidelog.join.spreading import Columns
from tidelog.kernel.join_layout import PLAIN
from tidelog.kernel.marks import ALIVE
from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words, descriptors_of
from tidelog.store.sorting import sort_pieces, sorted_order
from tidelog.store.versions import Version

_FIRST_PART = 1  # rows of the leader: the first results come at once
_PART_RESULTS = 1 << 20  # results of a part, as far as possible
_DENSE = 8  # one in so many combinations of rows is a result, or more
_MOST_COMBINATIONS = 1 << 32


class LedResults:
    """What the rows of one atom, the leader, lead to, by the codes of one of its columns."""

    def __init__(
        self, rows: Words, codes: NDArray[np.int64], results: Callable[[Words], Words]
    ) -> None:
        """Take the rows, their codes, and the function that returns the results of some rows."""
        self._rows, self.codes, self._results = rows, codes, results
        self._sort()

    def _sort(self) -> None:
        codes = self.codes
        if len(codes) > 1 and (codes[1:] < codes[:-1]).any():
            by_code = np.argsort(codes, kind="stable")
            self._rows = np.ascontiguousarray(self._rows[:, by_code])
            self.codes = codes[by_code]

    def rank(self, used: NDArray[np.int64], ranks: NDArray[np.int64]) -> None:
        """Replace the codes by their ranks in another order; `used` are all codes, sorted."""
        self.codes = ranks[np.searchsorted(used, self.codes)]
        self._sort()

    def between(self, low: int, high: int) -> Words:
        """Return the results of the rows with codes from `low` up to `high`, sorted."""
        start = np.searchsorted(self.codes, low, side="left")
        stop = np.searchsorted(self.codes, high, side="right")
        return self._results(np.ascontiguousarray(self._rows[:, start:stop]))


def parts_in_order(
    sources: Sequence[LedResults], order: NDArray[np.int64] | None = None
) -> Iterator[Words]:
    """Yield the united results of several leaders in parts, each sorted and without duplicates.

    Results with the same code in the leading column are in one part. Parts follow these codes, or
    the permutation `order` of the distinct codes of all leaders.
    """
    if order is not None:
        used = np.unique(np.concatenate([source.codes for source in sources]))
        ranks = np.empty(len(used), np.int64)
        ranks[order] = np.arange(len(used))
        for source in sources:
            source.rank(used, ranks)
    codes = sources[0].codes
    if len(sources) > 1:
        codes = np.sort(np.concatenate([source.codes for source in sources]))
    start, size, n = 0, _FIRST_PART, len(codes)
    while start < n:
        low, high = codes[start], codes[min(start + size, n) - 1]
        found = [source.between(low, high) for source in sources]
        part = found[0] if len(found) == 1 else distinct(np.concatenate(found, axis=1))[0]
        if part.shape[1]:
            yield part
        stop = int(np.searchsorted(codes, high, side="right"))
        taken = stop - start
        start = stop
        fitting = taken * _PART_RESULTS // max(1, part.shape[1])
        size = max(1, min(fitting, 4 * taken))


class RuleResults:
    """The result of one rule, computed when it is read."""

    def __init__(self, catalog: Catalog, rule: LoweredRule, *, is_injective: bool) -> None:
        """Prepare; `is_injective` says that no row has two derivations."""
        self._catalog, self._rule = catalog, rule
        self._joins = RuleJoins(catalog, rule)
        self._is_injective = is_injective

    @property
    def joins(self) -> RuleJoins:
        """The joins of the rule."""
        return self._joins

    def all(self, version: Version) -> Words:
        """Return all rows, sorted. They have to fit into memory."""
        reader = self._reader(version)
        return self._united(self._joins.run(None, PLAIN, reader, None))

    def size(self, version: Version) -> int:
        """Return the number of rows, without storing them.

        If no row has two derivations, they are not even enumerated: ranges of rows are counted.
        """
        if not self._is_injective:
            leader = self.leader(0)
            if leader is None:
                return int(self.all(version).shape[1])
            parts = parts_in_order([self.led(leader, version)])
            return sum(part.shape[1] for part in parts)
        found = self._counted(version)
        if found is not None:
            return found
        reader = self._merged_reader(version)
        return sum(
            instances.rows.shape[1] for instances in self._joins.run(None, PLAIN, reader, None)
        )

    def _counted(self, version: Version) -> int | None:
        """Return the number of rows if no row need be enumerated for it."""
        size = nested_size(self._catalog, self._rule, version)
        if size is not None:
            return size
        return self._joins.count(self._merged_reader(version))

    def derivations(self, rows: Words, version: Version) -> NDArray[np.int64]:
        """Return how many derivations each of the sorted, distinct rows has."""
        counts = np.zeros(rows.shape[1], np.int64)
        if rows.shape[1] == 0:
            return counts
        driver = [Run(rows)]
        for instances in self._joins.run(HEAD, PLAIN, self._reader(version), driver):
            found, sums = distinct(instances.rows.copy())
            places = Run(rows).locate(found, 0)
            counts[places] += sums
        return counts

    def leader(self, column: int) -> tuple[int, int] | None:
        """Return an atom that has a column of the head, and the column there; None if none has."""
        slot = self._rule.head.args[column]
        for place, atom in enumerate(self._rule.atoms):
            if slot is not None and slot in atom.args and not atom.negated:
                return place, atom.args.index(slot)
        return None

    def columns(self, version: Version, rows_at_once: int) -> Iterator[Columns] | None:
        """Return the rows as columns of ordinals, in no order: the fastest way to read them all.

        Returns None if rows can have several derivations, or if Python takes part in the join.
        """
        if not self._is_injective:
            return None
        nested = nested_results(self._catalog, self._rule, version)
        if nested is not None:
            return self._metered(self._nested(nested, rows_at_once))
        found = self._joins.spread(self._merged_reader(version), rows_at_once)
        return None if found is None else self._metered(found)

    def _nested(self, nested: NestedResults, rows_at_once: int) -> Iterator[Columns]:
        for start in range(0, nested.size, rows_at_once):
            stop = min(nested.size, start + rows_at_once)
            yield nested.columns(start, stop, self._catalog.workers)

    def _metered(self, parts: Iterator[Columns]) -> Iterator[Columns]:
        for part in parts:
            self._catalog.meter.found(part.shape[1])
            yield part

    def sorted_parts(self, version: Version, leader: tuple[int, int]) -> Iterator[Words] | None:
        """Return the rows in parts, in the order of their codes, without sorting them.

        Returns None if the join binds slots in another order than that of the head.
        """
        place, _ = leader
        relation = self._catalog.relations[self._rule.atoms[place].relation]
        if not self._is_injective:
            return None
        reader = self._merged_reader(version)
        for is_bounded in (True, False):
            if self._joins.writes_sorted_rows(place, relation.stored, is_bounded=is_bounded) and (
                is_bounded or self._is_dense(version)
            ):
                return self._streamed(place, relation.rows(version), reader, is_bounded)
        return None

    def _is_dense(self, version: Version) -> bool:
        """Return whether a large share of the combinations of rows are results."""
        sizes = (self._catalog.relations[atom.relation].stored for atom in self._rule.atoms)
        combinations = math.prod(sizes)
        if combinations > _MOST_COMBINATIONS:  # counting them would take too long
            return False
        found = self._counted(version)
        return found is not None and found * _DENSE >= combinations

    def _streamed(
        self, place: int, rows: Words, reader: Reader, is_bounded: bool
    ) -> Iterator[Words]:
        start, size, n = 0, _FIRST_PART, rows.shape[1]
        while start < n:
            found = 0
            driver = [Run(np.ascontiguousarray(rows[:, start : start + size]))]
            for instances in self._joins.run(
                place, PLAIN, reader, driver, is_bounded=is_bounded, begins_small=start == 0
            ):
                found += instances.rows.shape[1]
                yield instances.rows.copy()
            start += size
            size *= 4 if found < _PART_RESULTS else 1

    def leading_codes(self, leader: tuple[int, int], version: Version) -> NDArray[np.int64]:
        """Return the distinct codes of a leading column, sorted."""
        place, column = leader
        relation = self._catalog.relations[self._rule.atoms[place].relation]
        return np.unique(relation.unpack(relation.rows(version))[column])

    def led_by(self, leader: tuple[int, int], low: int, high: int, version: Version) -> Words:
        """Return the rows, sorted, that have codes from `low` up to `high` in a leading column."""
        place, column = leader
        relation = self._catalog.relations[self._rule.atoms[place].relation]
        rows = relation.rows(version)
        codes = relation.unpack(rows)[column]
        wanted = np.ascontiguousarray(rows[:, (codes >= low) & (codes <= high)])
        return self._from(place, wanted, self._reader(version))

    def led(self, leader: tuple[int, int], version: Version) -> LedResults:
        """Return the results by the codes of a leading column."""
        place, column = leader
        relation = self._catalog.relations[self._rule.atoms[place].relation]
        rows = relation.rows(version)
        reader = self._merged_reader(version)
        return LedResults(
            rows, relation.unpack(rows)[column], lambda own: self._from(place, own, reader)
        )

    def _from(self, place: int, rows: Words, reader: Reader) -> Words:
        """Return the results that have some rows of one atom, sorted."""
        if rows.shape[1] == 0:
            return self._catalog.relations[self._rule.head.relation].no_rows()
        if rows.shape[1] > 1:
            rows = np.ascontiguousarray(rows[:, sorted_order(rows)])
        return self._united(self._joins.run(place, PLAIN, reader, [Run(rows)]))

    def _united(self, found: Iterator[Instances]) -> Words:
        """Return what a join has found, sorted and distinct."""
        parts = [instances.rows.copy() for instances in found]
        if not parts:
            return self._catalog.relations[self._rule.head.relation].no_rows()
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return sort_pieces(rows) if self._is_injective else distinct(rows)[0]

    def _merged_reader(self, version: Version) -> Reader:
        """Read all runs of an atom as one without marks, so that rows are found in order."""
        merged: dict[tuple[str, tuple[int, ...]], AtomReading] = {}

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            key = (atom.relation, order)
            if key not in merged:
                relation = self._catalog.relations[atom.relation]
                index = relation.indexes.get(order)
                run = None if index is None else index.only_run()
                if run is None:
                    run = relation.arranged(Run(relation.rows(version)), order)
                merged[key] = AtomReading([run], descriptors_of([run]), ALIVE)
            return merged[key]

        return read

    def _reader(self, version: Version) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            return reading(self._catalog.relations[atom.relation].index(order), version)

        return read
