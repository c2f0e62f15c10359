"""Rows that are checked by columns: the same rows, and the same errors, as one by one."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelog
from tests.typed_values import relation
from tidelog.errors import DataError
from tidelog.io import tabular
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import RowReader
from tidelog.values.types import BOOL, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED

WORDS = ["a", "", "é", "a"]
TABLES: list[tuple[Any, Any, bool]] = [
    (NUMBER, pa.array([1, -2, 3, 1]), True),
    (NUMBER, pa.array([1, 2, 3, 1], pa.uint8()), True),
    (NUMBER, pa.array([1, 2, 3, 1], pa.uint64()), True),
    (NUMBER, pa.array([1, 2, 3, 2**63], pa.uint64()), False),
    (NUMBER, pa.array([1, 2, None, 3]), False),
    (NUMBER, pa.array([1.0, 2.0, 3.0, 4.0]), False),
    (NUMBER, pa.array([True, False, True, True]), False),
    (UNSIGNED, pa.array([1, 2, 3, 1]), True),
    (UNSIGNED, pa.array([1, 2, 3, -1]), False),
    (FLOAT, pa.array([1.5, float("nan"), -0.0, 0.0]), True),
    (FLOAT, pa.array([1.5, 0.25, 2.0, 1.0], pa.float32()), True),
    (FLOAT, pa.array([1, 2, 3, 4]), False),
    (SYMBOL, pa.array(WORDS), True),
    (SYMBOL, pa.array(WORDS, pa.large_string()), True),
    (SYMBOL, pa.array(WORDS, pa.string_view()), True),
    (SYMBOL, pa.array(WORDS).dictionary_encode(), True),
    (SYMBOL, pa.array(["a", None, "b", "c"]).dictionary_encode(), False),
    (SYMBOL, pa.array([1, 2, 3, 4]), False),
    (BOOL, pa.array([True, False, True, True]), True),
    (DATE, pa.array([dt.date(2024, 1, i) for i in (1, 2, 3, 4)]), True),
    (
        TIMESTAMP,
        pa.array([dt.datetime(2024, 1, i) for i in (1, 2, 3, 4)], pa.timestamp("us")),
        True,
    ),
    (
        TIMESTAMP,
        pa.array([dt.datetime(2024, 1, i) for i in (1, 2, 3, 4)], pa.timestamp("s")),
        False,
    ),
]


def result(of: Any, data: Any) -> tuple[bool, Any]:
    """Return whether rows came in columns, and the rows or the error."""
    try:
        found = RowReader(of, {}).loaded(data)
    except DataError as error:
        return False, str(error)
    return isinstance(found, CheckedTable), repr(list(found))


@pytest.mark.parametrize(("type_", "column", "in_columns"), TABLES)
def test_a_table_is_read_alike(
    type_: Any, column: Any, in_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, table = relation(type_), pa.table({"x": column})
    expected = result(of, table)
    assert not expected[0]
    monkeypatch.setattr(tabular, "_BULK", 1)
    assert result(of, table) == (in_columns, expected[1])


@pytest.mark.parametrize(
    ("rows", "in_columns"),
    [
        ([(1, "a", 0.5), (2, "é", -0.0)], True),
        ([(1, "a", 0.5), (2, "b", 1)], False),
        ([(True, "a", 0.5)], False),
        ([(np.int64(3), "a", 0.5)], False),
        ([(2**63, "a", 0.5)], False),
        ([(1, "\ud800", 0.5)], False),
        ([(1, "a")], False),
        ([[1, "a", 0.5]], False),
    ],
)
def test_tuples_are_read_alike(
    rows: list[Any], in_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = relation(NUMBER, SYMBOL, FLOAT)
    expected = result(of, rows)
    monkeypatch.setattr(tabular, "_BULK", 1)
    assert result(of, rows) == (in_columns, expected[1])


def test_a_load_from_any_kind_of_table_gives_the_same_database() -> None:
    names = [f"name {i % 700}" for i in range(3000)]
    frame = {"s": names, "n": list(range(3000))}
    program = ".decl p(s: symbol, n: number) .decl q(s: symbol) q(s) :- p(s, n), n > 100."
    wanted = None
    tables = [list(zip(*frame.values(), strict=True)), set(zip(*frame.values(), strict=True))]
    for data in [*tables, pa.table(frame), pd.DataFrame(frame), pl.DataFrame(frame)]:
        for database in (tidelog.Database(program, facts={"p": data}), tidelog.Database(program)):
            if not database.view("p"):
                with database.transaction() as tx:
                    tx.insert("p", data)
            found = (list(database.view("p")), list(database.view("q")))
            wanted = wanted or found
            assert found == wanted
    assert wanted is not None and len(wanted[0]) == 3000 and len(wanted[1]) == 700
