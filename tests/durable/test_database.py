"""Durable databases: opening, refusing, looking back, and what is kept when."""

from __future__ import annotations

import errno
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tests.databases import durable
from tests.faults.faulty import CountingFiles, FailingFiles
from tidelog.database.database import kernel_of
from tidelog.store.relation import StoredRelation

REACH = """
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


def insert(db: tidelog.Database, *rows: tuple[object, ...], into: str = "edge") -> None:
    with db.transaction() as tx:
        tx.insert(into, rows)


def delete(db: tidelog.Database, *rows: tuple[object, ...], of: str = "edge") -> None:
    with db.transaction() as tx:
        tx.delete(of, rows)


def durable_epoch(db: tidelog.Database) -> int:
    assert db.state is not None
    return db.state.durable_epoch


# --- opening ---


def test_a_new_one_and_again(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, facts={"edge": [("a", "b")]}) as db:
        assert db.epoch == 0
        insert(db, ("b", "c"))
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.epoch == 1
        assert list(db.view("reach")) == [("a", "b"), ("a", "c"), ("b", "c")]
        opened = db.opened
        assert opened is not None
        assert (opened.epoch, opened.snapshot_epoch, opened.replayed_epochs) == (1, 0, 1)
        assert opened.mapped_bytes > 0
        assert opened.rebuilt == ""
        assert db.last_epoch.epoch == 1
        db.snapshot()
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.opened is not None
        assert (db.opened.snapshot_epoch, db.opened.replayed_epochs) == (1, 0)


def test_one_writer(tmp_path: Path) -> None:
    db = tidelog.Database(REACH, path=tmp_path)
    with pytest.raises(
        tidelog.StateError, match=r"is open for writing, by process \d+ on .* since"
    ):
        tidelog.Database(REACH, path=tmp_path)
    db.close()
    tidelog.Database(REACH, path=tmp_path).close()


def test_a_writer_that_is_forgotten_has_no_lock(tmp_path: Path) -> None:
    import gc

    db = tidelog.Database(REACH, path=tmp_path)
    insert(db, ("a", "b"))
    del db
    gc.collect()
    tidelog.Database(REACH, path=tmp_path).close()


def test_facts_are_for_a_new_one(tmp_path: Path) -> None:
    tidelog.Database(REACH, path=tmp_path).close()
    with pytest.raises(tidelog.UsageError, match="`facts` are for a new one"):
        tidelog.Database(REACH, path=tmp_path, facts={"edge": [("a", "b")]})


def test_a_closed_one_can_be_read_only(tmp_path: Path) -> None:
    db = tidelog.Database(REACH, path=tmp_path)
    insert(db, ("a", "b"))
    db.close()
    db.close()
    with pytest.raises(tidelog.UsageError, match="the database is closed"):
        insert(db, ("b", "c"))
    assert list(db.view("reach")) == [("a", "b")]


def test_an_epoch_that_fails_is_in_no_log(tmp_path: Path) -> None:
    program = ".decl p(x: number) .decl q(x: number) q(10 / x) :- p(x)."
    with tidelog.Database(program, path=tmp_path) as db:
        insert(db, (5,), into="p")
        with pytest.raises(tidelog.EvaluationError):
            insert(db, (0,), into="p")
        insert(db, (2,), into="p")
    with tidelog.Database(program, path=tmp_path) as db:
        assert db.epoch == 2
        assert list(db.view("q")) == [(2,), (5,)]


def test_replaying_may_number_what_the_log_does_not_know(tmp_path: Path) -> None:
    """Two epochs as one: the join meets a new x with an old y, "cb", which no epoch had."""
    program = ".decl p(x: symbol, y: symbol) .decl q(t: symbol) q(cat(x, y)) :- p(x, _), p(_, y)."
    with tidelog.Database(program, path=tmp_path, facts={"p": [("a", "b")]}) as db:
        delete(db, ("a", "b"), of="p")
        insert(db, ("c", "d"), into="p")
    with tidelog.Database(program, path=tmp_path) as db:
        symbols = kernel_of(db).catalog.codec.symbols
        assert symbols.find("cb") is not None
        insert(db, ("e", "f"), into="p")
    expected = [("cd",), ("cf",), ("ed",), ("ef",)]
    for _ in range(2):
        with tidelog.Database(program, path=tmp_path) as db:
            assert list(db.view("q")) == expected
    assert list(tidelog.open_reader(tmp_path).view("q")) == expected


def test_rows_that_the_program_states(tmp_path: Path) -> None:
    program = ".decl p(x: number) p(1). .decl ok() ok() :- p(2)."
    with tidelog.Database(program, path=tmp_path) as db:
        insert(db, (1,), (2,), into="p")
        db.snapshot()
        delete(db, (1,), of="p")
        insert(db, (1,), into="p")
        insert(db, (), into="ok")
    with tidelog.Database(program, path=tmp_path) as db:
        assert db.given_count("p") == 2
        assert db.given_count("ok") == 1
        delete(db, (1,), (2,), of="p")
    with tidelog.Database(program, path=tmp_path) as db:
        assert db.given_count("p") == 0
        assert list(db.view("p")) == [(1,)]
        assert list(db.view("ok")) == [()]


# --- other programs, other formats ---

LONGER = REACH + '.decl towns(n: number) towns(count : { edge(_, _) }).\nedge("x", "y").\n'


def test_another_program(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, facts={"edge": [("a", "b")]}) as db:
        insert(db, ("b", "c"))
        db.snapshot()
        delete(db, ("a", "b"))
        insert(db, ("c", "d"))
    with pytest.raises(tidelog.UsageError, match="is of another program"):
        tidelog.Database(LONGER, path=tmp_path)
    with tidelog.Database(LONGER, path=tmp_path, on_program_change="rebuild") as db:
        assert db.opened is not None
        assert db.opened.rebuilt == "the program has changed"
        assert db.epoch == 3
        assert list(db.view("reach")) == [("b", "c"), ("b", "d"), ("c", "d"), ("x", "y")]
        assert list(db.view("towns")) == [(3,)]
        assert db.given_count("edge") == 2
        insert(db, ("d", "e"))
    with tidelog.Database(LONGER, path=tmp_path) as db:
        assert db.epoch == 4
        assert list(db.view("towns")) == [(4,)]
    with tidelog.Database(REACH, path=tmp_path, on_program_change="rebuild") as db:
        assert db.given_count("edge") == 3
        assert ("x", "y") not in db.view("edge")


def test_another_program_that_lacks_a_relation(tmp_path: Path) -> None:
    tidelog.Database(REACH, path=tmp_path, facts={"edge": [("a", "b")]}).close()
    with pytest.raises(tidelog.UsageError, match="does not declare `edge`, which has 1 given rows"):
        tidelog.Database(".decl p()", path=tmp_path, on_program_change="rebuild")
    tidelog.Database(REACH, path=tmp_path).close()


def test_a_state_that_is_stored_in_another_way_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.Database(REACH, path=tmp_path) as db:
        insert(db, ("a", "b"), ("b", "c"))
    monkeypatch.setattr("tidelog.maintain.elastic.Elastic.name", "elastic 2")
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.opened is not None
        assert "another way" in db.opened.rebuilt
        assert len(db.view("reach")) == 3


def test_an_unknown_format(tmp_path: Path) -> None:
    tidelog.Database(REACH, path=tmp_path).close()
    manifest = tmp_path / "MANIFEST"
    text = manifest.read_text()
    manifest.write_text(text.replace("tidelog state 4 ", "tidelog state 27 ", 1))
    with pytest.raises(
        tidelog.StateError, match="has format 27; this version of Tidelog reads formats 1 to 4"
    ):
        tidelog.Database(REACH, path=tmp_path)


def test_a_manifest_that_is_gone(tmp_path: Path) -> None:
    tidelog.Database(REACH, path=tmp_path).close()
    (tmp_path / "MANIFEST").unlink()
    with pytest.raises(tidelog.StateError, match="has lost its MANIFEST"):
        tidelog.Database(REACH, path=tmp_path)


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path) as db:
        for number in range(5):
            insert(db, ("a", f"b{number}"))
    (log,) = tmp_path.glob("log-*")
    data = bytearray(log.read_bytes())
    data[300] ^= 4
    log.write_bytes(data)
    with pytest.raises(tidelog.StateError, match=r"log-\d+.tide` is damaged at byte \d+"):
        tidelog.Database(REACH, path=tmp_path)


def test_a_log_that_was_cut_short(tmp_path: Path) -> None:
    """What was committed and is gone is damage, not a torn record."""
    with tidelog.Database(REACH, path=tmp_path) as db:
        insert(db, ("a", "b"))
    (log,) = tmp_path.glob("log-*")
    whole = log.read_bytes()
    log.write_bytes(whole[:-8])
    with pytest.raises(tidelog.StateError, match="is damaged"):
        tidelog.Database(REACH, path=tmp_path)
    # Where nobody knows that it was on the disk, it was torn: the views, or all of it.
    (tmp_path / "COMMITTED").unlink()
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.epoch == 1
        assert db.opened is not None
        assert db.opened.cut_bytes > 0
        assert list(db.view("reach")) == [("a", "b")]
    (tmp_path / "COMMITTED").unlink()
    log.write_bytes(whole[: whole.rindex(b"TIDE") - 8])
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.epoch == 0
        assert db.opened is not None
        assert db.opened.cut_bytes > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"durability": "never"}, '`durability` is one of "commit", "group", "periodic"'),
        ({"on_program_change": "x"}, '`on_program_change` is one of "refuse", "rebuild"'),
        ({"retain_epochs": -1}, "`retain_epochs` cannot be -1"),
        ({"engine": "reference"}, "a durable database needs the kernel"),
        ({"path": "s3://bucket/state"}, "must be on a local disk"),
        ({"memory_limit": "much"}, "`memory_limit` is a size such as '2GB', not 'much'"),
    ],
)
def test_wrong_usage(more: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(tidelog.UsageError, match=said):
        tidelog.Database(REACH, **{"path": tmp_path / "new", **more})  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


# --- the past ---


def test_at_and_changes(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, retain_epochs=0) as db:
        insert(db, ("a", "b"))
        insert(db, ("b", "c"))
        with db.transaction():
            pass
        delete(db, ("a", "b"))
        assert repr(db.at(2)) == "<<program> at epoch 2>"
        assert list(db.at(1).view("reach")) == [("a", "b")]
        assert db.at(2).view("reach").where(y="c") == [("a", "c"), ("b", "c")]
        changes = list(db.changes("reach", since=1))
        assert [epoch for epoch, _ in changes] == [2, 4]
        assert list(changes[0][1].inserted) == [("a", "c"), ("b", "c")]
        assert list(changes[1][1].deleted) == [("a", "b"), ("a", "c")]
        assert list(db.changes("reach", since=4)) == []
        held = db.at(1)
        insert(db, ("c", "d"))
        assert list(held.view("reach")) == [("a", "b")]
        with pytest.raises(tidelog.UsageError, match="there is no epoch 6 yet: the last one is 5"):
            db.at(6)
        with pytest.raises(tidelog.UsageError, match="relation `reech` is not declared"):
            db.at(1).view("reech")
        db.snapshot()
        with pytest.raises(tidelog.UsageError, match="epoch 4 is not retained any more"):
            db.changes("reach", since=4)
        with pytest.raises(tidelog.UsageError, match="the first one is 5"):
            db.at(4)
        assert list(db.at(5).view("reach")) == list(db.view("reach"))


def test_retained_seconds(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, retain_epochs=0, retain_seconds=3600) as db:
        insert(db, ("a", "b"))
        db.snapshot()
        insert(db, ("b", "c"))
        db.snapshot()
        assert list(db.at(0).view("edge")) == []
        assert db.state is not None
        assert db.state.oldest_epoch == 0


def test_a_database_in_memory_has_no_past() -> None:
    db = tidelog.Database(REACH)
    assert db.opened is None
    assert db.state is None
    for ask in (lambda: db.at(0), lambda: db.changes("reach", 0), db.snapshot):
        with pytest.raises(tidelog.UsageError, match="in memory only"):
            ask()
    db.close()


# --- when a commit returns ---


class SlowFiles(CountingFiles):
    """Syncs take a while, in which others can come."""

    def sync(self, file: int, name: str) -> None:
        super().sync(file, name)
        threading.Event().wait(0.02)


def test_threads_share_a_sync(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path)
    db = durable(REACH, files, durability="group")
    files.log.clear()

    def work(number: int) -> None:
        for i in range(5):
            insert(db, (f"t{number}", f"{i}"))
            assert durable_epoch(db) >= i + 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncs = sum(line.startswith("sync log") for line in files.log)
    assert db.epoch == 40
    assert syncs < 40, "each epoch had a sync of its own"
    db.close()
    with tidelog.Database(REACH, path=tmp_path) as again:
        assert len(again.view("edge")) == 40


def test_group_commit_refuses_one_transaction_within_another(tmp_path: Path) -> None:
    db = tidelog.Database(REACH, path=tmp_path, durability="group")
    refused = pytest.raises(tidelog.UsageError, match="another transaction is open")
    with db.transaction(), refused:
        db.transaction().__enter__()
    db.close()


def test_a_periodic_one_is_on_the_disk_before_long(tmp_path: Path) -> None:
    files = CountingFiles(tmp_path)
    db = durable(REACH, files, durability="periodic", sync_seconds=0.01)
    files.log.clear()
    insert(db, ("a", "b"))
    for _ in range(500):
        if durable_epoch(db) == 1:
            break
        threading.Event().wait(0.02)
    assert durable_epoch(db) == 1
    assert tidelog.open_reader(tmp_path).epoch == 1
    db.close()


def test_a_periodic_one_is_on_the_disk_when_it_is_closed(tmp_path: Path) -> None:
    files = CountingFiles(tmp_path)
    db = durable(REACH, files, durability="periodic", sync_seconds=3600)
    files.log.clear()
    insert(db, ("a", "b"))
    assert not any(line.startswith("sync") for line in files.log)
    db.close()
    assert any(line.startswith("sync log") for line in files.log)


def test_a_group_that_cannot_be_synced_takes_no_more(tmp_path: Path) -> None:
    files = FailingFiles(tmp_path, 10**9, "EIO")
    db = durable(REACH, files, durability="group")
    insert(db, ("a", "b"))
    files._fails = files.calls + 2  # write, sync
    with pytest.raises(tidelog.StateError, match="cannot sync"):
        insert(db, ("b", "c"))
    with pytest.raises(tidelog.StateError, match="accepts no more writes"):
        insert(db, ("c", "d"))
    db.close()


def test_an_epoch_that_memory_could_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tidelog.Database(REACH, path=tmp_path)
    with monkeypatch.context() as patched:

        def fail(relation: StoredRelation) -> None:
            raise MemoryError

        patched.setattr(StoredRelation, "commit", fail)
        with pytest.raises(MemoryError):
            insert(db, ("a", "b"))
    with pytest.raises(tidelog.StateError, match="is on the disk, but not in memory"):
        insert(db, ("b", "c"))
    db.close()
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert db.epoch == 1
        assert list(db.view("reach")) == [("a", "b")]


def test_limits_do_not_stand_in_the_way_of_opening(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path) as db:
        insert(db, *[(f"{i}", f"{i + 1}") for i in range(20)])
    with tidelog.Database(REACH, path=tmp_path, level_limit=5, time_limit=1e-9) as db:
        assert len(db.view("reach")) == 210
        with pytest.raises(tidelog.LimitError):
            insert(db, ("20", "21"))


def test_snapshots_of_another_thread(tmp_path: Path) -> None:
    settings = {"snapshot_bytes": 200, "step_bytes": 100}
    with durable(REACH, tmp_path, **settings) as db:
        done = threading.Event()
        problems = []

        def write_snapshots() -> None:
            try:
                while not done.is_set():
                    db.snapshot()
            except Exception as error:
                problems.append(error)

        thread = threading.Thread(target=write_snapshots)
        thread.start()
        for number in range(40):
            insert(db, ("a", f"b{number}"))
        done.set()
        thread.join()
        assert not problems
    with tidelog.Database(REACH, path=tmp_path) as db:
        assert len(db.view("reach")) == 40


# --- snapshots ---


class FullDisk(CountingFiles):
    """Has no room for the data of a snapshot, when it is full."""

    full = False

    def before(self, call: str, name: str, undone: Callable[[], object] | None = None) -> None:
        super().before(call, name, undone)
        if self.full and name.startswith("data-") and call == "write":
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_snapshot_that_fails_loses_nothing(tmp_path: Path) -> None:
    files = FullDisk(tmp_path)
    db = durable(REACH, files, snapshot_bytes=1)
    files.full = True
    for number in range(3):
        insert(db, ("a", f"b{number}"))
    assert db.state is not None
    assert "No space left on device" in db.state.problem
    with pytest.raises(tidelog.StateError, match=r"cannot write .*: No space left"):
        db.snapshot()
    files.full = False
    assert db.state.snapshot_epoch == 0
    db.snapshot()
    assert db.state.problem == ""
    assert db.state.snapshot_epoch == 3
    db.close()
    with tidelog.Database(REACH, path=tmp_path) as again:
        assert len(again.view("edge")) == 3
        assert again.state is not None
        assert again.state.files == len(list(tmp_path.iterdir())) - 1  # LOCK


def test_large_runs_are_written_once(tmp_path: Path) -> None:
    program = ".decl p(x: number, y: number)"
    rows = [(i * 7919 % 200_003, i) for i in range(200_000)]
    with tidelog.Database(program, path=tmp_path, facts={"p": rows}) as db:
        (first,) = tmp_path.glob("words-*")
        insert(db, (1, 1), into="p")
        delete(db, rows[5], of="p")
        db.snapshot()
        assert list(tmp_path.glob("words-*")) == [first]
    with tidelog.Database(program, path=tmp_path) as db:
        assert len(db.view("p")) == 200_000
        db.snapshot()
        assert list(tmp_path.glob("words-*")) == [first]
        assert zlib.crc32(first.read_bytes())


def test_a_small_commit_writes_a_bounded_part(tmp_path: Path) -> None:
    program = ".decl p(x: number, y: number)"
    rows = [(i, i) for i in range(300_000)]
    settings = {"snapshot_bytes": 1, "step_bytes": 1 << 20}
    with durable(program, tmp_path, {"p": rows}, **settings) as db:
        assert db.state is not None
        before = db.state.snapshot_bytes
        assert before > 2_000_000
        with db.transaction() as tx:  # a log that is long enough for a snapshot
            tx.insert("p", [(-i, 1) for i in range(50_000)])
        commits = 0
        while db.state.snapshot_epoch == 0:
            insert(db, (-commits, 2), into="p")
            commits += 1
        assert commits >= 2
        assert db.state.snapshot_epoch == 1
        assert len(db.view("p")) == 350_000 + commits
    with tidelog.Database(program, path=tmp_path) as db:
        assert db.opened is not None
        assert db.opened.snapshot_epoch == 1
        assert len(db.view("p")) == 350_000 + commits
