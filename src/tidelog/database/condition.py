"""Select the rows of a change that fulfil a condition.

A condition in the language is a rule of a small program (logic/condition.py), with an engine of its
own. The rows of a change are inserted there, and those that the rule selects come out: in columns
and joins, without a loop over rows. A condition from Python is called with each row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.database.core import DatabaseCore, Options
from tidelog.database.view import Rows
from tidelog.engine.protocol import NetChange, Requested
from tidelog.engine.reads import Reader, SetReader
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import Records, RowReader
from tidelog.logic.condition import SELECTED, condition_program, given_of
from tidelog.logic.program import Program, Relation
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Where = str | Callable[[Row], object] | None
_RENEW = 1_000_000
"""Rows after which the engine is made again: its dictionaries only grow."""


class Condition:
    """Selects rows of one view."""

    def __init__(self, program: Program, view: str, where: Where, engine: str = "kernel") -> None:
        """Check a condition; raise ProgramError for a mistake in its text."""
        self._relation, self._records = program.relation(view), program.records
        self._where, self._options = where, Options(engine=engine)
        self._program = condition_program(program, view, where) if isinstance(where, str) else None
        self._core: DatabaseCore | None = None
        self._seen = 0

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows that fulfil the condition."""
        if self._where is None or not rows:
            return rows
        if self._program is not None:
            return self._selected(self._program, rows)
        assert callable(self._where)
        return rows_of(frozenset(filter(self._where, rows)), self._relation, self._records)

    def table(self, table: pa.Table) -> pa.Table:
        """Return the rows of an Arrow table of the view that fulfil a condition in the language."""
        assert self._program is not None
        name = given_of(self._program)
        reader = RowReader(self._program.relations[name], self._records)
        columns = is_columnar(self._relation)
        checked = CheckedTable(table) if columns else set(reader.rows(table))
        return self._matching(self._program, checked).to_arrow()

    def _selected(self, program: Program, rows: Rows) -> Rows:
        # The rows come from a view, so they need no check.
        columns = is_columnar(self._relation)
        return self._matching(program, CheckedTable(rows.to_arrow()) if columns else set(rows))

    def _matching(self, program: Program, rows: Requested) -> Rows:
        core = self._core
        if core is None or self._seen > _RENEW:
            core, self._seen = DatabaseCore(program, {}, self._options), 0
            self._core = core
        self._seen += len(rows)
        name = given_of(program)
        requested: dict[str, Requested] = {name: rows}
        net = core.engine.apply(requested, {}).changes.get(SELECTED, NetChange())
        core.engine.apply({}, requested)
        inserted, _ = net.readers(program.relations[SELECTED], program.records)
        return Rows(self._relation, self._records, partial(_answer, inserted))


def rows_of(rows: frozenset[Row], relation: Relation, records: Records) -> Rows:
    """Return a set of rows, to be read."""
    return Rows(relation, records, partial(_answer, SetReader(rows, relation, records)))


def _answer(reader: Reader, question: Callable[[Reader], T]) -> T:
    return question(reader)
