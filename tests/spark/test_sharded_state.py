"""The sharded placement without Spark: random histories, reopened and late, are exact."""

from __future__ import annotations

import gc
import pickle
import random
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, random_case
from tests.maintain.shapes import SHAPES
from tests.maintain.test_virtual import virtual_case
from tests.samples import sample, until
from tests.seeds import case_seeds
from tidelog.durable.files import Files
from tidelog.errors import StateError, UsageError
from tidelog.io.offsets import RowCounts
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.plan.planned import planned
from tidelog.reference import evaluate
from tidelog.sharding import layout, shard_state
from tidelog.sharding.layout import lay_out
from tidelog.sharding.sharding import NotSharded
from tidelog.spark import placement_sharded, shard_task
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.shard_epoch import EpochWork, done_in
from tidelog.spark.shard_exchange import arrived, rows_of_shuffle
from tidelog.spark.shard_routing import Sent, batch_of
from tidelog.spark.worker_process import GcFreeze

PROGRAMS = sample(12, 200)
MIGRATIONS = sample(8, 200)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    shard_task.forget()
    yield
    shard_task.forget()
    shard_task.cells_of.cache_clear()
    shard_task.program_of.cache_clear()


def through_a_shuffle(
    work: EpochWork, tables: Mapping[int, Any]
) -> list[tuple[int, dict[str, Any]]]:
    """Do an epoch in this process, with rows as the shuffles bring them to the tasks."""
    work = pickle.loads(pickle.dumps(work))
    cells = work.cells
    rows: list[Sent] = [
        (shard, source, len(table), None, None, shard_task.as_bytes(table))
        for source, parts in tables.items()
        for shard, table in parts
    ]
    found: list[tuple[int, dict[str, Any]]] = []
    for stage in range(cells.stages):
        part = replace(work, stage=stage)
        found, sent = [], []
        for own in range(cells.shards):
            batches = [batch_of([row]) for row in rows if row[0] == own]
            came = arrived(rows_of_shuffle(batches), cells, work.checks, stage)
            done = done_in(part, own, came)
            found.append((own, done.answer))
            sent += done.sent
        rows = sent
    return found


def is_refused(program: Program) -> bool:
    """Return whether some view cannot be virtual, which planning finds."""
    try:
        planned(program)
    except tidelog.ProgramError:
        return True
    return False


class Histories:
    """Runs cases through a placement; `forget` says when shards in memory are lost."""

    def __init__(self, folder: Path, forget: int) -> None:
        self._folder, self._forget = folder, forget
        self._numbers = iter(range(10**6))
        self.epochs = self.staged = 0

    def check(self, case: RandomCase) -> None:
        program = Program.parse(case.program)
        made = lay_out(program, (1, 2, 5)[case.seed % 3])
        if isinstance(made, NotSharded) or is_refused(program):
            return
        self.staged += len(made.programs) > 1
        folder = self._folder / str(next(self._numbers))
        views = list(program.relations)

        def opened() -> ShardedPlacement:
            return ShardedPlacement(program, folder, made.grid.sides, 1000, views)

        placement = opened()
        before: Mapping[str, Any] = {}
        given: Mapping[str, Any] = dict.fromkeys(views, frozenset())
        contents: dict[int, Mapping[str, Any]] = {}
        number = 0
        for state in case.states():
            number += 1
            changes = EpochChanges(
                {name: set(rows - given[name]) for name, rows in state.items()},
                {name: set(given[name] - rows) for name, rows in state.items()},
                {"source": {f"file{number}": "x"}},
                {"source": RowCounts(2, 1, 1)},
            )
            try:
                after = evaluate(program, state)
            except tidelog.DataError:
                if program.views:  # what is not computed does not fail
                    placement.close()
                    return
                epoch = placement.epoch
                with pytest.raises(tidelog.DataError):
                    placement.apply(changes)
                assert placement.epoch == epoch
                if not before:
                    placement.close()
                    return
                continue
            placement.apply(changes)
            self.epochs += 1
            before, given = after, state
            contents[placement.epoch] = after
            if number % self._forget == 0:
                shard_task._kept.clear()
            if number % 3 == 0:
                placement.close()
                placement = opened()
            for name, rows in after.items():
                assert placement.rows(name) == rows, f"rows of {name}, epoch {number}"
                assert set(placement.given(name)) == state[name]
        assert placement.counts()["source"] == RowCounts(
            2 * len(contents), len(contents), len(contents)
        )
        assert placement.counts().keys() == {"source"}
        assert len(placement.offsets("source")) == len(contents)
        self._compare_changes(placement, contents)
        placement.close()

    def _compare_changes(
        self, placement: ShardedPlacement, contents: Mapping[int, Mapping[str, Any]]
    ) -> None:
        for name, since in product(contents[0], sorted(contents)[:3]):
            found = {
                epoch: (set(change.inserted), set(change.deleted))
                for epoch, change in placement.changes(name, since)
            }
            expected = {}
            for epoch in range(since + 1, max(contents) + 1):
                old, new = contents[epoch - 1][name], contents[epoch][name]
                if old != new:
                    expected[epoch] = (new - old, old - new)
            assert found == expected, f"changes of {name} since {since}"
            # A scattered view can have changed in some shard, and yet be the same.
            if expected or not placement.layout.shown[name].is_scattered:
                assert placement.unchanged(name, since) == (not expected)


