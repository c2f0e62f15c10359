"""Reading changed rows that nobody has sorted: tables are made of them as they are.

A change of an inequality join can have millions of rows, and a feed that takes them as tables does
not ask for an order. Every other way to read them sorts them first, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.questions import Question
from tidelog.engine.stored_reads import ARROW_ROWS, StoredReader
from tidelog.io.tabular import arrow_schema
from tidelog.logic.program import Relation
from tidelog.store.codec import Codec
from tidelog.store.relation import ordinals_by
from tidelog.store.versions import UnsortedRows
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa


class PieceReader:
    """The rows of a change, in pieces."""

    gives_sorted_tables: ClassVar[bool] = False

    def __init__(
        self,
        codec: Codec,
        relation: Relation,
        pieces: UnsortedRows,
        fields: NDArray[np.int64],
        in_order: Callable[[], StoredReader],
    ) -> None:
        """Take the rows, with the fields of their layout; `in_order` returns them sorted."""
        self._codec, self._relation = codec, relation
        self._pieces, self._fields = pieces, fields
        self._in_order = in_order
        self._sorted: StoredReader | None = None

    def __len__(self) -> int:
        return self._pieces.size

    def __contains__(self, row: Row) -> bool:
        return row in self._reader

    def rows(self) -> Iterator[Row]:
        """Return all rows in order."""
        return self._reader.rows()

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, in order."""
        return self._reader.prefix(values)

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order."""
        return self._reader.range(low, high)

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, in order."""
        return self._reader.where(values)

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows."""
        return self._reader.aggregate(question)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in no particular order."""
        if not self._relation.columns:
            return self._reader.to_arrow()
        import pyarrow as pa

        schema = arrow_schema(self._relation, self._codec.records)
        return pa.Table.from_batches(self._batches(), schema=schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        from tidelog.engine.arrow import arrow_batch

        arrays = self._pieces.arrays
        if len(arrays) > 1 and self._pieces.size <= ARROW_ROWS:
            arrays = [np.concatenate(arrays, axis=1)]  # one small batch is made faster than some
        for words in arrays:
            for start in range(0, words.shape[1], ARROW_ROWS):
                part = np.ascontiguousarray(words[:, start : start + ARROW_ROWS])
                yield arrow_batch(ordinals_by(part, self._fields), self._relation, self._codec)

    @property
    def _reader(self) -> StoredReader:
        if self._sorted is None:
            self._sorted = self._in_order()
        return self._sorted
