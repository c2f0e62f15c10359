"""The changes of an epoch: what a pipeline commits, and the net change of each relation.

In an ordered source the last write wins: of equal rows, the last operation in the epoch decides. So
the result does not depend on where one epoch ends and the next begins. Sources of the same relation
apply in the order of their declarations.

    last write = group by all columns, in order: the last sign
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.io.columns import CheckedTable
from tidelog.io.offsets import RowCounts
from tidelog.io.tabular import CheckedRows, Records, to_arrow
from tidelog.logic.program import Relation
from tidelog.spark.checking import Checked
from tidelog.values.types import Row

_SIGN = "tidelog: inserted"  # a name that no column can have
DRIFT = "drift"
"""The item whose offset is the last schema drift of a snapshot."""
_BAD = "bad rows"

Given = CheckedTable | CheckedRows
"""Checked rows for a relation: in columns if all its columns are scalars."""


@dataclass(frozen=True)
class ArrivedKeys:
    """The rows of a source of upserts, in the order of the source (upserting.py)."""

    rows: Given
    """Of rows that delete, only the keys have values."""
    inserted: NDArray[np.bool_]
    """Whether each row replaces the row of its key; else it deletes it."""
    at: NDArray[np.int64] | None = None
    """Their sequences, if there is a column for it."""


@dataclass
class EpochChanges:
    """Everything that one epoch changes: rows, offsets and counts."""

    inserted: dict[str, Given] = field(default_factory=dict)
    deleted: dict[str, Given] = field(default_factory=dict)
    offsets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    counts: dict[str, RowCounts] = field(default_factory=dict)
    late: int = 0
    """Accepted rows that are older than what is retained."""
    upserts: dict[str, ArrivedKeys] = field(default_factory=dict)
    """Rows by key, by relation; what they replace is found in the state."""

    def clear(self, offsets: Mapping[str, Mapping[str, str]]) -> None:
        """Begin again, with these offsets."""
        self.offsets = dict(offsets)
        for own in (self.inserted, self.deleted, self.counts, self.upserts):
            own.clear()
        self.late = 0


@dataclass(frozen=True)
class Applied:
    """What an epoch did."""

    epoch: int
    how: str
    """`bootstrap` or `update`."""
    inserted: int
    """Inserted given rows."""
    deleted: int


def note_bad_rows(changes: EpochChanges, source: str, known: Mapping[str, str], count: int) -> None:
    """Commit how many rows of a snapshot are bad, so that the same ones are reported once."""
    if known.get(_BAD, "0") != str(count):
        changes.offsets[source] = {**changes.offsets[source], _BAD: str(count)}


def table_of(rows: Given, relation: Relation, records: Records) -> pa.Table:
    """Return checked rows as a table; of a relation without columns, with a column in place."""
    if isinstance(rows, CheckedTable):
        return rows.table
    if not relation.columns:
        return pa.table({"": pa.array([True] * len(rows), pa.bool_())})
    return to_arrow(list(rows), relation, records)


def net(parts: Sequence[Checked]) -> tuple[Given, Given]:
    """Return the inserted and the deleted rows; no row is in both."""
    filled = [part for part in parts if len(part.rows)]
    if not filled:
        return CheckedRows(), CheckedRows()
    if all(isinstance(part.rows, CheckedTable) for part in filled):
        return _net_columns(filled)
    last: dict[Row, bool] = {}
    for part in filled:
        signs = [True] * len(part.rows) if part.inserted is None else part.inserted.tolist()
        last.update(zip(part.rows, signs, strict=True))
    inserted = CheckedRows(row for row, sign in last.items() if sign)
    return inserted, CheckedRows(row for row, sign in last.items() if not sign)


def difference(before: Given, parts: Sequence[Checked]) -> tuple[Given, Given]:
    """Return the rows inserted and deleted by a snapshot, given the rows before.

    In columns: each row has a sign of 0 for before and 1 for now. A row is inserted if the minimum
    of its signs is 1, and deleted if the maximum is 0.
    """
    filled = [part.rows for part in parts if len(part.rows)]
    if isinstance(before, CheckedTable) and all(isinstance(r, CheckedTable) for r in filled):
        tables = [before.table, *(r.table for r in filled if isinstance(r, CheckedTable))]
        whole = pa.concat_tables(tables)
        now = pa.array(np.arange(whole.num_rows) >= len(before), pa.uint8())
        names = whole.column_names
        grouped = pa.TableGroupBy(whole.append_column(_SIGN, now), names).aggregate(
            [(_SIGN, "min"), (_SIGN, "max")]
        )
        rows = grouped.select(names)
        is_new = pc.equal(grouped[f"{_SIGN}_min"], 1)
        is_old = pc.equal(grouped[f"{_SIGN}_max"], 0)
        return CheckedTable(rows.filter(is_new)), CheckedTable(rows.filter(is_old))
    then, after = set(before), {row for rows in filled for row in rows}
    return CheckedRows(after - then), CheckedRows(then - after)


def _net_columns(parts: Sequence[Checked]) -> tuple[CheckedTable, CheckedTable]:
    tables = [part.rows.table for part in parts if isinstance(part.rows, CheckedTable)]
    whole = pa.concat_tables(tables)
    none = CheckedTable(whole.slice(0, 0))
    signs = np.concatenate(
        [
            np.ones(len(part.rows), np.bool_) if part.inserted is None else part.inserted
            for part in parts
        ]
    )
    if signs.all():
        return CheckedTable(whole), none
    if not signs.any():
        return none, CheckedTable(whole)
    names = whole.column_names
    # One thread: `last` needs the order of rows.
    grouped = pa.TableGroupBy(
        whole.append_column(_SIGN, pa.array(signs)), names, use_threads=False
    ).aggregate([(_SIGN, "last")])
    is_new = grouped[f"{_SIGN}_last"]
    rows = grouped.select(names)
    return CheckedTable(rows.filter(is_new)), CheckedTable(rows.filter(pc.invert(is_new)))