@pytest.mark.parametrize("way", ["here", "shuffled", "staged", "virtual"])
def test_random_histories(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    monkeypatch.setattr(shard_state, "_LEAST_LOG", 600)  # snapshots all the time
    if way in ("shuffled", "staged"):
        monkeypatch.setattr(placement_sharded, "in_this_process", through_a_shuffle)
    if way == "staged":  # the more stages, the better
        monkeypatch.setattr(layout, "_STAGE", -1.0)
        monkeypatch.setattr(layout, "_EXCHANGE", -0.2)
    histories = Histories(tmp_path, forget=2 if way == "here" else 3)
    offset = {"here": 71_000, "shuffled": 75_000, "staged": 79_000, "virtual": 83_000}[way]
    chosen = case_seeds(10 * PROGRAMS, offset=offset)

    def is_enough() -> bool:
        return histories.epochs > PROGRAMS and (way != "staged" or histories.staged > 2)

    for i in until(is_enough, least=PROGRAMS, most=10 * PROGRAMS):
        check_cases(
            chosen[i : i + 1],
            histories.check,
            virtual_case
            if way == "virtual"
            else lambda seed: random_case(seed, replace(SHAPES[seed % len(SHAPES)], epochs=(6, 6))),
        )
    assert is_enough()


PROGRAM = Program.parse(
    ".decl a(k: number, x: symbol)\n.decl b(k: number)\n.decl v(k: number, n: number)\n"
    "v(k, n) :- b(k), n = count : { a(k, _) }.\n"
)


def rows(*numbers: int) -> EpochChanges:
    return EpochChanges({"a": {(n, f"s{n}") for n in numbers}, "b": {(n,) for n in numbers}})


def test_what_was_not_committed_has_not_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    placement.apply(rows(1, 2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(ShardedPlacement, "_commit", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            placement.apply(rows(4, 5))
    assert placement.rows("v") == {(n, 1) for n in (1, 2, 3)}
    placement.apply(rows(6, 7))
    assert placement.rows("v") == {(n, 1) for n in (1, 2, 3, 6, 7)}
    placement.close()
    shard_task._kept.clear()
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    assert placement.rows("v") == {(n, 1) for n in (1, 2, 3, 6, 7)}
    placement.close()


# --- another program ------------------------------------------------------------------------------

ROADS = """
    .decl road(x: number, y: number)
    .decl far(x: number, y: number)
    far(x, y) :- road(x, y).
"""
STEP = "far(x, z) :- far(x, y), road(y, z).\n"
COUNTED = ".decl ends(x: number, n: number) ends(x, n) :- road(x, _), n = count : { far(x, _) }.\n"


def roads(*rows: tuple[int, int]) -> EpochChanges:
    return EpochChanges({"road": set(rows)})


def on_roads(folder: Path, text: str, *, migrates: bool = False) -> ShardedPlacement:
    program = Program.parse(text)
    views = list(program.relations)
    return ShardedPlacement(program, folder, (3,), 10, views, migrates=migrates)


def test_a_changed_program_is_applied_as_an_epoch(tmp_path: Path) -> None:
    rows = {(n, n + 1) for n in range(20)}
    placement = on_roads(tmp_path, ROADS + STEP)
    placement.apply(roads(*rows))
    before = placement.rows("far")
    placement.close()
    with pytest.raises(UsageError, match="belongs to another program"):
        on_roads(tmp_path, ROADS + STEP + COUNTED)
    text = ROADS + STEP + COUNTED + "far(x, x) :- road(x, _).\n"
    placement = on_roads(tmp_path, text, migrates=True)
    assert placement.epoch == 1
    expected = evaluate(Program.parse(text), {"road": rows})
    for name, held in expected.items():
        assert placement.rows(name) == held
    changes = dict(placement.changes("far", 0))
    assert set(changes[1].inserted) == expected["far"] - before
    assert not set(changes[1].deleted)
    assert set(dict(placement.changes("ends", 0))[1].inserted) == expected["ends"]
    placement.apply(roads((5, 100)))
    rows |= {(5, 100)}
    placement.close()
    shard_task._kept.clear()
    placement = on_roads(tmp_path, text, migrates=True)
    assert placement.epoch == 2
    assert placement.rows("ends") == evaluate(Program.parse(text), {"road": rows})["ends"]
    placement.close()
    placement = on_roads(tmp_path, ROADS + STEP, migrates=True)
    assert placement.epoch == 3
    assert placement.rows("far") == evaluate(Program.parse(ROADS + STEP), {"road": rows})["far"]
    placement.close()


def test_a_program_that_needs_other_shards_is_refused(tmp_path: Path) -> None:
    placement = on_roads(tmp_path, ROADS)
    placement.apply(roads((1, 2), (2, 3)))
    placement.close()
    scattered = ".decl ends(y: number)  .view ends(virtual=true)\nends(y + 1) :- road(_, y)."
    for more, why in (
        (STEP, "needs rows of `road` in other shards"),
        (scattered, "`ends` is virtual, but its rows are where they are derived"),
    ):
        with pytest.raises(UsageError, match=why):
            on_roads(tmp_path, ROADS + more, migrates=True)
    placement = on_roads(tmp_path, ROADS)
    assert (placement.epoch, placement.rows("far")) == (0, {(1, 2), (2, 3)})
    placement.close()


def test_a_view_becomes_virtual_in_all_shards(tmp_path: Path) -> None:
    placement = on_roads(tmp_path, ROADS + STEP)
    placement.apply(roads(*((n, n + 1) for n in range(20))))
    far = placement.rows("far")
    placement.close()
    virtual = ROADS + STEP + ".view far(virtual=true)\n"
    placement = on_roads(tmp_path, virtual, migrates=True)
    placement.apply(EpochChanges({"road": {(5, 100)}}, {"road": {(17, 18)}}))
    epoch = placement.epoch
    placement.close()
    shard_task._kept.clear()
    placement = on_roads(tmp_path, virtual)
    now = evaluate(Program.parse(virtual), {"road": placement.given("road")})["far"]
    assert placement.rows("far") == now != far
    change = dict(placement.changes("far", epoch - 1))[epoch]
    assert (set(change.inserted), set(change.deleted)) == (now - far, far - now)
    placement.close()
    placement = on_roads(tmp_path, ROADS + STEP, migrates=True)
    assert placement.rows("far") == now
    placement.close()


def test_a_migration_that_was_not_committed_has_not_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = on_roads(tmp_path, ROADS + STEP)
    placement.apply(roads((1, 2), (2, 3)))
    placement.close()
    with monkeypatch.context() as patch:
        patch.setattr(ShardedPlacement, "_commit", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            on_roads(tmp_path, ROADS + STEP + COUNTED, migrates=True)
    placement = on_roads(tmp_path, ROADS + STEP)
    placement.apply(roads((3, 4)))
    assert len(placement.rows("far")) == 6
    placement.close()
    placement = on_roads(tmp_path, ROADS + STEP + COUNTED, migrates=True)
    assert placement.rows("ends") == {(1, 3), (2, 2), (3, 1)}
    placement.close()


class Migrations:
    """Runs cases through placements whose programs change, if rows can stay where they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.migrated = self.refused = self.virtual = 0

    def check(self, case: RandomCase) -> None:
        rng = random.Random(f"migrations {case.seed}")
        declared = [*case.types, *map(str, case.declarations)]
        rules = list(dict.fromkeys(map(str, case.rules)))
        derived = sorted(Program.parse(case.program).derived)
        folder = self._folder / str(case.seed)
        given: Mapping[str, Any] = {}
        placement = None
        for state in case.states():
            chosen = [rule for rule in rules if rng.random() < 0.8]
            views = [f".view {name}(virtual=true)" for name in derived if rng.random() < 0.3]
            try:
                program = Program.parse("\n".join([*declared, *chosen, *views]))
            except tidelog.ProgramError:  # a relation that has no rules now
                program = Program.parse("\n".join([*declared, *chosen]))
            if isinstance(lay_out(program, 2), NotSharded) or is_refused(program):
                continue
            try:
                before = evaluate(program, given)
                after = evaluate(program, state)
            except tidelog.DataError:
                continue
            try:
                placement = ShardedPlacement(
                    program, folder, (2,), 1000, list(program.relations), migrates=True
                )
            except UsageError as error:
                assert "in other shards" in str(error) or "exchange rows" in str(error)
                self.refused += 1
                continue
            if placement.epoch >= 0:
                self.migrated += 1
                self.virtual += bool(program.views)
                for name, rows in before.items():
                    assert placement.rows(name) == rows, name
            none: frozenset[Any] = frozenset()
            placement.apply(
                EpochChanges(
                    {name: set(rows - given.get(name, none)) for name, rows in state.items()},
                    {name: set(given.get(name, none) - rows) for name, rows in state.items()},
                )
            )
            for name, rows in after.items():
                assert placement.rows(name) == rows, name
            given = state
            placement.close()


def test_random_programs_that_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    migrations = Migrations(tmp_path)
    seeds = case_seeds(20 * MIGRATIONS, offset=3_000)
    for i in until(lambda: migrations.migrated > 0, least=MIGRATIONS, most=len(seeds)):
        check_cases(seeds[i : i + 1], migrations.check, random_case)
    print(migrations.migrated, migrations.refused, migrations.virtual)
    assert migrations.migrated > 0


def test_an_epoch_is_committed_once(tmp_path: Path) -> None:
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    with pytest.raises(StateError, match="is open for writing"):
        ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    placement.apply(rows(1))
    last = placement._last
    assert last is not None
    with pytest.raises(StateError, match=r"epoch 0 .* was committed by another process"):
        placement._epochs.commit(last)
    placement.close()


def test_a_shard_that_is_let_go_gives_its_memory_back(tmp_path: Path) -> None:
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    placement.apply(rows(1, 2, 3))
    engines = [weakref.ref(shard.engine) for shard in shard_task._kept.values()]
    try:
        GcFreeze.freeze()
        assert gc.get_freeze_count()
        shard_task.forget()
        assert not gc.get_freeze_count()
        gc.collect()
        assert [engine() for engine in engines] == [None, None]
    finally:
        GcFreeze.unfreeze()
        placement.close()


def test_files_that_are_damaged_are_noticed(tmp_path: Path) -> None:
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    placement.apply(rows(*range(20)))
    placement.apply(rows(30, 31, 32, 33))
    placement.close()
    shard_task._kept.clear()
    record = next((tmp_path / "shards" / "0").glob("epoch-*"))
    data = bytearray(record.read_bytes())
    data[60] ^= 1
    record.write_bytes(data)
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 10)
    with pytest.raises(StateError, match="is damaged"):
        placement.rows("v")
    placement.close()
    epoch = tmp_path / "epochs" / "000000000001.json"
    epoch.write_bytes(epoch.read_bytes().replace(b"shards", b"shbrds"))
    with pytest.raises(StateError, match="is damaged"):
        ShardedPlacement(PROGRAM, tmp_path, (2,), 10)


def test_old_epochs_and_their_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "_LEAST_LOG", 1)
    monkeypatch.setattr(placement_sharded, "_CLEAN", 4)
    monkeypatch.setattr("tidelog.sharding.manifest._EVERY", 3)
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 2, ["v"])
    for n in range(21):
        changes = rows(n)
        changes.offsets["s"] = {f"f{n}": "x"}
        placement.apply(changes)
    assert len(placement._epochs.numbers()) <= 6
    assert sum(1 for _ in (tmp_path / "changes").iterdir()) <= 6
    assert sum(1 for _ in (tmp_path / "memory").iterdir()) <= 2
    assert sum(1 for _ in (tmp_path / "shards" / "0").iterdir()) < 25
    with pytest.raises(UsageError, match="are no longer retained"):
        list(placement.changes("v", 3))
    placement.close()
    placement = ShardedPlacement(PROGRAM, tmp_path, (2,), 2, ["v"])
    assert len(placement.offsets("s")) == 21
    assert placement.rows("v") == {(n, 1) for n in range(21)}
    placement.close()


def test_an_epoch_is_committed_when_its_records_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program.parse(".decl p(x: number) .decl q(x: number) q(x) :- p(x).", "p.dl")
    placement = ShardedPlacement(program, tmp_path, (2,), 4)

    def take(*numbers: int) -> EpochChanges:
        return EpochChanges(inserted={"p": CheckedRows([(n,) for n in numbers])})

    placement.apply(take(*range(8)))
    synced: list[str] = []
    end_sync = Files.end_sync

    def noted(files: Files, begun: Any, name: str) -> None:
        end_sync(files, begun, name)
        synced.append(name)

    monkeypatch.setattr(Files, "end_sync", noted)
    placement.apply(take(*range(8, 16)))
    refs = placement._sure.shards
    assert {ref.records[-1] for ref in refs} == set(synced)

    def failing(files: Files, begun: Any, name: str) -> None:
        end_sync(files, begun, name)
        raise StateError("the disk is full")

    monkeypatch.setattr(Files, "end_sync", failing)
    with pytest.raises(StateError, match="the disk is full"):
        placement.apply(take(*range(16, 24)))
    monkeypatch.setattr(Files, "end_sync", end_sync)
    assert placement.rows("q") == {(n,) for n in range(16)}
    placement.apply(take(30))
    assert placement.rows("q") == {(n,) for n in (*range(16), 30)}
    placement.close()


def test_a_virtual_view_has_values_that_nothing_else_has(tmp_path: Path) -> None:
    """Codes get wider while it is read; found by a random program."""
    program = Program.parse(
        ".decl a(x: symbol)\n.decl b(x: symbol, n: number)\n.view b(virtual=true)\n"
        "b(x, strlen(x)) :- a(x).\n"
    )
    made = lay_out(program, 2)
    assert not isinstance(made, NotSharded)
    placement = ShardedPlacement(program, tmp_path, made.grid.sides, 10)
    placement.apply(EpochChanges({"a": {("one",), ("three",)}}))
    assert placement.rows("b") == {("one", 3), ("three", 5)}
    placement.close()


def test_files_follow_the_shards_that_changed(tmp_path: Path) -> None:
    """Of 64 shards, an epoch of one key touches those with the key."""
    program = Program.parse(
        ".decl a(k: number, x: number)\n.decl b(k: number)\n.decl v(k: number, n: number)\n"
        "v(k, n) :- b(k), n = count : { a(k, _) }.\n"
    )
    placement = ShardedPlacement(program, tmp_path, (64,), 10, ["v"])
    keys = range(500)
    placement.apply(EpochChanges({"a": {(k, k) for k in keys}, "b": {(k,) for k in keys}}))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    shard_task.forget()
    placement.apply(EpochChanges({"a": {(7, 8)}}, {"b": {(9,)}}))
    new = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    new -= {path.relative_to(tmp_path) for path in before}
    records = [path for path in new if path.parts[0] == "shards"]
    changes = [path for path in new if path.parts[0] == "changes"]
    assert (len(records), len(changes)) == (2, 2)
    assert len(new) == 5  # and the file that commits the epoch
    assert len(shard_task._kept) == 2  # no other shard was opened
    assert placement.rows("v") == {(k, 1 + (k == 7)) for k in keys if k != 9}
    placement.close()
