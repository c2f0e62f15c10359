"""Epochs in two parts: what was given, and the views, which can be computed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tidelog
from tests.databases import durable
from tests.durable.parts import last_epoch, records
from tests.faults.faulty import CountingFiles, FailingFiles
from tidelog.cli.main import app
from tidelog.database.database import kernel_of
from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.framing import GIVEN, VIEW, WHOLE
from tidelog.durable.log import Log
from tidelog.durable.log_reading import HEADER, header, read_published
from tidelog.engine.kernel import KernelEngine
from tidelog.persist.replay import read_log
from tidelog.persist.state_copy import copy_state
from tidelog.persist.state_tools import compact, export_state, import_state, info, verify

PAIRS = """
.decl p(x: symbol, n: number)
.decl pair(t: symbol, n: number)
pair(cat(x, y), 100 / n) :- p(x, n), p(y, _).
"""


def insert(db: tidelog.Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.insert("p", rows)


def pairs(*rows: tuple[str, int]) -> set[tuple[str, int]]:
    return {(x + y, 100 // n) for x, n in rows for y, _ in rows}


def crashed(folder: Path, change: Callable[[tidelog.Database], None] | None = None) -> Path:
    """Return a state of two epochs as it is when its process has been killed."""
    db = tidelog.Database(PAIRS, path=folder / "live", facts={"p": [("a", 1)]})
    insert(db, ("b", 2))
    insert(db, ("c", 4))
    if change is not None:
        change(db)
    shutil.copytree(folder / "live", folder / "left")
    db.close()
    return folder / "left"


ROWS = (("a", 1), ("b", 2), ("c", 4))


def kinds(folder: Path) -> list[int]:
    return [record.kind for record in records(folder)[1]]


# --- what is written ---


def test_the_sync_goes_on_while_views_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CountingFiles(tmp_path)
    with durable(PAIRS, files) as db:
        (strategy,) = kernel_of(db).strategies
        run = strategy.update

        def update() -> object:
            files.log.append("views")
            return run()

        monkeypatch.setattr(strategy, "update", update)
        insert(db, ("b", 2))
        files.log.clear()
        insert(db, ("c", 4))
        calls = [line.split(" log-")[0] for line in files.log]
        assert calls[:2] == ["write", "begin sync"]
        assert set(calls[2:-2]) == {"views"}  # again, if a domain is too small
        assert calls[-2:] == ["write", "end sync"]
    assert kinds(tmp_path) == [GIVEN, VIEW] * 2


@pytest.mark.parametrize("durability", ["group", "periodic"])
def test_others_write_epochs_as_a_whole(durability: str, tmp_path: Path) -> None:
    with tidelog.Database(PAIRS, path=tmp_path, durability=durability) as db:
        insert(db, ("b", 2))
    assert kinds(tmp_path) == [WHOLE]


def test_a_real_sync(tmp_path: Path) -> None:
    """The helper tells errors as a call would, and serves one sync at a time."""
    files = Files(tmp_path)
    first, second = files.create("one"), files.create("two")
    begun = files.begin_sync(first, "one")
    also = files.begin_sync(second, "two")
    files.end_sync(also, "two")
    files.end_sync(begun, "one")
    files.close(second)
    with pytest.raises(tidelog.StateError, match=r"cannot sync .*two`: Bad file descriptor"):
        files.end_sync(files.begin_sync(second, "two"), "two")
    files.end_sync(files.begin_sync(first, "one"), "one")
    files.close(first)


def test_a_large_view_part_is_synced_by_its_own_commit(tmp_path: Path) -> None:
    files = CountingFiles(tmp_path)
    program = ".decl p(x: number) .decl q(x: number) q(x) :- p(x)."
    with durable(program, files) as db:
        files.log.clear()
        with db.transaction() as tx:
            tx.insert("p", [(x * x,) for x in range(20_000)])
        assert [line.split()[0] for line in files.log] == ["write", "begin", "write", "end", "sync"]
        published = read_published(files, manifests.read(files).identity)
        assert published is not None
        assert published.durable == published.visible


# --- the view part is lost ---


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_lost_view_part_is_computed_again(kept: float, tmp_path: Path) -> None:
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start + int(kept * (last.view.end - last.view.start - 8)))
    # Readers stand before it, and nothing is damaged.
    reader = tidelog.open_reader(left)
    assert reader.epoch == 1
    assert set(reader.view("pair")) == pairs(*ROWS[:2])
    assert info(left).epoch == 1
    for deep in (False, True):
        found = verify(left, deep=deep)
        assert (found.epoch, found.unfinished, found.problems) == (1, 1, ())
    said = CliRunner().invoke(app, ["state", "verify", str(left)]).stdout
    assert "epoch 2 is incomplete; opening the database completes it" in said
    for _ in range(2):
        with tidelog.Database(PAIRS, path=left) as db:
            assert db.epoch == 2
            assert db.opened is not None
            assert (db.opened.epoch, db.opened.replayed_epochs) == (2, 2)
            assert set(db.view("pair")) == pairs(*ROWS)
            ((epoch, change),) = db.changes("pair", since=1)
            assert epoch == 2
            assert set(change.inserted) == pairs(*ROWS) - pairs(*ROWS[:2])
            assert set(db.at(1).view("pair")) == pairs(*ROWS[:2])
            kernel_of(db).check()
    assert kinds(left) == [GIVEN, VIEW] * 2
    assert verify(left, deep=True).unfinished == 0
    reader.refresh()
    assert set(reader.view("pair")) == pairs(*ROWS)
    with tidelog.Database(PAIRS, path=left) as db:
        insert(db, ("d", 5))
        assert set(db.view("pair")) == pairs(*ROWS, ("d", 5))
    assert set(tidelog.open_reader(left).view("pair")) == pairs(*ROWS, ("d", 5))


def test_no_record_claims_a_view_part_that_nobody_has_synced(tmp_path: Path) -> None:
    left = crashed(tmp_path)
    _, found = records(left)
    ends = [record.end for record in found if record.kind == GIVEN]
    assert [record.synced for record in found[2:]] == [ends[0], ends[0]]
    published = read_published(Files(left), manifests.read(Files(left)).identity)
    assert published is not None
    assert (published.durable, published.visible) == (ends[-1], found[-1].end)


def test_sectors_in_any_order(tmp_path: Path) -> None:
    """The view part of epoch 1 is lost, the given part of epoch 2 is there: that is cut off."""
    left = crashed(tmp_path)
    log, (_, view, given, _) = records(left)
    data = bytearray(log.read_bytes())
    data[view.start : view.end] = bytes(view.end - view.start)
    log.write_bytes(bytes(data[: given.end]))
    (left / "COMMITTED").unlink()  # it knows of epoch 2, which had not committed then
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 1
        assert db.opened is not None
        assert db.opened.cut_bytes > 0
        assert set(db.view("pair")) == pairs(*ROWS[:2])
        insert(db, ("d", 5))
    with tidelog.Database(PAIRS, path=left) as db:
        assert set(db.view("pair")) == pairs(*ROWS[:2], ("d", 5))


def test_a_view_part_that_is_missing_elsewhere_is_damage(tmp_path: Path) -> None:
    left = crashed(tmp_path, lambda db: insert(db, ("d", 5)))
    log, found = records(left)
    data = log.read_bytes()
    view = found[1]
    log.write_bytes(data[: view.start] + data[view.end :])
    for remove in (False, True):
        if remove:
            (left / "COMMITTED").unlink()
        with pytest.raises(tidelog.StateError, match=rf"is damaged at byte {view.start}"):
            tidelog.Database(PAIRS, path=left)
    zeros = bytes(view.end - view.start)
    log.write_bytes(data[: view.start] + zeros + data[view.end :])
    with pytest.raises(tidelog.StateError, match=rf"is damaged at byte {view.start}"):
        tidelog.Database(PAIRS, path=left)


def test_numbers_that_evaluation_gave_are_given_again(tmp_path: Path) -> None:
    """The lost part had the symbols; the given part of a later epoch builds on them."""
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start)
    with tidelog.Database(PAIRS, path=left) as db:
        insert(db, ("e", 5), ("ab", 10))
    rows = (*ROWS, ("e", 5), ("ab", 10))
    with tidelog.Database(PAIRS, path=left) as db:
        assert set(db.view("pair")) == pairs(*rows)
    assert set(tidelog.open_reader(left).view("pair")) == pairs(*rows)
    assert verify(left, deep=True).problems == ()


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
def test_an_opening_that_fails_loses_nothing(call: int, tmp_path: Path) -> None:
    """Truncate, sync, the view part, its sync: the given part stays, it may have committed."""
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start)
    files = FailingFiles(left, call + 2, "torn")  # behind the folder and its sync
    with suppress(tidelog.StateError):
        durable(PAIRS, files).close()
    assert files.failed
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 2
        assert set(db.view("pair")) == pairs(*ROWS)


@pytest.mark.parametrize("call", [1, 2])
def test_a_found_epoch_that_cannot_be_finished_stays(call: int, tmp_path: Path) -> None:
    """Its view part, or the sync of a long one, fails; nobody knows whether it has committed."""
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start)
    (left / "COMMITTED").unlink()
    files = FailingFiles(left, 10**9, "EIO")
    manifest = manifests.read(files)
    found = read_log(files, manifest)
    log = Log.resume(files, manifest.identity, manifest.segments[-1], found.last)
    files._fails = files.calls + call
    with pytest.raises(tidelog.StateError):
        log.finish(bytes(1 << 17), 0.0)
    log.close()
    last.keep(last.view.start)
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 2
        assert set(db.view("pair")) == pairs(*ROWS)


def test_tools_and_a_lost_view_part(tmp_path: Path) -> None:
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start)
    assert copy_state(left, tmp_path / "copy") == 2
    with tidelog.Database(PAIRS, path=tmp_path / "copy") as db:
        assert set(db.view("pair")) == pairs(*ROWS)
    assert export_state(left, tmp_path / "export") == 2
    import_state(tmp_path / "export", tmp_path / "import")
    assert set(tidelog.open_reader(tmp_path / "import").view("p")) == set(ROWS)
    shutil.copytree(left, tmp_path / "compact")
    compact(tmp_path / "compact")
    assert set(tidelog.open_reader(tmp_path / "compact").view("pair")) == pairs(*ROWS)
    for known in (True, False):
        if not known:
            (left / "COMMITTED").unlink()
        rebuilt = tmp_path / f"rebuilt-{known}"
        shutil.copytree(left, rebuilt)
        other = ".decl p(x: symbol, n: number) .decl q(n: number) q(n) :- p(_, n)."
        with tidelog.Database(other, path=rebuilt, on_program_change="rebuild") as db:
            assert db.epoch == 2
            assert set(db.view("q")) == {(1,), (2,), (4,)}


# --- the epoch fails when its given part is written ---


def test_an_epoch_that_fails_is_taken_back(tmp_path: Path) -> None:
    def change(db: tidelog.Database) -> None:
        for number in range(3):
            with pytest.raises(tidelog.EvaluationError):
                insert(db, (f"new{number}", 5), ("zero", 0))
            insert(db, (f"d{number}", 5))

    left = crashed(tmp_path, change)
    rows = (*ROWS, *((f"d{number}", 5) for number in range(3)))
    assert kinds(left) == [GIVEN, VIEW] * 5
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 5
        assert set(db.view("pair")) == pairs(*rows)
    assert set(tidelog.open_reader(tmp_path / "live").view("pair")) == pairs(*rows)


def found_with(folder: Path, *rows: tuple[str, int]) -> Path:
    """Return a state whose last epoch has only its given part: the machine stopped then."""
    left = folder / "stopped"
    db = tidelog.Database(PAIRS, path=folder / "live", facts={"p": [("a", 1)]})
    insert(db, ("b", 2))
    journal = kernel_of(db).observer
    begin = journal.given

    def then_copy() -> None:
        begin()
        shutil.copytree(folder / "live", left)

    journal.given = then_copy  # type: ignore[method-assign]
    with suppress(tidelog.EvaluationError):
        insert(db, *rows)
    db.close()
    return left


def test_a_stop_between_the_parts(tmp_path: Path) -> None:
    left = found_with(tmp_path, ("c", 4))
    assert kinds(left) == [GIVEN, VIEW, GIVEN]
    assert tidelog.open_reader(left).epoch == 1
    assert verify(left).unfinished == 0  # nobody knows that it has committed
    assert copy_state(left, tmp_path / "copy") == 1
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 2
        assert set(db.view("pair")) == pairs(*ROWS)
        insert(db, ("d", 5))
    assert kinds(left) == [GIVEN, VIEW] * 3
    with tidelog.Database(PAIRS, path=left) as db:
        assert set(db.view("pair")) == pairs(*ROWS, ("d", 5))


def test_a_stop_before_a_failed_epoch_was_taken_back(tmp_path: Path) -> None:
    left = found_with(tmp_path, ("new", 5), ("zero", 0))
    assert kinds(left) == [GIVEN, VIEW, GIVEN]
    with tidelog.Database(PAIRS, path=left) as db:
        assert db.epoch == 1
        assert db.opened is not None
        assert db.opened.cut_bytes > 0
        assert db.opened.replayed_epochs == 1
        assert set(db.view("pair")) == pairs(*ROWS[:2])
        assert kinds(left) == [GIVEN, VIEW]
        insert(db, ("newer", 5))  # a number that the dictionary had for `new`
    rows = (*ROWS[:2], ("newer", 5))
    for _ in range(2):
        with tidelog.Database(PAIRS, path=left) as db:
            assert set(db.view("pair")) == pairs(*rows)
    assert set(tidelog.open_reader(left).view("pair")) == pairs(*rows)


def test_an_epoch_that_committed_is_never_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be computed, as it was before; if it cannot be, something else is wrong."""
    left = crashed(tmp_path)
    last = last_epoch(left)
    last.keep(last.view.start)
    replays = []
    run = KernelEngine.replay

    def replay(engine: KernelEngine, encoded: Any, *more: Any) -> None:
        replays.append(encoded)
        if len(replays) == 2:
            raise tidelog.DataError("not now")
        run(engine, encoded, *more)

    with monkeypatch.context() as patched:
        patched.setattr(KernelEngine, "replay", replay)
        with pytest.raises(tidelog.DataError, match="not now"):
            tidelog.Database(PAIRS, path=left)
    with tidelog.Database(PAIRS, path=left) as db:
        assert set(db.view("pair")) == pairs(*ROWS)


