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
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidelog.join.gather import distinct
from tidelog.join.joins import HEAD, AtomReading, Instances, Reader, reading
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.kernel.marks import ALIVE
from tidelog.plan.body import AtomUse, LoweredRule
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words, descriptors_of, sort_pieces, sorted_order
from tidelog.store.versions import Version

_FIRST_PART = 1  # rows of the leader: the first results come at once
_PART_RESULTS = 1 << 20  # results of a part, as far as possible
_DENSE = 8  # one in so many combinations of rows is a result, or more
_MOST_COMBINATIONS = 1 << 32


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
            return sum(part.shape[1] for part in self.parts(version, self.leader(0)))
        reader = self._merged_reader(version)
        found = self._joins.count(reader)
        if found is not None:
            return found
        return sum(
            instances.rows.shape[1] for instances in self._joins.run(None, PLAIN, reader, None)
        )

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
                is_bounded or self._is_dense(reader)
            ):
                return self._streamed(place, relation.rows(version), reader, is_bounded)
        return None

    def _is_dense(self, reader: Reader) -> bool:
        """Return whether a large share of the combinations of rows are results."""
        sizes = (self._catalog.relations[atom.relation].stored for atom in self._rule.atoms)
        combinations = math.prod(sizes)
        if combinations > _MOST_COMBINATIONS:  # counting them would take too long
            return False
        found = self._joins.count(reader)
        return found is not None and found * _DENSE >= combinations

    def _streamed(
        self, place: int, rows: Words, reader: Reader, is_bounded: bool
    ) -> Iterator[Words]:
        start, size, n = 0, _FIRST_PART, rows.shape[1]
        while start < n:
            found = 0
            driver = [Run(np.ascontiguousarray(rows[:, start : start + size]))]
            for instances in self._joins.run(place, PLAIN, reader, driver, is_bounded=is_bounded):
                found += instances.rows.shape[1]
                yield instances.rows.copy()
            start += size
            size *= 4 if found < _PART_RESULTS else 1

    def parts(
        self,
        version: Version,
        leader: tuple[int, int] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> Iterator[Words]:
        """Yield the rows in parts, each sorted.

        If `leader` is an atom and a column, rows with the same value there are in one part. Parts
        follow the codes of that column, or the permutation `order` of the distinct codes.
        """
        if leader is None:
            yield self.all(version)
            return
        place, column = leader
        relation = self._catalog.relations[self._rule.atoms[place].relation]
        rows = relation.rows(version)
        codes = relation.unpack(rows)[column]
        yield from self._parts_of(rows, codes, place, version, order)

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

    def _parts_of(
        self,
        rows: Words,
        codes: NDArray[np.int64],
        place: int,
        version: Version,
        order: NDArray[np.int64] | None,
    ) -> Iterator[Words]:
        if order is not None:
            # The rank of each code in the order that is wanted.
            used = np.unique(codes)
            ranks = np.empty(len(used), np.int64)
            ranks[order] = np.arange(len(used))
            codes = ranks[np.searchsorted(used, codes)]
        if len(codes) > 1 and (codes[1:] < codes[:-1]).any():
            by_code = np.argsort(codes, kind="stable")
            rows, codes = np.ascontiguousarray(rows[:, by_code]), codes[by_code]
        reader = self._merged_reader(version)
        start, size, n = 0, _FIRST_PART, len(codes)
        while start < n:
            stop = min(start + size, n)
            stop = int(np.searchsorted(codes, codes[stop - 1], side="right"))
            part = self._from(place, np.ascontiguousarray(rows[:, start:stop]), reader)
            if part.shape[1]:
                yield part
            taken = stop - start
            start = stop
            fitting = taken * _PART_RESULTS // max(1, part.shape[1])
            size = max(1, min(fitting, 4 * taken))

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
        """Read all runs of an atom as one, so that the rows of a part are found in order."""
        merged: dict[tuple[str, tuple[int, ...]], AtomReading] = {}

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            key = (atom.relation, order)
            if key not in merged:
                relation = self._catalog.relations[atom.relation]
                run = relation.arranged(Run(relation.rows(version)), order)
                merged[key] = AtomReading([run], descriptors_of([run]), ALIVE)
            return merged[key]

        return read

    def _reader(self, version: Version) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            return reading(self._catalog.relations[atom.relation].index(order), version)

        return read
