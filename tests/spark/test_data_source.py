"""The format `tidelog`: views and their changes, for Spark's readers, streams and SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import UsageError
from tidelog.spark import Pipeline, register, stored_views
from tidelog.spark.data_source import Wanted
from tidelog.spark.stored_views import open_state

pytestmark = pytest.mark.sampled(2)

TYPES = """
.type Place = [name: symbol, size: unsigned]
.decl given(n: number, u: unsigned, f: float, s: symbol, b: bool, d: date, t: timestamp,
    m: decimal(8, 2), p: Place, e: set(unsigned))
.decl seen(n: number, u: unsigned, f: float, s: symbol, b: bool, d: date, t: timestamp,
    m: decimal(8, 2), p: Place, e: set(unsigned))
seen(n, u, f, s, b, d, t, m, p, e) :- given(n, u, f, s, b, d, t, m, p, e).
"""
SCATTERED = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
.decl goal(y: number)
goal(y) :- reach(_, y).
"""
EDGES = [(1, 2), (2, 3), (3, 4), (4, 1), (5, 6), (6, 7)]


@pytest.fixture(scope="module")
def known(spark: Any) -> Any:
    """A session that knows the format."""
    register(spark)
    return spark


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    vars(stored_views)["_readers"].clear()
    vars(stored_views)["_shards"].clear()


def read(spark: Any, path: Path, view: str, **options: Any) -> Any:
    return spark.read.format("tidelog").options(view=view, **options).load(str(path))


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in frame.toArrow().to_pylist())


def test_rows_and_types(known: Any, tmp_path: Path) -> None:
    row = (
        -1, (1 << 64) - 1, 0.5, "ö", True, dt.date(2026, 2, 3), dt.datetime(2026, 2, 3, 4, 5, 6, 7),
        Decimal("-1.25"), ("here", 1 << 63), frozenset({3, 1}),
    )  # fmt: skip
    with tidelog.Database(TYPES, path=tmp_path / "db", facts={"given": [row]}):
        pass
    frame = read(known, tmp_path / "db", "seen")
    assert [column.dataType.simpleString() for column in frame.schema] == [
        "bigint", "decimal(20,0)", "double", "string", "boolean", "date", "timestamp",
        "decimal(8,2)", "struct<name:string,size:decimal(20,0)>", "array<decimal(20,0)>",
    ]  # fmt: skip
    shown = frame.selectExpr("n", "u", "f", "s", "b", "string(d)", "string(t)", "m", "p", "e")
    assert rows(shown) == [
        (
            -1, Decimal((1 << 64) - 1), 0.5, "ö", True, "2026-02-03", "2026-02-03 04:05:06.000007",
            Decimal("-1.25"), {"name": "here", "size": Decimal(1 << 63)}, [1, 3],
        )
    ]  # fmt: skip


def test_a_database_that_goes_on(
    known: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.Database(SCATTERED, path=tmp_path, facts={"edge": EDGES[:2]}) as database:
        for edge in EDGES[2:]:
            with database.transaction() as tx:
                tx.insert("edge", [edge])
        now = sorted(database.view("reach"))
        assert rows(read(known, tmp_path, "reach")) == now
        assert rows(read(known, tmp_path, "reach", epoch=0)) == [(1, 2), (1, 3), (2, 3)]
        changes = read(known, tmp_path, "reach", what="changes", since=3)
        assert rows(changes) == [(5, 7, "+", 4), (6, 7, "+", 4)]
        # Several parts have each row once, whoever reads which.
        monkeypatch.setattr(stored_views, "_PART_ROWS", 4)
        state = open_state(str(tmp_path))
        parts = state.parts("reach", database.epoch)
        assert len(parts) > 3
        found = [tuple(r.values()) for p in parts for b in p.read() for r in b.to_pylist()]
        assert sorted(found) == now


def stream(
    spark: Any, state: Path, folder: Path, view: str, **options: Any
) -> Callable[[], list[tuple[Any, ...]]]:
    """Return a function that takes what is there, and returns all that the stream has given."""
    frame = (
        spark.readStream.format("tidelog")
        .options(view=view, what="changes", **options)
        .load(str(state))
    )

    def take() -> list[tuple[Any, ...]]:
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "out"))
        )
        query.awaitTermination()
        return rows(spark.read.parquet(str(folder / "out")))

    return take


