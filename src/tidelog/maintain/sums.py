"""Counts and sums: a change of the source is added to the values of its groups.

They form an Abelian group: what a row has added, its deletion takes away again. A result row's
count is its *support*, the number of rows of its group; a group without support has no row. So a
change costs its own size, however large the groups are.

Sums are added up in two halves of 32 bits each, so that nothing overflows on the way; what leaves
the range of its type in the end is an error, if anybody asks for that group. A group whose sum
overflows and that nobody asks for has no row, and is added up from its rows when it is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.kernel.join import DEAD_NOW
from tidelog.maintain.aggregate import Aggregate
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.lowered import Aggregation
from tidelog.store.relation import Delta, Found, Version
from tidelog.store.run import Words, sort_words, sorted_order
from tidelog.values.types import Kind

Array = NDArray[np.int64]

_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_WHOLE = (Kind.NUMBER, Kind.UNSIGNED, Kind.DECIMAL)


@dataclass
class _Totals:
    """For each group the number of its rows, and their sum as high * 2**32 + low."""

    support: Array
    high: Array
    low: Array

    def of(self, which: Array) -> _Totals:
        """Return the totals of some groups."""
        return _Totals(self.support[which], self.high[which], self.low[which])


class Sums(Aggregate):
    """Keeps the counts or sums of the groups of a relation."""

    name = "sums"
    why = "the change is added to the values of its groups"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is a count of rows, or a sum of whole numbers."""
        if aggregation.target is None:
            return True
        type_ = aggregation.target_type
        return aggregation.op == "sum" and type_ is not None and type_.kind in _WHOLE

    def bootstrap(self) -> None:
        """Add up every group."""
        codes = self._source.unpack(self._source.rows(Version.NEW))
        groups, which = self._numbered(codes)
        totals = self._totals(codes, which, groups.shape[1], None)
        rows, support = self._result_rows(groups, totals)
        self._result.replace(*_sorted(rows, support))
        self.choice = BOOTSTRAP

    def update(self) -> None:
        """Add the change of the source to its groups."""
        delta = self._source.delta
        asked = self._wanted is not None and self._wanted.delta.inserted.shape[1] > 0
        self.choice = UPDATE if delta or asked else NOTHING
        if not delta and not asked:
            return
        changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        signs = np.ones(changed.shape[1], np.int64)
        signs[delta.inserted.shape[1] :] = -1
        codes = self._source.unpack(changed)
        groups, which = self._numbered(codes)
        change = self._totals(codes, which, groups.shape[1], signs)
        number, held = self._held.read(groups, Version.NEW)
        before = self._result.pack(held - self._result.biases)
        found = self._result.find(before)
        after = self._changed(change.of(number), found.counts, held[-1])
        rows, support, kept = self._kept_rows(groups[:, number], after)
        same = kept & (rows == before).all(axis=0)
        self._result.set_counts(Found(found.columns[:, same].copy()), support[same])
        deleted = sort_words(np.ascontiguousarray(before[:, ~same]))
        moved = kept & ~same
        unknown = np.ones(groups.shape[1], np.bool_)
        unknown[number] = False
        fresh, fresh_support = self._from_rows(self._with_asked(groups[:, unknown]))
        inserted, _, supports = _sorted(
            np.concatenate([rows[:, moved], fresh], axis=1),
            np.concatenate([support[moved], fresh_support]),
        )
        relation = self._result
        relation.set_marks(deleted, np.full(deleted.shape[1], DEAD_NOW, np.int32))
        relation.add(inserted, None, supports)
        relation.delta = Delta(inserted, deleted)

    # --- adding up ---

    def _numbered(self, codes: Array) -> tuple[Array, Array]:
        """Return the distinct groups of rows, and the number of each row's group."""
        columns = list(self._aggregation.group)
        n = codes.shape[1]
        if not columns:
            return np.empty((0, min(1, n)), np.int64), np.zeros(n, np.int64)
        if len(columns) == 1:
            distinct, which = np.unique(codes[columns[0]], return_inverse=True)
            return distinct[None, :], which.reshape(-1)
        bits = [self._source.domains[column].bits for column in columns]
        if sum(bits) > 62:
            distinct, which = np.unique(codes[columns], axis=1, return_inverse=True)
            return distinct, which.reshape(-1)
        packed = np.zeros(n, np.int64)
        for column, width in zip(columns, bits, strict=True):
            packed = (packed << width) | codes[column]
        _, first, which = np.unique(packed, return_index=True, return_inverse=True)
        return np.ascontiguousarray(codes[columns][:, first]), which.reshape(-1)

    def _totals(self, codes: Array, which: Array, groups: int, signs: Array | None) -> _Totals:
        """Add up rows by group; `signs` tells which of them are taken away."""
        support, high, low = (np.zeros(groups, np.int64) for _ in range(3))
        ones = np.ones(codes.shape[1], np.int64) if signs is None else signs
        np.add.at(support, which, ones)
        target = self._aggregation.target
        if target is not None:
            ordinals = codes[target] + self._source.domains[target].bias
            np.add.at(high, which, (ordinals >> _HALF) * ones)
            np.add.at(low, which, (ordinals & _LOW_HALF) * ones)
        return _Totals(support, high, low)

    def _changed(self, change: _Totals, support: Array, ordinals: Array) -> _Totals:
        """Return the totals of groups after a change."""
        if self._aggregation.target is None:
            return _Totals(support + change.support, change.high, change.low)
        high = change.high + (ordinals >> _HALF)
        low = change.low + (ordinals & _LOW_HALF)
        # The ordinal of an unsigned sum is 2**63 below it: `_values` takes that away for each row
        # but one, and what was there is less by that already.
        if self._is_unsigned:
            high = high - (support - 1) * (1 << (_HALF - 1))
        return _Totals(support + change.support, high, low)

    @property
    def _is_unsigned(self) -> bool:
        type_ = self._aggregation.target_type
        return type_ is not None and type_.kind is Kind.UNSIGNED

    def _values(self, totals: _Totals) -> tuple[Array, NDArray[np.bool_]]:
        """Return the ordinals of the results, and which of them are within their type."""
        if self._aggregation.target is None:
            return totals.support, np.ones(len(totals.support), np.bool_)
        high, low = totals.high, totals.low
        if self._is_unsigned:
            high = high + (totals.support - 1) * (1 << (_HALF - 1))
        high, low = high + (low >> _HALF), low & _LOW_HALF
        fits = (high >= -(1 << (_HALF - 1))) & (high < 1 << (_HALF - 1))
        values = (np.where(fits, high, 0) << _HALF) | low
        type_ = self._aggregation.target_type
        if type_ is not None and type_.kind is Kind.DECIMAL:
            most = 10**type_.precision
            fits &= (values > -most) & (values < most)
        return values, fits

    # --- rows ---

    def _kept_rows(self, groups: Array, totals: _Totals) -> tuple[Words, Array, NDArray[np.bool_]]:
        """Return a result row for each group, its support, and which groups have one at all."""
        values, fits = self._values(totals)
        kept = totals.support > 0
        for bad in np.flatnonzero(kept & ~fits).tolist():
            if self._is_wanted(groups[:, bad]):
                aggregation = self._aggregation
                reason = (
                    f"the sum of {totals.support[bad]} values overflows `{aggregation.target_type}`"
                )
                raise EvaluationError(reason, aggregation.text, aggregation.span, {})
        kept &= fits
        domain = self._result.domains[-1]
        if kept.any():
            alive = values[kept]
            for extreme in (int(alive.min()), int(alive.max())):
                if not domain.covers(extreme, extreme):
                    raise DomainOverflow(domain, extreme)
        codes = np.vstack([groups, np.where(kept, values - domain.bias, 0)[None, :]])
        return self._result.pack(np.ascontiguousarray(codes)), totals.support, kept

    def _result_rows(self, groups: Array, totals: _Totals) -> tuple[Words, Array]:
        rows, support, kept = self._kept_rows(groups, totals)
        return np.ascontiguousarray(rows[:, kept]), support[kept]

    def _from_rows(self, groups: Array) -> tuple[Words, Array]:
        """Add up groups from their rows."""
        number, columns = self._rows_of.read(groups, Version.NEW)
        codes = columns - self._source.biases
        return self._result_rows(groups, self._totals(codes, number, groups.shape[1], None))

    def _with_asked(self, groups: Array) -> Array:
        """Return the groups, and those that are asked for from now on and have no value so far."""
        if self._wanted is None or not self._wanted.delta.inserted.shape[1]:
            return groups
        asked = self._source_codes(self._wanted.ordinals(self._wanted.delta.inserted))
        if not len(asked):
            asked = asked[:, :1]
        number, _ = self._held.read(asked, Version.NEW)
        unknown = np.ones(asked.shape[1], np.bool_)
        unknown[number] = False
        both = np.concatenate([groups, asked[:, unknown]], axis=1)
        return np.unique(both, axis=1) if len(both) else both[:, :1]


def _sorted(rows: Words, support: Array) -> tuple[Words, None, Array]:
    order = sorted_order(rows)
    return np.ascontiguousarray(rows[:, order]), None, support[order]
