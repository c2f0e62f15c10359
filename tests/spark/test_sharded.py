"""Sharded pipelines on Spark: sinks, restarts, failing workers, and moves between placements."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.cli.main import main
from tidelog.errors import DataError, UsageError
from tidelog.spark import Pipeline, Sink, Source, shard_job
from tidelog.spark.placements import choose
from tidelog.spark.shard_task import forget

pytestmark = pytest.mark.sampled(3)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    forget()
    yield
    forget()


class Sharded(Folder):
    """A folder whose pipelines are sharded."""

    def __init__(self, path: Path, program: str = PROGRAM, shards: int = 2) -> None:
        super().__init__(path, program)
        self.placement = {"placement": "sharded", "shards": shards}

    def run(self, spark: Any, *sources: Source, sinks: Any = None) -> Any:
        with self.pipeline(*sources, sinks=sinks) as pipeline:
            done = pipeline.run(spark)
            total = pipeline.totals()
            assert total.received == total.accepted + total.quarantined
            for sink in self.sinks() if sinks is None else ():
                self.check_sink(sink, Views(pipeline))  # type: ignore[arg-type]
        return done


class Views:
    """The views of a pipeline, as those of a database are asked for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def view(self, name: str) -> list[tuple[Any, ...]]:
        table = self._pipeline.table(name)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_changed_program_is_migrated(spark: Any, tmp_path: Path) -> None:
    folder = Sharded(tmp_path)
    folder.write("edge/a", "1,2\n2,3\n")
    source = folder.source("edge", "csv")
    folder.run(spark, source)
    other = PROGRAM.replace("reach(x, y), edge(y, z)", "reach(x, y), edge(y, z), z > 3")
    sinks = folder.sinks()
    keys: dict[str, Any] = {"on_program_change": "migrate", "sources": [source], "sinks": sinks}
    for text, edges in (("", {(1, 2), (2, 3)}), ("3,4\n", {(1, 2), (2, 3), (3, 4)})):
        if text:
            folder.write("edge/b", text)
        with Pipeline(other, state=tmp_path / "state", **folder.placement, **keys) as pipeline:
            pipeline.run(spark)
            views = Views(pipeline)
            assert set(views.view("reach")) == expected(other, {"edge": edges}, "reach")
            for sink in sinks:  # those of changes as well: they have the epoch of the migration
                folder.check_sink(sink, views)  # type: ignore[arg-type]


def test_epochs_restarts_and_sinks(spark: Any, tmp_path: Path) -> None:
    folder = Sharded(tmp_path)
    edge = folder.source("edge", "csv", mode="changes", files_per_epoch=1)
    label = folder.source("label", "json")
    edges: set[tuple[int, int]] = set()
    labels = {(x, name) for x in range(6) for name in ("p", "q")}
    lines = "".join(f'{{"x": {x}, "name": "{name}"}}\n' for x, name in sorted(labels))
    folder.write("label/0", lines + '{"x": "?", "name": "z"}\n')
    for number, text in enumerate(("+,1,2\n+,2,3\n+,3,1\n", "-,2,3\n+,4,5\n", "+,2,4\n-,1,2\n")):
        path = folder.write(f"edge/{number}", text)
        os.utime(path, ns=(number * 10**9, number * 10**9))
        for line in text.split():
            sign, x, y = line.split(",")
            (edges.add if sign == "+" else edges.discard)((int(x), int(y)))
        done = folder.run(spark, edge, label)
        assert [epoch.epoch for epoch in done] == [number]
    with folder.pipeline(edge, label) as pipeline:
        pipeline.start(spark)
        for view in ("reach", "reaches"):
            facts = {"edge": edges, "label": labels}
            assert set(Views(pipeline).view(view)) == expected(PROGRAM, facts, view)
        assert pipeline.totals().quarantined == 1
        with pytest.raises(UsageError, match="no single database"):
            _ = pipeline.database
    assert [bad["reason"][:10] for bad in folder.quarantined()] == ["column `x`"]


def write_edges(folder: Folder, name: str, rows: dict[str, Any]) -> None:
    path = folder.path / "in" / "edge"
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), path / name)
    moment = len(list(path.iterdir())) * 10**9
    os.utime(path / name, ns=(moment, moment))