def test_a_domain_that_is_too_small_writes_the_given_part_once(tmp_path: Path) -> None:
    program = ".decl p(x: number) .decl q(x: number) q(x * x) :- p(x)."
    files = CountingFiles(tmp_path)
    with durable(program, files, facts={"p": [(1,)]}) as db:
        files.log.clear()
        with db.transaction() as tx:
            tx.insert("p", [(3_000_000,)])
        assert sum(line.startswith("write log") for line in files.log) == 2
        assert list(db.view("q")) == [(1,), (9 * 10**12,)]
    assert kinds(tmp_path) == [GIVEN, VIEW]
    with tidelog.Database(program, path=tmp_path) as db:
        assert list(db.view("q")) == [(1,), (9 * 10**12,)]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError, tidelog.LimitError])
def test_whatever_ends_an_epoch(
    raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(engine: KernelEngine, *, first: bool = False) -> None:
        raise raised("enough")

    with tidelog.Database(PAIRS, path=tmp_path, facts={"p": [("a", 1)]}) as db:
        insert(db, ("b", 2))
        size = len(records(tmp_path)[1])
        with monkeypatch.context() as patched:
            patched.setattr(KernelEngine, "_run_layers", fail)
            with pytest.raises(raised):
                insert(db, ("new", 5))
        assert len(records(tmp_path)[1]) == size
        assert db.epoch == 1
        insert(db, ("c", 4))
        assert set(db.view("pair")) == pairs(*ROWS)
    with tidelog.Database(PAIRS, path=tmp_path) as db:
        assert db.epoch == 2
        assert set(db.view("pair")) == pairs(*ROWS)


@pytest.mark.parametrize("call", [1, 2])
def test_a_failed_epoch_that_cannot_be_taken_back(call: int, tmp_path: Path) -> None:
    """Truncate, or the sync behind it: the log takes no more, and is right when it is opened."""
    files = FailingFiles(tmp_path, 10**9, "EIO")
    db = durable(PAIRS, files, facts={"p": [("a", 1)]})
    insert(db, ("b", 2))
    files._fails = files.calls + 3 + (1 if call == 1 else 3)  # write, begin, end; truncate, write
    with pytest.raises(tidelog.EvaluationError):
        insert(db, ("zero", 0))
    assert files.failed.split()[0] == ("truncate" if call == 1 else "sync")
    with pytest.raises(tidelog.StateError, match="accepts no more writes"):
        insert(db, ("c", 4))
    db.close()
    with tidelog.Database(PAIRS, path=tmp_path) as again:
        assert again.epoch == 1
        assert set(again.view("pair")) == pairs(*ROWS[:2])


def test_a_sync_that_fails_takes_no_view_part_with_it(tmp_path: Path) -> None:
    """It was to bring that of the epoch before to the disk as well: it is written again."""
    files = FailingFiles(tmp_path, 10**9, "EIO")
    with durable(PAIRS, files, facts={"p": [("a", 1)]}) as db:
        insert(db, ("b", 2))
        before = last_epoch(tmp_path)
        files.log.clear()
        files._fails = files.calls + 4  # write, begin, the view part, end
        with pytest.raises(tidelog.StateError, match="cannot sync"):
            insert(db, ("c", 4))
        assert [line.split(" log-")[0] for line in files.log] == [
            "write", "begin sync", "write", "end sync", "truncate", "write", "sync",
        ]  # fmt: skip
        assert last_epoch(tmp_path) == before
        insert(db, ("c", 4))
        assert last_epoch(tmp_path).given.synced == before.view.end
        assert set(db.view("pair")) == pairs(*ROWS)
    with tidelog.Database(PAIRS, path=tmp_path) as db:
        assert set(db.view("pair")) == pairs(*ROWS)


# --- states of format 1 ---


def test_a_state_of_format_1(tmp_path: Path) -> None:
    facts = {"p": [ROWS[0]]}
    with tidelog.Database(PAIRS, path=tmp_path, durability="group", facts=facts) as db:
        insert(db, ROWS[1])
    manifest = tmp_path / "MANIFEST"
    current = f"state {manifests.FORMAT}".encode()
    manifest.write_bytes(manifest.read_bytes().replace(current, b"state 1", 1))
    log, identity = records(tmp_path)[0], manifests.read(Files(tmp_path)).identity
    log.write_bytes(header(1, identity, 1) + log.read_bytes()[HEADER:])
    assert (tmp_path / "MANIFEST").read_bytes().startswith(b"tidelog state 1 ")
    assert records(tmp_path)[0].read_bytes()[8:12] == b"\1\0\0\0"
    reader = tidelog.open_reader(tmp_path)
    assert set(reader.view("pair")) == pairs(*ROWS[:2])
    assert info(tmp_path).manifest.format == 1
    with tidelog.Database(PAIRS, path=tmp_path) as db:
        assert (tmp_path / "MANIFEST").read_bytes().startswith(b"tidelog " + current)
        insert(db, ROWS[2])
    assert kinds(tmp_path) == [WHOLE, GIVEN, VIEW]
    assert reader.refresh() == 2
    with tidelog.Database(PAIRS, path=tmp_path) as db:
        assert set(db.view("pair")) == pairs(*ROWS)
