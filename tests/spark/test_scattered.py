"""Scattered views: a row is in several shards, and counts once. Spark finds the net changes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.seeds import seeded
from tests.spark.piping import expected
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.sharding.layout import ShardLayout, lay_out
from tidelog.spark import Pipeline, Sink, Source, placement_sharded
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_sharded import ShardedPlacement

PROGRAM = """
.type Pair = [a: number, s: symbol]
.decl p(k: number, v: symbol, u: unsigned, t: timestamp, f: float, r: Pair, s: set(number))
.decl on(k: number)
.decl d(v: symbol, u: unsigned, t: timestamp, f: float, r: Pair, s: set(number))
d(v, u, t, f, r, s) :- p(k, v, u, t, f, r, s), on(k).
.decl any()
any() :- p(k, _, _, _, _, _, _), on(k).
"""


def placed(program: str, folder: Path, shards: int = 3) -> ShardedPlacement:
    parsed = Program.parse(program)
    layout = lay_out(parsed, shards)
    assert isinstance(layout, ShardLayout)
    assert layout.shown["d"].is_scattered
    return ShardedPlacement(parsed, folder, layout.grid.sides, 100, ["d", "any"])


def test_net_changes_by_spark_are_those_of_the_reference(spark: Any, tmp_path: Path) -> None:
    random = seeded(4711)
    placement = placed(PROGRAM, tmp_path)
    placement.start(spark)
    values = [
        (f"v{i}", 2**63 + i, dt.datetime(1890 + i, 1, 1, 0, 0, 0, i), i / 3, (i, "x"),
         frozenset({i, i + 1}))
        for i in range(5)
    ]  # fmt: skip
    given: dict[str, set[Any]] = {"p": set(), "on": {(k,) for k in range(9)}}
    before: dict[str, set[Any]] = {"d": set(), "any": set()}
    all_rows = [(k, *value) for k in range(9) for value in values]
    history: list[tuple[set[Any], set[Any]]] = []
    for epoch in range(4):
        new = set(random.sample(all_rows, 3)) - given["p"]
        old = set(random.sample(sorted(given["p"], key=str), min(len(given["p"]), 2))) - new
        if epoch == 2:
            old, new = set(given["p"]), set()
        placement.apply(
            EpochChanges(
                {"p": CheckedRows(new), "on": CheckedRows(given["on"] if not epoch else ())},
                {"p": CheckedRows(old)},
            )
        )
        given["p"] = given["p"] - old | new
        after = {view: expected(PROGRAM, given, view) for view in before}
        history.append((after["d"] - before["d"], before["d"] - after["d"]))
        for view in ("d", "any") if epoch else ():
            found = list(placement.change_frames(spark, view, epoch - 1))
            rows = sum(change.rows for change in found)
            assert rows == len(after[view] ^ before[view]), f"{view} in epoch {epoch}"
        before = after
        assert placement.size("d") == len(after["d"])
    # Several epochs at once, as a sink reads them that was away.
    changes = {c.epoch: c for c in placement.change_frames(spark, "d", 0)}
    for epoch, (new, old) in enumerate(history):
        if not epoch:
            continue
        if not new | old:
            assert epoch not in changes
            continue
        change = changes[epoch]
        table = change.table()
        assert change.rows == table.num_rows == change.frame().count()
        signs = {"+": {r[0] for r in new}, "-": {r[0] for r in old}}
        for op, names in signs.items():
            mine = [row for row in table.to_pylist() if row["op"] == op]
            assert {row["v"] for row in mine} == names
            assert len(mine) == len(names)
            assert {row["epoch"] for row in mine} <= {epoch}
            assert {row["t"].microsecond for row in mine} == {int(name[1:]) for name in names}
    placement.close()


SHARED = """
.decl p(k: number, v: number)
.decl on(k: number)
.decl d(v: number)
d(v) :- p(k, v), on(k).
"""


def test_no_row_of_a_scattered_view_passes_through_the_driver(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("rows of a view on the driver")

    monkeypatch.setattr(ShardedPlacement, "_parts", refuse)
    monkeypatch.setattr(placement_sharded, "change_of", refuse)
    out = tmp_path / "out"
    sources = [
        Source("p", "csv", str(tmp_path / "p"), mode="changes"),
        Source("on", "csv", str(tmp_path / "on")),
    ]
    sinks = [Sink("d", path=str(out / "d")), Sink("d", what="changes", path=str(out / "c"))]
    state = tmp_path / "state"
    keys: dict[str, Any] = {"placement": "sharded", "shards": 2}
    for folder in ("p", "on"):
        (tmp_path / folder).mkdir()
    (tmp_path / "on/a").write_text("".join(f"{k}\n" for k in range(8)))
    epochs = (
        [("+", k, k % 3) for k in range(8)],
        [("-", k, 0) for k in range(0, 8, 3)] + [("+", 0, 7), ("+", 1, 7)],
        [("-", 0, 7)],
        [("-", 1, 7), ("-", 7, 1), ("+", 7, 0)],
    )
    held: set[tuple[int, int]] = set()
    for number, rows in enumerate(epochs):
        (tmp_path / f"p/{number}").write_text("".join(f"{op},{k},{v}\n" for op, k, v in rows))
        held |= {(k, v) for op, k, v in rows if op == "+"}
        held -= {(k, v) for op, k, v in rows if op == "-"}
        with Pipeline(SHARED, state=state, sources=sources, sinks=sinks, **keys) as pipeline:
            pipeline.run(spark)
        want = {v for _, v in held}
        assert sorted(pq.read_table(out / "d")["v"].to_pylist()) == sorted(want)
        followed: set[int] = set()
        changes = pq.read_table(out / "c").to_pylist()
        for row in sorted(changes, key=lambda r: (r["epoch"], r["op"] == "+")):
            (followed.add if row["op"] == "+" else followed.remove)(row["v"])
        assert followed == want
    assert len(changes) == 7, "no change that takes itself back"
