"""Select the changes that a trigger of a pipeline is on: by sign, and by a condition.

Rows that are in this process are selected here. Others are selected by Spark, in the tasks that
read them, so that only those that are to be delivered reach the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.database.condition import Condition
from tidelog.io.tabular import arrow_schema
from tidelog.logic.program import Program
from tidelog.spark.view_changes import EPOCH, OP, ViewChange, changes_schema


@dataclass(frozen=True)
class Selecting:
    """Selects changes of one view. Spark sends it to its tasks, so it holds only text."""

    program: str
    program_name: str
    view: str
    sign: str
    """`+`, `-`, or the empty text for both."""
    where: str

    def change(self, change: ViewChange, *, here: bool) -> ViewChange:
        """Return the selected rows of a change; `here` says whether they are in this process."""

        def frame() -> Any:
            return self._frame(change.frame())

        def table() -> pa.Table:
            if here:
                return self.table(change.table())
            return frame().toArrow().cast(changes_schema(self._schema()))

        return replace(change, frame=frame, table=table, files=())

    def _frame(self, frame: Any) -> Any:
        from pyspark.sql import functions as F

        if self.sign:
            frame = frame.where(F.col(OP) == self.sign)
        return frame.mapInArrow(self, frame.schema) if self.where else frame

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Select the rows of a partition."""
        condition = self._condition()
        for batch in batches:
            table = _selected(pa.Table.from_batches([batch]), condition, self._schema())
            yield from table.cast(batch.schema).to_batches()

    def table(self, table: pa.Table) -> pa.Table:
        """Return the selected rows of a table of changes."""
        if self.sign:
            table = table.filter(pc.equal(table.column(OP), self.sign))
        return _selected(table, self._condition(), self._schema()) if self.where else table

    def _condition(self) -> Condition:
        program = Program.parse(self.program, self.program_name)
        return Condition(program, self.view, self.where)

    def _schema(self) -> pa.Schema:
        program = Program.parse(self.program, self.program_name)
        return arrow_schema(program.relations[self.view], program.records)


def _selected(table: pa.Table, condition: Condition, schema: pa.Schema) -> pa.Table:
    """Return the changes that fulfil a condition, with op and epoch; all are of one epoch."""
    parts = []
    for op in ("-", "+"):
        rows = table.filter(pc.equal(table.column(OP), op))
        if rows.num_rows:
            epoch = rows.column(EPOCH)[0].as_py()
            found = condition.table(rows.select(schema.names).cast(schema))
            parts.append(
                found.append_column(OP, pa.array([op] * found.num_rows, pa.string())).append_column(
                    EPOCH, pa.array([epoch] * found.num_rows, pa.int64())
                )
            )
    if not parts:
        return table.slice(0, 0)
    return pa.concat_tables(parts)