def replayed(changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what is left when changes are applied in the order of their epochs."""
    held: set[tuple[Any, ...]] = set()
    for *row, op, _ in sorted(changes, key=lambda change: (change[-1], change[-2] == "+")):
        (held.add if op == "+" else held.remove)(tuple(row))
    return sorted(held)


def test_a_stream_of_a_database(known: Any, tmp_path: Path) -> None:
    state = tmp_path / "db"
    with tidelog.Database(SCATTERED, path=state, facts={"edge": EDGES[:2]}) as database:
        take = stream(known, state, tmp_path, "goal")
        assert take() == [(2, "+", 0), (3, "+", 0)]
        with database.transaction() as tx:
            tx.insert("edge", [(3, 4)])
        with database.transaction() as tx:
            tx.delete("edge", [(1, 2)])
        both = [(2, "+", 0), (2, "-", 2), (3, "+", 0), (4, "+", 1)]
        assert take() == both
        assert take() == both  # nothing new
        since = stream(known, state, tmp_path / "since", "goal", since=1)
        assert since() == [(2, "-", 2)]


@pytest.mark.parametrize("view", ["reach", "goal"])
def test_shards(known: Any, tmp_path: Path, view: str) -> None:
    folder = Folder(tmp_path, SCATTERED)
    folder.views = ["reach", "goal"]
    folder.placement = {"placement": "sharded", "shards": 2}
    source = folder.source("edge", "csv", mode="changes")
    sinks = [sink for sink in folder.sinks() if sink.view == view and sink.what == "changes"]
    state = tmp_path / "state"
    take = None
    edges: set[tuple[int, int]] = set()
    for number, (x, y) in enumerate([*EDGES[:4], (4, 1)]):
        op = "-" if (x, y) in edges else "+"
        (edges.discard if op == "-" else edges.add)((x, y))
        folder.write(f"edge/{number}.csv", f"{op},{x},{y}\n")
        with folder.pipeline(source, sinks=sinks) as pipeline:
            pipeline.run(known)
            assert pipeline.epoch == number
        now = sorted(expected(SCATTERED, {"edge": sorted(edges)}, view))
        assert rows(read(known, state, view)) == now
        if number in (1, 4):
            take = take or stream(known, state, tmp_path / "stream", view)
            assert replayed(take()) == now
    first = rows(read(known, state, view, what="changes", since=3))
    assert {change[-2:] for change in first} == {("-", 4)}


def test_sql(known: Any, tmp_path: Path) -> None:
    with tidelog.Database(SCATTERED, path=tmp_path, facts={"edge": EDGES}):
        pass
    known.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW goals USING tidelog"
        f" OPTIONS (path '{tmp_path}', view 'goal')"
    )
    assert known.sql("SELECT max(y) FROM goals").toArrow()[0].to_pylist() == [7]
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        known.sql(f"CREATE TABLE goals_too USING tidelog OPTIONS (path '{tmp_path}', view 'goal')")


def test_what_cannot_be_read(known: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="needs the option `view`"):
        known.read.format("tidelog").load(str(tmp_path))
    with pytest.raises(Exception, match="there is no state in"):
        read(known, tmp_path / "no", "x")
    with tidelog.Database(
        SCATTERED, path=tmp_path, facts={"edge": EDGES}, retain_epochs=1
    ) as database:
        for x in range(10, 40):
            with database.transaction() as tx:
                tx.insert("edge", [(x, x + 1)])
            database.snapshot()
        with pytest.raises(Exception, match="did you mean `reach`"):
            read(known, tmp_path, "reahc")
        with pytest.raises(UsageError, match=r"what.*changes"):
            Wanted({"path": "x", "view": "y", "since": "3"})
        with pytest.raises(UsageError, match="no option `epcoh`"):
            Wanted({"path": "x", "view": "y", "epcoh": "3"})
        with pytest.raises(Exception, match="begin again with a new checkpoint"):
            read(known, tmp_path, "goal", what="changes", since=0).toArrow()
        with pytest.raises(Exception, match="not retained any more"):
            read(known, tmp_path, "goal", epoch=0).toArrow()
        with pytest.raises(Exception, match="there is no epoch 99 yet"):
            read(known, tmp_path, "goal", epoch=99).toArrow()


def test_a_view_without_a_sink_has_no_changes_in_shards(known: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a.csv", "1,2\n")
    pipeline = Pipeline(
        PROGRAM, state=tmp_path / "state", sources=[folder.source("edge", "csv")],
        placement="sharded", shards=2,
    )  # fmt: skip
    with pipeline:
        pipeline.run(known)
        folder.write("edge/b.csv", "2,3\n")
        pipeline.run(known)
    state = open_state(str(tmp_path / "state"))
    with pytest.raises(UsageError, match="no sink writes it"):
        state.change_parts("reach", 0, 1)