def test_parquet_files_of_several_schemas(spark: Any, tmp_path: Path) -> None:
    folder = Sharded(tmp_path, shards=3)
    edge = folder.source("edge", "parquet", mode="changes", files_per_epoch=2)
    # A source without new files: its part of the micro-batch must not read the files of the other.
    label = folder.source("label", "json")
    folder.write("label/0", '{"x": 1, "name": "p"}\n')
    write_edges(folder, "a.parquet", {"x": [1, 2, 3], "y": [2, 3, 4], "op": ["+", "+", "+"]})
    folder.run(spark, edge, label)
    # The last word counts, in the order of the files; texts are parsed, and what does not fit told.
    write_edges(folder, "b.parquet", {"x": [2, 5], "y": [3, 6], "op": ["-", "+"]})
    write_edges(folder, "c.parquet", {"x": ["2", "x", "5"], "y": [3, 1, 6], "op": ["+", "+", "-"]})
    done = folder.run(spark, edge, label)
    assert [(d.received, d.quarantined, d.inserted, d.deleted) for d in done] == [(5, 1, 0, 0)]
    with folder.pipeline(edge, label) as pipeline:
        pipeline.start(spark)
        assert set(Views(pipeline).view("edge")) == {(1, 2), (2, 3), (3, 4)}
    (bad,) = folder.quarantined()
    assert (bad["file"], bad["row"]["x"], bad["epoch"]) == ("c.parquet", "x", 1)


def test_an_error_in_a_shard_ends_the_epoch(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number)\n.decl q(x: number, y: number)\nq(x, 6 / x) :- p(x).\n"
    folder = Sharded(tmp_path, program)
    folder.write("p/a", "1\n2\n3\n")
    source = folder.source("p", "csv")
    folder.run(spark, source, sinks=[])
    bad = folder.write("p/b", "0\n4\n")
    with pytest.raises(DataError, match="division by zero"):
        folder.run(spark, source, sinks=[])
    bad.write_text("6\n")
    folder.run(spark, source, sinks=[])
    with folder.pipeline(source, sinks=[]) as pipeline:
        pipeline.start(spark)
        assert set(Views(pipeline).view("q")) == {(1, 6), (2, 3), (3, 2), (6, 1)}


def test_workers_that_die_and_tasks_that_run_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Sharded(tmp_path)
    edge = folder.source("edge", "csv", mode="changes")
    folder.write("edge/0", "+,1,2\n+,2,3\n")
    folder.run(spark, edge)
    flag = tmp_path / "die"
    flag.write_text("once")
    monkeypatch.setattr(shard_job.BySpark, "task", lambda self, work: dying(work, str(flag)))
    folder.write("edge/1", "+,3,4\n-,1,2\n")
    folder.run(spark, edge)
    assert not flag.exists()
    monkeypatch.undo()
    folder.write("edge/2", "+,4,1\n")
    folder.run(spark, edge)
    with folder.pipeline(edge) as pipeline:
        pipeline.start(spark)
        facts = {"edge": {(2, 3), (3, 4), (4, 1)}}
        assert set(Views(pipeline).view("reach")) == expected(PROGRAM, facts, "reach")


def dying(task: Any, flag: str) -> Any:
    """Return a task of which the first one to come does everything, and then ends its process."""

    def run(batches: Any) -> Any:
        import os as system

        answers = list(task(batches))
        try:
            system.unlink(flag)
        except FileNotFoundError:
            yield from answers
            return
        system._exit(1)

    return run


