"""Pipelines that end anywhere, and go on: each row counts once, and sinks are as they should be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seeded
from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.errors import DataError, StateError, UsageError
from tidelog.spark import Pipeline
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.sink_files import FileWriter
from tidelog.spark.sink_state import SinkState

pytestmark = pytest.mark.sampled(2)


class Dying(StateError):
    """Ends an epoch where a process might. It is not tried again."""


# Where a process can end: before or after each of these.
PLACES = [
    (Quarantine, "write"),
    (DriverPlacement, "apply"),
    (FileWriter, "write_table"),
    (FileWriter, "write_changes"),
    (SinkState, "wrote"),
]


def die_at(patch: pytest.MonkeyPatch, place: tuple[type, str], call: int, before: bool) -> None:
    kind, name = place
    original = getattr(kind, name)
    calls = [0]

    def dying(self: Any, *args: Any, **keys: Any) -> Any:
        calls[0] += 1
        dies = calls[0] == call
        if dies and before:
            raise Dying
        result = original(self, *args, **keys)
        if dies:
            raise Dying
        return result

    patch.setattr(kind, name, dying)


def test_random_ends(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded("restart")
    folder = Folder(tmp_path)
    edge = folder.source("edge", "csv", mode="changes", files_per_epoch=2)
    label = folder.source("label", "json")
    rows: set[tuple[int, int]] = set()
    labels: set[tuple[int, str]] = set()
    received, deaths = 0, 0
    for number in range(8):
        row = (rng.randrange(6), rng.randrange(6))
        sign = rng.choice("++-")
        (rows.add if sign == "+" else rows.discard)(row)
        path = folder.write(f"edge/{number}", f"{sign},{row[0]},{row[1]}\nbad,{number},0\n")
        os.utime(path, ns=(number * 10**9, number * 10**9))
        labels.add((number % 6, f"l{number}"))
        folder.write(f"label/{number}", f'{{"x": {number % 6}, "name": "l{number}"}}\n')
        received += 3
        try:
            with monkeypatch.context() as patch:
                place, call = rng.choice(PLACES), rng.randrange(1, 3)
                if number == 3:  # an epoch is applied in any case: here it dies, whatever the seed
                    place, call = (DriverPlacement, "apply"), 1
                die_at(patch, place, call, rng.random() < 0.5)
                folder.run(spark, edge, label)
        except Dying:
            deaths += 1
    folder.run(spark, edge, label)  # which checks the sinks against the database
    assert deaths
    facts = {"edge": rows, "label": labels}
    for view in ("reach", "reaches"):
        assert folder.rows(view) == expected(PROGRAM, facts, view)
    with folder.pipeline(edge, label) as pipeline:
        assert (pipeline.totals().received, pipeline.totals().quarantined) == (received, 8)
    assert sorted(bad["row"]["x"] for bad in folder.quarantined()) == list("01234567")


def test_a_sink_that_fails_after_its_first_write_goes_on_in_a_later_epoch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv")
    for number, before in enumerate((False, False, True)):
        folder.write(f"edge/{number}", f"{number},{number + 1}\n")
        with monkeypatch.context() as patch, pytest.raises(Dying):
            die_at(patch, (FileWriter, "write_changes"), 1, before)
            folder.run(spark, source)
    folder.run(spark, source)  # which checks the sinks against the database
    assert folder.rows("reach") == expected(PROGRAM, {"edge": [(0, 1), (1, 2), (2, 3)]}, "reach")


def test_two_at_a_time_are_refused(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    source = folder.source("edge", "csv")
    with folder.pipeline(source) as first:
        first.run(spark)
        with pytest.raises(StateError), folder.pipeline(source) as second:
            second.run(spark)


def test_another_program_is_refused_or_rebuilt(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n2,3\n")
    source = folder.source("edge", "csv")
    folder.run(spark, source)
    other = PROGRAM.replace("reach(x, y), edge(y, z)", "reach(x, y), edge(y, z), z > 3")
    keys: dict[str, Any] = {"state": tmp_path / "state", "sources": [source]}
    with pytest.raises(UsageError, match="another program"), Pipeline(other, **keys) as pipeline:
        pipeline.run(spark)
    table, _, changes, _ = folder.sinks()
    keys |= {"on_program_change": "rebuild", "sinks": [table]}
    with Pipeline(other, **keys) as pipeline:
        assert pipeline.run(spark) == []  # the offsets are kept
        assert set(pipeline.database.view("reach")) == {(1, 2), (2, 3)}
        folder.check_sink(table, pipeline.database)
    keys["sinks"] = [table, changes]
    with (
        pytest.raises(UsageError, match="its changes cannot continue those already written"),
        Pipeline(other, **keys) as pipeline,
    ):
        pipeline.run(spark)


def test_another_program_is_migrated(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n2,3\n")
    source = folder.source("edge", "csv")
    folder.run(spark, source)
    other = PROGRAM.replace("reach(x, y), edge(y, z)", "reach(x, y), edge(y, z), z > 3")
    sinks = folder.sinks()
    keys: dict[str, Any] = {"on_program_change": "migrate", "sources": [source], "sinks": sinks}
    with Pipeline(other, state=tmp_path / "state", **keys) as pipeline:
        pipeline.run(spark)
        assert set(pipeline.database.view("reach")) == {(1, 2), (2, 3)}
        assert pipeline.database.opened is not None and pipeline.database.opened.migrated
        for sink in sinks:  # those of changes as well: they have the epoch of the migration
            folder.check_sink(sink, pipeline.database)


def test_an_epoch_that_cannot_be_computed_changes_nothing(spark: Any, tmp_path: Path) -> None:
    program = ".decl p(x: number)\n.decl q(x: number)\nq(1 / x) :- p(x).\n"
    folder = Folder(tmp_path, program)
    folder.write("p/a", "1\n")
    source = folder.source("p", "csv")
    folder.run(spark, source, sinks=[])
    bad = folder.write("p/b", "0\n")
    with pytest.raises(DataError, match="division by zero"):
        folder.run(spark, source, sinks=[])
    assert folder.rows("q") == {(1,)}
    bad.unlink()
    # Spark has planned the batch, so it is an epoch, without rows.
    assert [(d.epoch, d.received) for d in folder.run(spark, source, sinks=[])] == [(1, 0)]
    assert folder.rows("q") == {(1,)}


def test_a_continuous_run_ends_when_it_is_told(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/0", "0,1\n")
    with folder.pipeline(folder.source("edge", "csv")) as pipeline:

        def watch(done: Any) -> None:
            if done.epoch == 2:
                pipeline.stop()
            else:
                folder.write(f"edge/{done.epoch + 1}", f"{done.epoch + 1},{done.epoch + 2}\n")

        done = pipeline.run(spark, once=False, poll_seconds=0.01, watch=watch)
    assert [d.epoch for d in done] == [0, 1, 2]
    assert folder.rows("reach") == {(x, y) for x in range(4) for y in range(4) if x < y}
