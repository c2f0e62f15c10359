"""Counts and sums over an inequality join, without its pairs.

    below(k, n) :- key(k), n = count : { a(k, x), b(k, y), x < y }.

A changed row of `a` adds as many pairs as there are rows of `b` in its range, and their sum is the
sum of that range. Both are read from a scan tree in O(log n) (store/run_tree.py), however many
pairs there are. The same the other way round:

    change = sum over da of range(b before the epoch)  +  sum over db of range(a after the epoch)

If the group has columns that only one atom has, as in

    rank(k, x, n) :- a(k, x), n = count : { b(k, y), y < x }.

a changed row of the other atom changes one group for each of its partners. Then these are
enumerated, which is no more than the groups that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidelog.join.ranges import PartnerRange, RangedPairs
from tidelog.kernel import scan
from tidelog.maintain.aggregate import Array
from tidelog.maintain.strategy import Deltas
from tidelog.maintain.sums import Siblings, Sums
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.versions import Version

_HALF = 32
_LOW_HALF = (1 << _HALF) - 1


class _Side:
    """One of the two atoms: what its rows contribute, with their partners."""

    def __init__(
        self, catalog: Catalog, aggregation: Aggregation, pairs: RangedPairs, place: int
    ) -> None:
        join = aggregation.ranged
        assert join is not None
        self.place = place
        own, other = join.rule.atoms[place], join.rule.atoms[1 - place]
        self.relation: StoredRelation = catalog.relations[own.relation]
        self._catalog, self._source = catalog, catalog.relations[aggregation.source]
        self._pairs = pairs
        self._source_group = list(aggregation.group)
        read = join.reads[place]
        self.range = None if read is None else PartnerRange(catalog, read)
        self._group: list[int] = []
        if read is not None:
            slots = [join.rule.head.args[column] for column in aggregation.group]
            self._group = [own.args.index(slot) for slot in slots]
        self._columns: dict[int | None, tuple[int | None, int | None]] = {}
        """For each target its column here, or else its column in the other atom."""
        for part in aggregation.each:
            slot = None if part.target is None else join.rule.head.args[part.target]
            self._columns[part.target] = (
                own.args.index(slot) if slot in own.slots else None,
                other.args.index(slot) if slot is not None and slot in other.slots else None,
            )

    def prepare(self) -> None:
        """Build the orders that small changes need."""
        if self.range is not None:
            self.range.prepare()
        else:
            self._pairs.prepare(self.place)

    def partials(self, rows: Words, version: Version) -> Iterator[tuple[Array, dict[Any, Array]]]:
        """Yield groups, and for each target what the pairs of some rows add to them."""
        if self.range is None:
            for pairs in self._pairs.run(self.place, rows):
                yield self._of_pairs(self._source.ordinals(pairs))
            return
        ordinals = self.relation.ordinals(rows)
        low, high, which = self.range.between(ordinals)
        found: dict[Any, Array] = {}
        for target, (own, other) in self._columns.items():
            sums = self.range.sums(low, high, None if own is not None else other, version)
            if own is not None:
                value, count = ordinals[own, which], sums[scan.COUNT]
                sums = np.array([count, (value >> _HALF) * count, (value & _LOW_HALF) * count])
            found[target] = np.ascontiguousarray(sums)
        kept = next(iter(found.values()))[scan.COUNT] != 0
        self._catalog.meter.found(len(which))
        if not kept.all():
            which = which[kept]
            found = {t: np.ascontiguousarray(sums[:, kept]) for t, sums in found.items()}
        yield ordinals[self._group][:, which], found

    def _of_pairs(self, ordinals: Array) -> tuple[Array, dict[Any, Array]]:
        """Return groups and sums of pairs, each by itself."""
        found = {}
        for target in self._columns:
            value = ordinals[0 if target is None else target]
            found[target] = np.array([np.ones_like(value), value >> _HALF, value & _LOW_HALF])
        return ordinals[self._source_group], found


class RangeSums(Sums):
    """Maintains a count, a sum or a mean over the pairs of a join."""

    name = "range sums"
    why = "the partners of a changed row are summed up by a scan tree"
    state = "no pairs; one sum and support count a group"
    reads_source = False

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether this is one aggregate over ranges."""
        return aggregation.ranged is not None and not aggregation.parts

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        assert aggregation.ranged is not None
        self._pairs = RangedPairs(catalog, aggregation.ranged)
        self._sides = [_Side(catalog, aggregation, self._pairs, place) for place in (0, 1)]

    def bootstrap(self) -> None:
        """Sum up the ranges of all rows of an atom."""
        self._pairs.check(new_only=False)
        super().bootstrap()

    def prepare(self) -> None:
        """Build the orders that small changes need."""
        for side in self._sides:
            side.prepare()

    def update(self) -> Deltas:
        """Add the pairs that come, and subtract those that go."""
        self._pairs.check(new_only=True)
        return super().update()

    def _is_changed(self) -> bool:
        return any(side.relation.delta for side in self._sides)

    def _changed(self) -> tuple[Words, Words]:
        parts: list[list[tuple[Array, dict[Any, Array]]]] = [[], []]
        for side, version in zip(self._sides, (Version.OLD, Version.NEW), strict=True):
            delta = side.relation.delta
            for part, rows in zip(parts, (delta.inserted, delta.deleted), strict=True):
                if rows.shape[1]:
                    part.extend(side.partials(rows, version))
        deleted, inserted = self._sum_up(self._sums, *parts)
        self._accept(inserted)
        return self._packed(deleted), self._packed(inserted)

    def _fill(self, sums: Any) -> tuple[Array, Array]:
        side = next(side for side in self._sides if side.range is not None)
        rows = side.relation.rows(Version.NEW)
        return self._sum_up(sums, list(side.partials(rows, Version.NEW)), [])

    def _sum_up(
        self,
        sums: Any,
        added: list[tuple[Array, dict[Any, Array]]],
        subtracted: list[tuple[Array, dict[Any, Array]]],
    ) -> tuple[Array, Array]:
        """Add partial sums to the groups; return the result rows to delete and to insert."""
        parts = [*added, *subtracted]
        n = sum(groups.shape[1] for groups, _ in parts)
        if n == 0:
            none = np.empty((len(self._result.domains), 0), np.int64)
            return none, none
        groups = np.ascontiguousarray(np.concatenate([groups for groups, _ in parts], axis=1))
        partials = {
            target: np.ascontiguousarray(np.concatenate([p[target] for _, p in parts], axis=1))
            for target in parts[0][1]
        }
        return self._add_partials(sums, groups, sum(g.shape[1] for g, _ in added), partials)

    def _add_partials(
        self, sums: Any, groups: Array, added: int, partials: dict[Any, Array]
    ) -> tuple[Array, Array]:
        found: tuple[Array, Array] = sums.add(
            groups, self._own_key, None, added, partials[self._aggregation.target]
        )
        return found


class RangeSiblings(RangeSums, Siblings):
    """Maintains several counts, sums and means over the same pairs."""

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether these are several aggregates over ranges."""
        return aggregation.ranged is not None and bool(aggregation.parts)

    def _add_partials(
        self, sums: Any, groups: Array, added: int, partials: dict[Any, Array]
    ) -> tuple[Array, Array]:
        found: tuple[Array, Array] = sums.add(
            groups, self._own_key, added, lambda target: _or_count(partials, target)
        )
        return found


def _or_count(partials: dict[Any, Array], target: int | None) -> Array:
    """Return the sums of a target. Any of them has the counts, if nothing is summed up."""
    return partials[target] if target in partials else next(iter(partials.values()))