FILE = """
[pipeline]
program = "roads.dl"
PLACEMENT

[[source]]
relation = "edge"
format = "csv"
path = "in/edge"

[[sink]]
view = "reach"
format = "csv"
path = "out/reach"

[[sink]]
view = "reach"
what = "changes"
path = "out/changes"
"""


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["tidelog", "pipeline", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_state_moves_between_placements(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "roads.dl").write_text(PROGRAM)
    folder = Folder(tmp_path)
    file = tmp_path / "roads.toml"
    file.write_text(FILE.replace("PLACEMENT", ""))
    assert call(monkeypatch, "rescale", str(file)) == 2
    assert "there is no state to move" in capsys.readouterr().err
    edges = set()
    moves = [
        ((), "one database", "driver"),
        (("--shards", "3"), "3 shards", "sharded"),
        (("--shards", "2", "--placement", "sharded"), "2 shards", "sharded"),
        (("--placement", "driver"), "one database", "driver"),
    ]
    for number, (words, where, placement) in enumerate(moves):
        if number:
            assert call(monkeypatch, "rescale", str(file), *words) == 0
            said = f"roads: epoch {number - 1} is now in {where}\n"
            assert capsys.readouterr().out == said
        folder.write(f"edge/{number}", f"{number},{number + 1}\n")
        edges.add((number, number + 1))
        with Pipeline.from_file(file) as pipeline:
            assert pipeline.placement == placement
            done = pipeline.run(spark)
            assert [d.epoch for d in done] == [number]
            assert pipeline.totals().received == number + 1
            view = set(Views(pipeline).view("reach"))
            assert view == expected(PROGRAM, {"edge": edges}, "reach")
            folder.check_sink(Sink("reach", "changes", path=str(tmp_path / "out/changes")),
                              Views(pipeline))  # fmt: skip
        assert call(monkeypatch, "status", str(file)) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"roads: epoch {number}"
    assert len([p for p in (tmp_path / "state").iterdir() if p.name.startswith("data")]) == 1
    file.write_text(FILE.replace("PLACEMENT", 'placement = "sharded"'))
    assert call(monkeypatch, "check", str(file)) == 2
    assert "`tidelog pipeline rescale` moves it" in capsys.readouterr().err


def test_what_is_chosen_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "roads.dl").write_text(PROGRAM)
    file = tmp_path / "roads.toml"
    file.write_text(FILE.replace("PLACEMENT", "shards = 4"))
    assert call(monkeypatch, "check", str(file)) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: fine (1 source, 2 sinks, placement sharded)",
        "placement sharded: 4 shards were requested",
        "4 shards",
        "  edge: by x, and whole in every shard",
        "  label: by x",
        "  reach: by x",
        "  reaches: where it is derived, counted once",
    ]
    total = PROGRAM + ".decl total(n: number)\ntotal(n) :- n = count : { edge(_, _) }.\n"
    (tmp_path / "roads.dl").write_text(total)
    assert call(monkeypatch, "check", str(file)) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .startswith("placement driver: not sharded: `total` is whole in every shard: none of the")
    )
    (tmp_path / "roads.dl").write_text(
        ".decl edge(x: number, y: number)\n.decl reach(n: number)\n"
        "reach(n) :- n = count x : { edge(x, _) }.\n"
    )
    file.write_text(FILE.replace("PLACEMENT", 'placement = "sharded"'))
    assert call(monkeypatch, "check", str(file)) == 2
    assert "cannot be sharded: every shard would need all rows" in capsys.readouterr().err


def test_large_sources_are_sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog import Program

    monkeypatch.setattr("tidelog.spark.placements.LARGE", 10)
    monkeypatch.setattr("tidelog.spark.placements.cores", lambda: 2)
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    sources = [folder.source("edge", "csv")]
    program = Program.parse(PROGRAM)
    assert choose(program, tmp_path / "state", "auto", None, sources).name == "driver"
    folder.write("edge/b", "1,2\n3,4\n5,6\n")
    chosen = choose(program, tmp_path / "state", "auto", None, sources)
    assert (chosen.name, chosen.sides) == ("sharded", (2,))
    assert chosen.why == "the sources have 16 bytes"


def test_on_spark_connect(remote: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    folder = Sharded(tmp_path)
    folder.write("edge/0", "1,2\n2,3\n")
    (tmp_path / "roads.dl").write_text(PROGRAM)
    file = tmp_path / "roads.toml"
    file.write_text(FILE.replace("PLACEMENT", 'placement = "sharded"\nshards = 2'))
    words = ["pipeline", "run", str(file), "--remote", remote]
    done = subprocess.run(
        [sys.executable, "-c", "from tidelog.cli.main import main; main()", *words],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/reach/part-00000.csv").read_text().count("\n") == 4
