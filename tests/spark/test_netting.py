"""What the rows of an epoch come to, against a plain replay."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.seeds import seeded
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows
from tidelog.spark.checking import Checked
from tidelog.spark.epoch_changes import difference, net

NAN = float("nan")


def given(rows: list[Any], in_columns: bool) -> CheckedTable | CheckedRows:
    if not in_columns:
        return CheckedRows(rows)
    x, f, s = zip(*rows, strict=True) if rows else ((), (), ())
    return CheckedTable(
        pa.table({
            "x": pa.array(x, pa.int64()), "f": pa.array(f, pa.float64()),
            "s": pa.array(s, pa.string()),
        })
    )  # fmt: skip


def some_rows(rng: Random, n: int) -> list[Any]:
    return [(rng.randrange(3), rng.choice([0.0, 1.5]), rng.choice("ab")) for _ in range(n)]


@pytest.mark.parametrize("in_columns", [True, False])
def test_the_last_word_counts(in_columns: bool) -> None:
    rng = seeded("the last word counts")
    for _ in range(200):
        last: dict[Any, bool] = {}
        parts = []
        for _ in range(rng.randrange(4)):
            rows = some_rows(rng, rng.randrange(12))
            kind = rng.randrange(4)
            came = np.array([bool(kind == 1) if kind < 2 else rng.random() < 0.5 for _ in rows])
            last.update(zip(rows, [True] * len(rows) if kind == 3 else came.tolist(), strict=True))
            parts.append(
                Checked(
                    len(rows), given(rows, in_columns), None if kind == 3 else came.astype(np.bool_)
                )
            )
        more, less = net(parts)
        assert set(more) == {row for row, sign in last.items() if sign}
        assert set(less) == {row for row, sign in last.items() if not sign}


@pytest.mark.parametrize("in_columns", [True, False])
def test_snapshots_differ_by_what_came_and_what_went(in_columns: bool) -> None:
    rng = seeded("snapshots differ by what came and what went")
    for _ in range(100):
        before = some_rows(rng, rng.randrange(9))
        pieces = [some_rows(rng, rng.randrange(9)) for _ in range(rng.randrange(3))]
        parts = [Checked(len(rows), given(rows, in_columns)) for rows in pieces]
        came, went = difference(given(sorted(set(before)), in_columns), parts)
        after = {row for rows in pieces for row in rows}
        assert sorted(came) == sorted(after - set(before))
        assert sorted(went) == sorted(set(before) - after)


def test_one_nan_is_one_row() -> None:
    parts = [
        Checked(2, given([(1, NAN, "a"), (1, NAN, "a")], True), np.array([True, False])),
    ]
    more, less = net(parts)
    assert (len(more), len(less)) == (0, 1)
