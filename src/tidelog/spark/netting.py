"""What the rows of an epoch come to, relation by relation.

In an ordered source the last word on a row counts, whatever is before it in the epoch: the result
does not depend on where one epoch ends and the next begins. Sources of one relation follow each
other in the order in which they are declared.

    last word = group by all columns, in order: the last sign
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows
from tidelog.spark.checking import Checked
from tidelog.spark.remembered import Given
from tidelog.values.types import Row

_SIGN = "tidelog: came"  # a name that no column has


def net(parts: Sequence[Checked]) -> tuple[Given, Given]:
    """Return the rows that come and those that go; no row is in both."""
    filled = [part for part in parts if len(part.rows)]
    if not filled:
        return CheckedRows(), CheckedRows()
    if all(isinstance(part.rows, CheckedTable) for part in filled):
        return _net_columns(filled)
    last: dict[Row, bool] = {}
    for part in filled:
        signs = [True] * len(part.rows) if part.came is None else part.came.tolist()
        last.update(zip(part.rows, signs, strict=True))
    came = CheckedRows(row for row, sign in last.items() if sign)
    return came, CheckedRows(row for row, sign in last.items() if not sign)


def difference(before: Given, parts: Sequence[Checked]) -> tuple[Given, Given]:
    """Return what came and what went, from the rows before to those of a snapshot.

    In columns: each row with 0 for before and 1 for now. It came where the least is 1, and went
    where the greatest is 0.
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
        came, went = pc.equal(grouped[f"{_SIGN}_min"], 1), pc.equal(grouped[f"{_SIGN}_max"], 0)
        return CheckedTable(rows.filter(came)), CheckedTable(rows.filter(went))
    then, after = set(before), {row for rows in filled for row in rows}
    return CheckedRows(after - then), CheckedRows(then - after)


def _net_columns(parts: Sequence[Checked]) -> tuple[CheckedTable, CheckedTable]:
    tables = [part.rows.table for part in parts if isinstance(part.rows, CheckedTable)]
    whole = pa.concat_tables(tables)
    none = CheckedTable(whole.slice(0, 0))
    signs = np.concatenate(
        [np.ones(len(part.rows), np.bool_) if part.came is None else part.came for part in parts]
    )
    if signs.all():
        return CheckedTable(whole), none
    if not signs.any():
        return none, CheckedTable(whole)
    names = whole.column_names
    # One thread: what is last is known only in order.
    grouped = pa.TableGroupBy(
        whole.append_column(_SIGN, pa.array(signs)), names, use_threads=False
    ).aggregate([(_SIGN, "last")])
    came = grouped[f"{_SIGN}_last"]
    rows = grouped.select(names)
    return CheckedTable(rows.filter(came)), CheckedTable(rows.filter(pc.invert(came)))
