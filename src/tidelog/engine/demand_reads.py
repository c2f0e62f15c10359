"""Reading a relation that is computed on demand: each read is a question (engine/queries.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tidelog.engine.queries import Queries
from tidelog.engine.questions import Question, from_rows
from tidelog.engine.stored_reads import StoredReader
from tidelog.logic.program import Relation
from tidelog.values.order import Records
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa


class DemandReader:
    """The committed rows of a relation that is not stored."""

    gives_sorted_tables: ClassVar[bool] = True

    def __init__(self, queries: Queries, relation: Relation, records: Records) -> None:
        self._queries, self._relation, self._records = queries, relation, records

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, row: Row) -> bool:
        return len(self._queries.select(self._relation, dict(enumerate(row)))) > 0

    def rows(self) -> Iterator[Row]:
        """Return all rows in order."""
        return self._all().rows()

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, in order. Only these are computed."""
        return list(self._queries.select(self._relation, dict(enumerate(values))).rows())

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order.

        Rows are computed for the values that both have in common at first.
        """
        equal = 0
        while equal < min(len(low), len(high)) and low[equal] == high[equal]:
            equal += 1
        return self._queries.select(self._relation, dict(enumerate(low[:equal]))).range(low, high)

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, in order. Only these are computed."""
        return list(self._queries.select(self._relation, values).rows())

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows."""
        types = [column.type for column in self._relation.columns]
        return from_rows(self.where(question.equal), question, types, self._records)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in order."""
        return self._all().to_arrow()

    def batches(self, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows in no particular order, or one of `parts` shares of them."""
        return self._all().batches(part, parts)

    def _all(self) -> StoredReader:
        return self._queries.select(self._relation, {})
