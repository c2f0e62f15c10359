"""Reading the kernel's relations: only the rows of the answer are decoded.

Rows are stored in the order of their ordinals. For numbers, dates and the like that is the order of
values, so a range of values is a range of rows. The ordinals of symbols, records and sets are
dictionary ids: rows with the same symbol are adjacent, but the order of symbols has to be found
from their values. Each distinct value is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.aggregate_reads import TreeAnswers
from tidelog.engine.questions import Question, from_rows
from tidelog.io.tabular import arrow_schema, to_arrow
from tidelog.logic.program import Relation
from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec
from tidelog.store.dictionary import distinct_ids
from tidelog.store.lookup import Slice, between, key
from tidelog.store.relation import StoredRelation
from tidelog.values.order import sort_key
from tidelog.values.types import Kind, Row, Type

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 13
ARROW_ROWS = 1 << 20
"""The rows of a batch of a table."""
BATCH_ROWS = 1 << 16
"""The rows of a batch that is read by itself."""
_MANY_SYMBOLS = 500  # for which Arrow is worth its start
_ODD = np.uint64(0x9E3779B97F4A7C15)


class StoredReader:
    """The committed rows of a stored relation."""

    gives_sorted_tables: ClassVar[bool] = True

    def __init__(self, codec: Codec, stored: StoredRelation, relation: Relation) -> None:
        self._codec, self._stored = codec, stored
        self._relation = relation
        self._types = [column.type for column in relation.columns]
        self._primary = self._stored.primary.layout.order

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, row: Row) -> bool:
        return len(self._starting_with(self._primary, self._find(self._types, row))) > 0

    def rows(self) -> Iterator[Row]:
        """Return all rows in order, decoded as they are taken."""
        return self._decoded(self._starting_with(self._primary, []))

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, in order: O(log n + rows returned)."""
        found = self._find(self._types, values)
        return list(self._decoded(self._starting_with(self._primary, found)))

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order.

        O(log n + rows returned), if the first column in which the bounds differ and those
        after it are of ordered types; otherwise all rows with the values before it are scanned.
        """
        equal = 0
        while equal < min(len(low), len(high)) and low[equal] == high[equal]:
            equal += 1
        if equal == len(high):
            return []
        # Binary search takes the bounds up to the first column whose ordinals are not in order.
        sorted_to = equal
        while sorted_to < len(self._types) and self._types[sorted_to].kind not in UNORDERED:
            sorted_to += 1
        first = self._find(self._types, low[:sorted_to])
        last = self._find(self._types, high[:sorted_to])
        if first is None or last is None:
            return []
        rows = between(
            self._stored,
            self._primary,
            key(self._stored, self._primary, first, behind=False),
            key(self._stored, self._primary, last, behind=len(high) > sorted_to),
        )
        if max(len(low), len(high)) > sorted_to:
            columns = rows.ordinals()
            rows = rows.only(~self._is_before(columns, low) & self._is_before(columns, high))
        return list(self._decoded(rows))

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, in order: O(log n + rows returned).

        The first lookup by some columns makes an order of the relation that starts with them, if
        there is none. That order stays, and costs memory and time in later epochs.
        """
        order = self._order_for(set(values))
        found = self._find(
            [self._types[column] for column in order[: len(values)]],
            [values[column] for column in order[: len(values)]],
        )
        return list(self._decoded(self._starting_with(order, found)))

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows: O(log n), if they are an interval."""
        if len(question.between) <= 1:
            return TreeAnswers(self._codec, self._types, self._stored).answer(question)
        rows = self.where(question.equal)
        return from_rows(rows, question, self._types, self._codec.records)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in order, converted column by column."""
        if not self._types:
            return to_arrow(self.rows(), self._relation, self._codec.records)
        import pyarrow as pa

        from tidelog.engine.arrow import arrow_batch

        rows = self._starting_with(self._primary, [])
        batches = [
            arrow_batch(columns, self._relation, self._codec)
            for columns in self._in_order(rows, ARROW_ROWS)
        ]
        schema = arrow_schema(self._relation, self._codec.records)
        return pa.Table.from_batches(batches, schema=schema)

    def batches(self, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are stored, or one of `parts` shares of them.

        Which share a row is in follows from its ordinals. So readers in several processes that have
        the same epoch of the same state agree on it, however their rows are stored.
        """
        from tidelog.engine.arrow import arrow_batch

        rows = self._starting_with(self._primary, [])
        for start in range(0, len(rows), BATCH_ROWS):
            columns = share(rows.ordinals(slice(start, start + BATCH_ROWS)), part, parts)
            if columns.shape[1]:
                yield arrow_batch(columns, self._relation, self._codec)

    # --- finding ---

    def _find(self, types: Sequence[Type], values: Sequence[Any]) -> list[int] | None:
        """Return the ordinals of the values, or None if one of them is in no relation."""
        found = [self._codec.find(v, t) for v, t in zip(values, types, strict=False)]
        return None if None in found else [ordinal for ordinal in found if ordinal is not None]

    def _starting_with(self, order: tuple[int, ...], start: list[int] | None) -> Slice:
        """Return the rows whose first columns in `order` are `start`; none for None."""
        low = key(self._stored, order, start or [], behind=False)
        high = key(self._stored, order, start or [], behind=True)
        return between(self._stored, order, low, low if start is None else high)

    def _order_for(self, columns: set[int]) -> tuple[int, ...]:
        """Return an order that starts with these columns, one that exists if possible."""
        for order in self._stored.indexes:
            if set(order[: len(columns)]) == columns:
                return order
        rest = [column for column in self._primary if column not in columns]
        return (*sorted(columns), *rest)

    # --- the order of values ---

    def _decoded(self, rows: Slice) -> Iterator[Row]:
        """Return the rows in the order of their values, decoded in parts."""
        parts = self._in_order(rows, _ROWS_AT_ONCE)
        return (row for columns in parts for row in self._codec.decode_rows(columns, self._types))

    def _in_order(self, rows: Slice, at_once: int) -> Iterator[Array]:
        """Return the rows in the order of their values, as columns of ordinals, in parts."""
        order = self._value_order(rows)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            yield rows.ordinals(part if order is None else order[part])

    def _value_order(self, rows: Slice) -> Array | None:
        """Return the permutation that sorts the rows by their values; None if they are sorted."""
        is_unordered = [type_.kind in UNORDERED for type_ in self._types]
        if len(rows) < 2 or (rows.layout.order == self._primary and not any(is_unordered)):
            return None
        columns = rows.ordinals()
        for i, type_ in enumerate(self._types):
            if is_unordered[i]:
                columns[i] = self._ranks(columns[i], type_)
        return np.lexsort(columns[::-1])

    def _ranks(self, column: Array, type_: Type) -> Array:
        """Return for each ordinal the place of its value among those in the column."""
        used, where = distinct_ids(column)
        ranks = np.empty(len(used), np.int64)
        if type_.kind is Kind.SYMBOL and len(used) >= _MANY_SYMBOLS:
            import pyarrow.compute as pc

            from tidelog.engine.arrow import arrow_column, words_of

            # Arrow compares UTF-8, which is in the order of code points.
            texts = arrow_column(used, type_, self._codec)
            ranks[words_of(pc.sort_indices(texts))] = np.arange(len(used))
            return ranks[where]
        keys = self._keys(used, type_)
        ranks[sorted(range(len(used)), key=keys.__getitem__)] = np.arange(len(used))
        return ranks[where]

    def _keys(self, ordinals: Array, type_: Type) -> list[Any]:
        sort_by, decode = sort_key(type_, self._codec.records), self._codec.decoder(type_)
        return [sort_by(decode(ordinal)) for ordinal in ordinals.tolist()]

    def _is_before(self, columns: Array, bound: Row) -> NDArray[np.bool_]:
        """Return for each row whether it comes before all rows that start with `bound`."""
        sign = np.zeros(columns.shape[1], np.int8)
        for column, value, type_ in zip(columns, bound, self._types, strict=False):
            if type_.kind in UNORDERED:
                used, where = np.unique(column, return_inverse=True)
                wanted = sort_key(type_, self._codec.records)(value)
                signs = [(k > wanted) - (k < wanted) for k in self._keys(used, type_)]
                found = np.array(signs, np.int8)[where]
            else:
                ordinal = self._codec.encoder(type_)(value)
                found = (column > ordinal).astype(np.int8) - (column < ordinal).astype(np.int8)
            sign = np.where(sign == 0, found, sign)
        return sign < 0


def share(columns: Array, part: int, parts: int) -> Array:
    """Return one of `parts` shares of rows. Which share a row is in follows from its ordinals."""
    return columns if parts == 1 else columns[:, _shares(columns, parts) == part]


def _shares(columns: Array, parts: int) -> NDArray[np.uint64]:
    """Return for each row the number of its share: a hash of its ordinals."""
    hashes = np.zeros(columns.shape[1], np.uint64)
    for column in columns:
        hashes = (hashes ^ column.view(np.uint64)) * _ODD
        hashes ^= hashes >> np.uint64(29)
    return hashes % np.uint64(parts)
