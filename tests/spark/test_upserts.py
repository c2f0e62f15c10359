"""Sources of upserts: files in any cut, both placements, against a model; and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.seeds import seeded
from tests.spark.piping import PLACEMENTS, Folder
from tests.spark.upserted import KEYS, PROGRAM, Event, Model, cut, some_events
from tidelog.errors import DataError, UsageError
from tidelog.spark import Pipeline, Sink, Source

pytestmark = pytest.mark.sampled(7)

START = dt.datetime(2026, 1, 1)


class Upserts:
    """A folder of files, each written a second after the one before, and the model of its rows."""

    def __init__(self, path: Path, placement: str, *, with_sequence: bool = True) -> None:
        self.folder = Folder(path, PROGRAM)
        self.folder.placement = PLACEMENTS[placement]
        self.model = Model(with_sequence)
        self.files = self.bad = 0
        self.folder.write("limit/a.csv", "0,2\n1,1\n2,4\n3,3\n")

    def write(self, events: list[Event], content: str | pa.Table) -> None:
        self.files += 1
        # Names are not in the order of the files.
        name = f"item/{self.files * 7919 % 100}-{self.files}"
        path = self.folder.write(name, content if isinstance(content, str) else "")
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        os.utime(path, ns=(self.files * 10**9, self.files * 10**9))
        for event in events:
            self.model.take(event)

    def run(self, spark: Any, source: Source) -> None:
        """Run the pipeline, in a process that knows nothing of the last run; compare views."""
        limits = self.folder.source("limit", "csv")
        sink = Sink("item", what="changes", path=str(self.folder.path / "out"))
        with self.folder.pipeline(source, limits, sinks=[sink]) as pipeline:
            pipeline.run(spark)
            rows = self.model.rows()
            found = [tuple(row.values()) for row in pipeline.table("item").to_pylist()]
            assert sorted(found) == sorted(rows)
            over = {tuple(row.values()) for row in pipeline.table("over").to_pylist()}
            most = {0: 2, 1: 1, 2: 4, 3: 3}
            assert over == {(k, name) for k, v, name, _, _ in rows if v + k > most[v]}
            assert pipeline.totals().quarantined == self.bad
        self.check_changes()

    def check_changes(self) -> None:
        held: set[Any] = set()
        out = self.folder.path / "out"
        changes = pq.read_table(out).to_pylist() if out.exists() else []  # no change, no file
        for row in sorted(changes, key=lambda row: (row["epoch"], row["op"] == "+")):
            *values, op, _ = row.values()
            (held.add if op == "+" else held.remove)(tuple(values))
        assert held == self.model.rows()


def as_json(events: list[Event], rng: Random) -> tuple[str, int]:
    """Return events as lines, and how many bad lines are among them."""
    lines, bad = [], 0
    for event in events:
        row: dict[str, Any] = {"k": event.key[0], "name": event.key[1], "at": event.at}
        row["moment"] = str(START + dt.timedelta(seconds=event.at))
        if event.values is None:
            row["state"] = {"gone": True} if rng.random() < 0.5 else {"gone": True, "w": "bad"}
            row |= rng.choice(({}, {"v": "x"}, {"w": 2.5}))
        else:
            row |= {"v": event.values[0], "w": event.values[1], "state": rng.choice((None, {}))}
        row["gone"] = row.pop("state") is not None and event.values is None
        lines.append(json.dumps(row))
        if rng.random() < 0.2:
            bad += 1
            wrong = {"k": 1, "name": "a", "v": 1, "w": 1.5, "at": 10**6, "gone": False}
            wrong["moment"] = "2030-01-01 00:00:00"
            ways: list[dict[str, Any]] = [{"name": None}, {"k": "x", "gone": True}, {"v": None}]
            ways += [{"moment": None, "at": None}, {"moment": "soon", "at": "soon", "gone": True}]
            lines.append(json.dumps(wrong | rng.choice(ways)))
    return "\n".join(lines) + "\n", bad


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_json_with_a_sequence(spark: Any, tmp_path: Path, placement: str) -> None:
    rng = seeded(f"json with a sequence {placement}")
    upserts = Upserts(tmp_path, placement)
    source = upserts.folder.source(
        "item", "json", mode="upsert", keys=KEYS, sequence="at", delete_when="gone = 'true'"
    )
    for part in cut(rng, some_events(rng, 60))[:3]:
        half = rng.randrange(len(part) + 1)
        for events in (part[:half], part[half:]):  # two files in an epoch
            text, bad = as_json(events, rng)
            upserts.bad += bad
            upserts.write(events, text)
        upserts.run(spark, source)
    reasons = {bad["reason"].partition(":")[0] for bad in upserts.folder.quarantined()}
    assert reasons <= {"column `k`", "column `name`", "column `v`", "sequence `at`", "column `at`"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_csv_without_a_sequence(spark: Any, tmp_path: Path, placement: str) -> None:
    rng = seeded(f"csv without a sequence {placement}")
    upserts = Upserts(tmp_path, placement, with_sequence=False)
    source = upserts.folder.source(
        "item", "csv", mode="upsert", keys=KEYS, delete_when="op IN ('d', 'D')",
        options={"header": "true"},
    )  # fmt: skip
    for part in cut(rng, some_events(rng, 40))[:2]:
        lines = ["op,k,name,at,v,w"]
        for event in part:
            v, w = event.values or ("", "")
            op = "u" if event.values else rng.choice("dD")
            lines.append(f"{op},{event.key[0]},{event.key[1]},{event.at},{v},{w}")
        upserts.write(part, "\n".join(lines) + "\n")
        upserts.run(spark, source)


@pytest.mark.parametrize("kind", ["number", "date", "timestamp", "timestamp_ntz"])
def test_types_of_sequences(spark: Any, tmp_path: Path, kind: str) -> None:
    upserts = Upserts(tmp_path, "driver")
    of: dict[str, tuple[Callable[[int], Any], Any]] = {
        "number": (lambda n: n - 2, pa.int16()),
        "date": (lambda n: dt.date(1969, 12, 30) + dt.timedelta(days=n), pa.date32()),
        "timestamp": (lambda n: START + dt.timedelta(microseconds=n), pa.timestamp("us", "UTC")),
        "timestamp_ntz": (lambda n: START + dt.timedelta(microseconds=n), pa.timestamp("us")),
    }
    made, type_ = of[kind]
    source = upserts.folder.source(
        "item", "parquet", mode="upsert", keys=KEYS, sequence="moment", delete_when="gone",
        select=["k", "v", "name", "at", "w * 1 AS w"],
    )  # fmt: skip
    event = Event
    for events in (
        [event((1, "a"), 3, (1, 0.5)), event((1, "a"), 2, (2, 0.5)), event((2, "a"), 1, None)],
        [event((1, "a"), 2, None), event((2, "a"), 1, (0, 1.5)), event((3, "b"), 0, (1, 1.5))],
        [event((2, "a"), 0, (3, 1.5)), event((3, "b"), 1, None), event((3, "b"), 0, (1, 1.5))],
    ):
        rows = [e.row() or (e.key[0], None, e.key[1], e.at, None) for e in events]
        names = ("k", "v", "name", "at", "w")
        table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        table = table.append_column("moment", pa.array([made(e.at) for e in events], type_))
        table = table.append_column("gone", pa.array([e.values is None for e in events]))
        upserts.write(events, table)
        upserts.run(spark, source)


def as_debezium(events: list[Event], rng: Random) -> str:
    """Return events as PostgreSQL gives them without whole rows: no `before`, or only its key."""
    lines = []
    for event in events:
        key = {"k": event.key[0], "name": event.key[1]}
        row = event.row()
        if row is None:
            lines.append({"op": "d", "before": {**key, "v": None}, "after": None})
        else:
            after = dict(zip(("k", "v", "name", "at", "w"), row, strict=True))
            before = rng.choice((None, None, {}, key))
            lines.append({"op": rng.choice("cru"), "before": before, "after": after})
    return "\n".join(json.dumps({"payload": e} if rng.random() < 0.5 else e) for e in lines) + "\n"


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_debezium_without_before(spark: Any, tmp_path: Path, placement: str) -> None:
    rng = seeded(f"debezium without before {placement}")
    upserts = Upserts(tmp_path, placement, with_sequence=False)
    source = upserts.folder.source("item", "json", mode="debezium", keys=KEYS)
    for part in cut(rng, some_events(rng, 40))[:2]:
        upserts.write(part, as_debezium(part, rng))
        upserts.run(spark, source)
    upserts.bad = 2
    upserts.write([], '{"op": "d", "before": null}\n{"op": "d", "before": {"k": 1, "v": 2}}\n')
    # An update that says what the key was moves the row.
    old, new = Event((3, "a"), 0, None), Event((7, "z"), 5, (1, 1.5))
    after = {"k": 7, "name": "z", "v": 1, "at": 5, "w": 1.5}
    before = {"k": 3, "name": "a", "v": 9}
    upserts.write([old, new], json.dumps({"op": "u", "before": before, "after": after}) + "\n")
    upserts.run(spark, source)
    assert [bad["reason"] for bad in upserts.folder.quarantined()] == [
        "operation d without `before`: it has no key", "column `name`: no value",
    ]  # fmt: skip


def test_a_frame_is_in_its_own_order(spark: Any, tmp_path: Path) -> None:
    def frame(session: Any) -> Any:
        return session.range(0, 4000, 1, 8).selectExpr(
            "id % 10 AS k", "id AS v", "'a' AS name", "0 AS at", "CAST(0 AS DOUBLE) AS w"
        )

    for placement, keys in PLACEMENTS.items():
        source = Source("item", mode="upsert", keys=["k"], sequence="at", frame=frame)
        with Pipeline(PROGRAM, state=tmp_path / placement, sources=[source], **keys) as pipeline:
            pipeline.run(spark)
            values = pipeline.table("item")["v"].to_pylist()
        assert sorted(values) == list(range(3990, 4000))


def test_the_state_moves_with_its_sequences(spark: Any, tmp_path: Path) -> None:
    from tidelog.spark.pipeline_file import read_pipeline_file
    from tidelog.spark.rescaling import rescale

    (tmp_path / "p.dl").write_text(".decl p(k: number, v: number)\n")
    file = tmp_path / "p.toml"
    file.write_text(
        '[pipeline]\nprogram = "p.dl"\n[[source]]\nrelation = "p"\nformat = "csv"\npath = "in"\n'
        'mode = "upsert"\nkeys = ["k"]\nsequence = "at"\ndelete_when = "v = \'gone\'"\n'
        'options = { header = "true" }\n'
    )
    (tmp_path / "in").mkdir()

    def run(name: str, rows: str) -> set[tuple[Any, ...]]:
        (tmp_path / "in" / name).write_text("k,v,at\n" + rows.replace(" ", "\n") + "\n")
        with Pipeline.from_file(file) as pipeline:
            pipeline.run(spark)
            return {tuple(row.values()) for row in pipeline.table("p").to_pylist()}

    assert run("a.csv", "1,10,5 2,20,5 3,gone,5") == {(1, 10), (2, 20)}
    rescale(read_pipeline_file(file), "sharded", 3)
    assert run("b.csv", "1,11,4 2,21,6 3,30,4") == {(1, 10), (2, 21)}
    rescale(read_pipeline_file(file), "sharded", 2)
    assert run("c.csv", "2,22,5 3,31,5") == {(1, 10), (2, 21), (3, 31)}
    rescale(read_pipeline_file(file), "driver", None)
    assert run("d.csv", "1,gone,5 2,22,5") == {(2, 21), (3, 31)}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mode": "upsert"}, 'mode "upsert" needs `keys`'),
        ({"keys": ["k"]}, '`keys` is for the modes "upsert" and "debezium"'),
        ({"mode": "changes", "sequence": "at"}, '`sequence` is for mode "upsert"'),
        (
            {"mode": "debezium", "keys": ["k"], "delete_when": "x"},
            '`delete_when` is for mode "upsert"',
        ),
        ({"mode": "upsert", "keys": ["k", "k"]}, "`keys` names a column twice: k, k"),
        ({"mode": "upsert", "keys": ["k"], "reader": "arrow"}, "is read by Spark"),
        ({"mode": "upsert", "keys": ["kk"]}, "`keys` of the source names `kk`, which `item"),
        ({"mode": "upsert", "keys": ["k"], "sequence": "w"}, "the sequence `w` is float in"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    folder = Folder(tmp_path, PROGRAM)
    with pytest.raises(UsageError, match=message):
        folder.pipeline(folder.source("item", "json", **keys))


def test_an_upserted_relation_has_one_source(tmp_path: Path) -> None:
    folder = Folder(tmp_path, PROGRAM)
    sources = [
        folder.source("item", "json"), folder.source("item", "csv", mode="debezium", keys=KEYS),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="`item-2` replaces rows of `item` by key, so `item`"):
        folder.pipeline(*sources)


def test_hidden_relations_are_hidden(tmp_path: Path) -> None:
    folder = Folder(tmp_path, PROGRAM)
    source = folder.source("item", "json", mode="upsert", keys=KEYS, sequence="at")
    for view in ("tidelog_sequence_item", "tidelog_offsets"):
        with pytest.raises(UsageError, match="which the program does not declare"):
            folder.pipeline(source, sinks=[Sink(view, path=str(tmp_path / "out"))])
        with folder.pipeline(source) as pipeline, pytest.raises(UsageError, match="not declare"):
            pipeline.table(view)


def test_a_condition_or_a_sequence_that_spark_does_not_accept(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1L AS k, 1L AS v, 'a' AS name, 0L AS at, 1.5D AS w, 2.5D AS x")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"delete_when": "gone = 1"}, "Spark does not accept `delete_when`: .*gone"),
        ({"sequence": "x"}, "the sequence `x` is of type double; it must be a whole number"),
        ({"sequence": "y"}, "column `y` missing"),
    ]
    for keys, message in mistakes:
        source = Source("item", mode="upsert", keys=["k"], frame=frame, **keys)
        pipeline = Pipeline(PROGRAM, state=tmp_path / "state", sources=[source])
        with pipeline, pytest.raises(DataError, match=message):
            pipeline.run(spark)


def test_files_without_a_column_that_is_needed_are_quarantined(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path, ".decl p(k: number, v: number)\n")
    source = folder.source(
        "p", "csv", mode="upsert", keys=["k"], sequence="n", delete_when="op = 'd'",
        options={"header": "true"},
    )  # fmt: skip
    folder.write("p/a.csv", "k,v,n,op\n1,1,1,u\n2,2,1,u\n")
    folder.run(spark, source, sinks=[])
    folder.write("p/b.csv", "k,v,n\n1,5,9\n")
    folder.write("p/c.csv", "k,v,op\n2,5,d\n")
    folder.write("p/d.csv", "k,op,n\n1,d,0\n")
    folder.write("p/e.csv", "k,v,op,n\n2,,d,2\n1,1,u,x\n")
    folder.run(spark, source, sinks=[])
    with folder.pipeline(source, sinks=[]) as pipeline:
        assert pipeline.table("p").to_pylist() == [{"k": 1, "v": 1}]
    bad = {row["file"]: (row["reason"], row["row"]) for row in folder.quarantined()}
    assert sorted(bad) == ["b.csv", "c.csv", "d.csv", "e.csv"]
    assert bad["b.csv"][0].startswith("Spark does not accept `delete_when`")
    assert bad["b.csv"][1] == {"k": "1", "v": "5", "n": "9"}
    assert bad["c.csv"][0] == "column `n` missing; there are `k`, `v`, `op`"
    assert bad["e.csv"][1] == {"k": "1", "v": "1", "n": "x"}
