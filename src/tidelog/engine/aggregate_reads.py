"""Aggregates over an interval of a stored relation: how the kernel answers `view.aggregate`.

Scan trees answer in O(log n) where the rows are an interval of some order: some columns equal, one
in a range. Numbers, dates and the like have trees over the sorted runs
(store/run_tree.py); symbols, records, sets, sums of floats and semigroups from Python have one of
Python objects (store/value_tree.py). Trees are built on first use, and follow
the epochs from then on. Other aggregates are computed from the rows (engine/questions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tidelog.engine.questions import Question, exact_sum
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec
from tidelog.store.lookup import Summary, key, summary
from tidelog.store.relation import StoredRelation
from tidelog.store.scan_operations import Combined, ExactSum, Extreme, RowCount
from tidelog.store.scan_tree import NOTHING, ScanOperation
from tidelog.store.value_tree import key_part, value_tree
from tidelog.values.order import sort_key
from tidelog.values.ratios import exact_ratio
from tidelog.values.types import Kind, Type

_SIGN = 1 << 63


class TreeAnswers:
    """Answers questions about one stored relation by its scan trees."""

    def __init__(self, codec: Codec, types: Sequence[Type], stored: StoredRelation) -> None:
        self._codec, self._types, self._stored = codec, types, stored

    def answer(self, question: Question) -> Any:
        """Return the answer in O(log n), except for the first one, which builds the trees."""
        column = question.column
        ranged = question.at_hand
        kinds = {self._types[c].kind for c in (column, ranged) if c is not None}
        rounds = column is not None and self._types[column].kind is Kind.FLOAT
        if question.algebra is not None:
            return self._by_values(question)
        if kinds & UNORDERED or (rounds and question.op in ("sum", "mean")):
            return self._by_values(question)
        return self._by_runs(question)

    # --- ordinals, in the runs of an order ---

    def _by_runs(self, question: Question) -> Any:
        order = self._order_for(question)
        equal = order[: len(question.equal)]
        found = [self._codec.find(question.equal[c], self._types[c]) for c in equal]
        start = [ordinal for ordinal in found if ordinal is not None]
        low = key(self._stored, order, start, behind=False)
        high = key(self._stored, order, start, behind=True)
        if len(start) < len(found):
            high = low  # a value that is in no relation
        elif question.at_hand is not None:
            first, last = question.between[question.at_hand]
            encode = self._codec.encoder(self._types[question.at_hand])
            if first is not None:
                low = key(self._stored, order, [*start, encode(first)], behind=False)
            if last is not None:
                high = key(self._stored, order, [*start, encode(last)], behind=False)
        column = order[0] if question.column is None else question.column
        return self._from_summary(question, summary(self._stored, order, low, high, column))

    def _order_for(self, question: Question) -> tuple[int, ...]:
        """Return an order in which the rows are an interval; one that exists if possible."""
        equal, ranged = set(question.equal), question.at_hand
        width = len(equal)
        for order in self._stored.indexes:
            if set(order[:width]) == equal and (ranged is None or order[width] == ranged):
                return order
        first = (*sorted(equal), *([] if ranged is None else [ranged]))
        rest = (c for c in self._stored.primary.layout.order if c not in first)
        return (*first, *rest)

    def _from_summary(self, question: Question, found: Summary) -> Any:
        if question.column is None:
            return found.count
        type_ = self._types[question.column]
        total = found.total + (found.count * _SIGN if type_.kind is Kind.UNSIGNED else 0)
        if question.op == "sum":
            return exact_sum(total, type_)
        if not found.count:
            return None
        if question.op == "mean":
            return exact_ratio([Fraction(total, 10**type_.scale)], found.count)
        extreme = found.least if question.op == "min" else found.greatest
        return self._codec.decoder(type_)(extreme)

    # --- values, in a tree of Python objects ---

    def _by_values(self, question: Question) -> Any:
        ranged = question.at_hand
        group = tuple(sorted(question.equal))
        first = (*group, *([] if ranged is None else [ranged]))
        rest = tuple(c for c in range(len(self._types)) if c not in first)
        target = first[-1] if question.column is None else question.column
        tree = value_tree(
            self._stored, self._codec, self._types, group, (*first[len(group) :], *rest), target,
            in_order=ranged is not None or question.algebra is not None,
        )  # fmt: skip
        places = tree.columns[: len(group)]
        start = [self._key(place, question.equal[place]) for place in places]
        low, high = (
            None if bound is None or ranged is None else self._key(ranged, bound)
            for bound in question.between.get(-1 if ranged is None else ranged, (None, None))
        )
        op = "sum" if question.op == "mean" else question.op
        scan = tree.scans.setdefault((op, question.algebra), self._scan(question))
        found = tree.between(tuple(start), low, high, scan)
        return self._from_partial(question, found)

    def _key(self, column: int, value: Any) -> Any:
        """Return the sort key of a value, which need not be in any relation."""
        type_ = self._types[column]
        if type_.kind in UNORDERED:
            return sort_key(type_, self._codec.records)(value)
        return self._codec.encoder(type_)(value)

    def _scan(self, question: Question) -> ScanOperation:
        if question.column is None:
            return RowCount()
        type_ = self._types[question.column]
        if question.algebra is not None:
            return Combined(question.algebra, self._codec.decoder(type_))
        if question.op in ("min", "max"):
            return Extreme(min if question.op == "min" else max, key_part(type_, self._codec))
        return ExactSum(self._codec.decoder(type_))

    def _from_partial(self, question: Question, found: Any) -> Any:
        if question.column is None:
            return 0 if found is NOTHING else found
        if question.algebra is not None:
            return None if found is NOTHING else found
        type_ = self._types[question.column]
        if question.op in ("min", "max"):
            return None if found is NOTHING else self._codec.decoder(type_)(found[1])
        count, finite, special = (0, Fraction(0), frozenset()) if found is NOTHING else found
        if question.op == "mean":
            return exact_ratio([finite, *special], count) if count else None
        if type_.kind is Kind.FLOAT:
            return exact_ratio([finite, *special], 1)
        return exact_sum(int(finite * 10**type_.scale), type_)
