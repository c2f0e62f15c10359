"""Changes that are not sorted yet: whatever is asked, the answers are those of the sorted rows."""

from __future__ import annotations

import numpy as np
import pytest

import tidelog
from tests.seeds import seeded
from tidelog.store.versions import Delta, UnsortedRows

PROGRAM = """
    .decl r(x: number)
    .decl s(y: symbol, z: number)
    .decl v(x: number, y: symbol, z: number)
    v(x, y, z) :- r(x), s(y, z), x < z.
    .decl n(x: number, c: number)
    n(x, c) :- r(x), c = count : { v(x, _, _) }.
"""


@pytest.mark.parametrize("sign", ["inserted", "deleted"])
def test_every_way_to_read_a_change(sign: str) -> None:
    rng = seeded(sign)
    database = tidelog.Database(PROGRAM, engine="kernel")
    r = [(rng.randrange(50),) for _ in range(30)]
    s = [(rng.choice("edcba"), rng.randrange(50)) for _ in range(40)]
    with database.transaction() as transaction:
        transaction.insert("r", r)
        transaction.insert("s", s)
    if sign == "deleted":
        with database.transaction() as transaction:
            transaction.delete("r", r)
            transaction.delete("s", s)
    expected = sorted({(x, y, z) for (x,) in r for y, z in s if x < z})

    def changed() -> tidelog.Rows:
        rows: tidelog.Rows = getattr(transaction.changes["v"], sign)
        return rows

    # The table comes first: it is made of rows that are not sorted.
    table = changed().to_arrow()
    assert table.schema.names == ["x", "y", "z"]
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == expected
    assert len(changed()) == len(expected)
    assert list(changed()) == expected
    assert expected[3] in changed()
    assert (99, "a", 0) not in changed()
    assert changed().to_sorted_arrow().to_pylist() == [
        dict(zip("xyz", row, strict=True)) for row in expected
    ]
    assert len(transaction.changes["n"].inserted) == (0 if sign == "deleted" else len(set(r)))


def test_inserted_and_deleted_partners_leave_a_net_change() -> None:
    database = tidelog.Database(PROGRAM, engine="kernel")
    with database.transaction() as transaction:
        transaction.insert("r", [(1,), (2,)])
        transaction.insert("s", [("a", 5)])
    with database.transaction() as transaction:
        transaction.delete("r", [(1,)])
        transaction.insert("r", [(3,)])
        transaction.delete("s", [("a", 5)])
        transaction.insert("s", [("b", 6)])
    change = transaction.changes["v"]
    assert change.inserted.to_arrow().to_pylist() == [
        {"x": 2, "y": "b", "z": 6}, {"x": 3, "y": "b", "z": 6},
    ]  # fmt: skip
    assert list(change.deleted) == [(1, "a", 5), (2, "a", 5)]


def test_pieces_are_sorted_once_and_stay_as_they_are() -> None:
    pieces = UnsortedRows([np.array([[3, 1]]), np.array([[2]])])
    delta = Delta(pieces, np.empty((1, 0), np.int64))
    assert delta
    assert delta.sizes == (3, 0)
    assert delta.as_found[0] is pieces
    assert delta.inserted.tolist() == [[1, 2, 3]]
    assert delta.inserted is delta.inserted is delta.as_found[0]
    assert pieces.arrays[0].tolist() == [[3, 1]]
