"""The rows that several rules derive, enumerated and looked up without storing them.

A row that two rules derive is one row. Where the order of rows matters, the rules are enumerated
side by side, in parts that have the same codes in the first column, and each part is sorted as a
whole. Rules whose heads have different constants in a column have no row in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from tidelog.join.enumeration import RuleResults, parts_in_order
from tidelog.join.gather import distinct
from tidelog.join.spreading import Columns
from tidelog.plan.body import LoweredRule
from tidelog.store.run import Words
from tidelog.store.versions import Version

Leaders = tuple[tuple[int, int], ...]
"""For each rule an atom, and its column."""


class UnitedResults:
    """The results of all rules of a relation."""

    def __init__(self, results: Sequence[RuleResults]) -> None:
        """Take the results of each rule."""
        self.each = tuple(results)
        self.are_disjoint = all(
            _have_no_common_row(one.joins.rule, two.joins.rule)
            for one, two in combinations(self.each, 2)
        )
        """Whether it is known that no row has two derivations."""

    def all(self, version: Version) -> Words:
        """Return all rows, sorted. They have to fit into memory."""
        return _united([results.all(version) for results in self.each])

    def size(self, version: Version) -> int:
        """Return the number of rows, without storing them.

        What several rules may derive has to be enumerated.
        """
        if self.are_disjoint:
            return sum(results.size(version) for results in self.each)
        leaders = self.leaders(0)
        if leaders is None:
            return int(self.all(version).shape[1])
        return sum(part.shape[1] for part in self.parts(version, leaders))

    def derivations(self, rows: Words, version: Version) -> NDArray[np.int64]:
        """Return how many derivations each of the sorted, distinct rows has."""
        counts = self.each[0].derivations(rows, version)
        for results in self.each[1:]:
            counts = counts + results.derivations(rows, version)
        return counts

    def columns(self, version: Version, rows_at_once: int) -> Iterator[Columns] | None:
        """Return the rows as columns of ordinals, in no order; None if they are to be compared."""
        if not self.are_disjoint:
            return None
        found = [results.columns(version, rows_at_once) for results in self.each]
        kept = [columns for columns in found if columns is not None]
        return chain.from_iterable(kept) if len(kept) == len(found) else None

    def leaders(self, column: int) -> Leaders | None:
        """Return for each rule an atom that has a column of the head; None if one has none."""
        found = [results.leader(column) for results in self.each]
        kept = tuple(leader for leader in found if leader is not None)
        return kept if len(kept) == len(found) else None

    def sorted_parts(self, version: Version, leaders: Leaders) -> Iterator[Words] | None:
        """Return the rows in parts, in the order of their codes, if nothing need be sorted."""
        if len(self.each) > 1:
            return None
        return self.each[0].sorted_parts(version, leaders[0])

    def parts(
        self, version: Version, leaders: Leaders, order: NDArray[np.int64] | None = None
    ) -> Iterator[Words]:
        """Yield the rows in parts, each sorted.

        Rows with the same code in the leading column are in one part. Parts follow these codes, or
        the permutation `order` of the distinct codes.
        """
        led = [
            results.led(leader, version) for results, leader in zip(self.each, leaders, strict=True)
        ]
        return parts_in_order(led, order)

    def leading_codes(self, leaders: Leaders, version: Version) -> NDArray[np.int64]:
        """Return the distinct codes of a leading column, sorted."""
        found = [
            results.leading_codes(leader, version)
            for results, leader in zip(self.each, leaders, strict=True)
        ]
        return np.unique(np.concatenate(found))

    def led_by(self, leaders: Leaders, low: int, high: int, version: Version) -> Words:
        """Return the rows, sorted, that have codes from `low` up to `high` in a leading column."""
        return _united(
            [
                results.led_by(leader, low, high, version)
                for results, leader in zip(self.each, leaders, strict=True)
            ]
        )


def _united(parts: Sequence[Words]) -> Words:
    return parts[0] if len(parts) == 1 else distinct(np.concatenate(parts, axis=1))[0]


def _have_no_common_row(one: LoweredRule, two: LoweredRule) -> bool:
    """Return whether the heads of two rules have different constants in a column."""
    for left, right in zip(one.head.args, two.head.args, strict=True):
        if left in one.constants and right in two.constants:
            assert left is not None and right is not None
            if one.constants[left].value != two.constants[right].value:
                return True
    return False
