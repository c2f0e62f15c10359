"""Named triggers of durable databases: what was delivered is remembered."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.database.receiving import HANG, receiver, wait_until
from tests.databases import durable
from tidelog import Database, Event, JsonLines, StateError, TriggerFailure, UsageError, Webhook
from tidelog.durable.deliveries import DeadLetter, DeliveryFile, DeliveryRecord
from tidelog.durable.files import Files
from tidelog.persist.state_tools import verify

PROGRAM = """
.decl pay(who: symbol, amount: number)
.decl big(who: symbol, amount: number)
big(w, a) :- pay(w, a), a > 10.
"""


def pay(db: Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.insert("pay", rows)


def test_the_next_process_continues(tmp_path: Path) -> None:
    seen: list[Any] = []

    def note(event: Event) -> None:
        seen.append((event.id, event.epoch, list(event.rows)))

    with Database(PROGRAM, path=tmp_path) as db:
        db.on("+big", note, name="alerts")
        pay(db, ("a", 50))
    with Database(PROGRAM, path=tmp_path) as db:  # the trigger is not registered
        pay(db, ("b", 50))
        pay(db, ("x", 1))
        with db.transaction() as tx:
            tx.delete("pay", [("b", 50)])
        pay(db, ("c", 50))
    with Database(PROGRAM, path=tmp_path) as db:
        handle = db.on("+big", note, name="alerts")
        assert [epoch for _, epoch, _ in seen] == [1, 2, 5]
        pay(db, ("d", 50))
        assert handle.status.delivered == 4
    assert [rows for _, _, rows in seen] == [[(who, 50)] for who in "abcd"]
    assert len({id_.rpartition("-")[0] for id_, _, _ in seen}) == 1


def test_a_new_name_begins_at_the_current_epoch(tmp_path: Path) -> None:
    seen: list[int] = []
    with Database(PROGRAM, path=tmp_path) as db:
        pay(db, ("a", 50))
        db.on("+big", lambda e: seen.append(e.epoch), name="alerts")
        db.on("+big", lambda e: seen.append(-e.epoch))  # without a name
        pay(db, ("b", 50))
    with Database(PROGRAM, path=tmp_path) as db:
        pay(db, ("c", 50))
    with Database(PROGRAM, path=tmp_path) as db:
        db.on("+big", lambda e: seen.append(-e.epoch))
        db.on("+big", lambda e: seen.append(e.epoch), name="alerts", where="amount > 10")
    assert seen == [2, -2, 3]


def test_a_trigger_is_on_the_same_event_as_before(tmp_path: Path) -> None:
    with Database(PROGRAM, path=tmp_path) as db:
        handle = db.on("+big", print, name="alerts")
        other = db.on("-big", print, name="other")
        other.remove()
        db.on("+pay", print, name="other").remove()
        with pytest.raises(UsageError, match="is not a name for a trigger"):
            db.on("+big", print, name="a/b")
        assert handle.name == "alerts"
    with Database(PROGRAM, path=tmp_path) as db:
        with pytest.raises(UsageError, match=r"trigger `alerts` was on `\+big` before"):
            db.on("-big", print, name="alerts")
        db.on("+big", print, name="alerts")


def test_epochs_that_are_no_longer_retained_are_reported(tmp_path: Path) -> None:
    seen: list[int] = []
    failures: list[TriggerFailure] = []
    settings = {"retain_epochs": 2, "snapshot_bytes": 1, "segment_bytes": 1, "step_bytes": 1 << 20}
    with durable(PROGRAM, tmp_path, **settings) as db:
        db.on("+big", lambda e: seen.append(e.epoch), name="alerts")
        pay(db, ("a", 50))
    with durable(PROGRAM, tmp_path, **settings) as db:
        for n in range(30):
            pay(db, ("b", 50 + n))
        db.snapshot()
        assert db.state is not None
        oldest = db.state.oldest_epoch
        assert 2 < oldest < 31
        handle = db.on(
            "+big", lambda e: seen.append(e.epoch), name="alerts", on_error=failures.append
        )
        (failure,) = failures
        assert failure.is_final
        assert "epoch 1 is not retained any more" in str(failure.error)
        assert failure.epoch == oldest
        assert seen == [1, *range(oldest + 1, 32)]
        assert handle.status.failed == 1
        assert handle.status.dead_letters[0].id == ""


def test_a_trigger_with_nothing_to_do_does_not_fall_behind(tmp_path: Path) -> None:
    failures: list[TriggerFailure] = []
    settings = {"retain_epochs": 4, "snapshot_bytes": 1, "segment_bytes": 1, "step_bytes": 1 << 20}
    path = tmp_path / "state"
    script = (
        "import os, signal, sys; from tests.database.test_named_triggers import *;"
        f"db = durable(PROGRAM, Path(sys.argv[1]), **{settings});"
        "db.on('-big', print, name='alerts');"
        "[pay(db, ('b', 50 + n)) for n in range(60)]; db.snapshot();"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run(script, path) == -signal.SIGKILL
    with durable(PROGRAM, path, **settings) as db:
        assert db.state is not None
        assert db.state.oldest_epoch > 10
        handle = db.on("-big", print, name="alerts", on_error=failures.append)
        assert failures == []
        assert handle.status.epoch == db.epoch == 60


def test_an_older_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    failures: list[TriggerFailure] = []
    file = DeliveryFile(Files(tmp_path), "alerts")
    with Database(PROGRAM, path=tmp_path) as db:
        pay(db, ("a", 50))
        file.create(DeliveryRecord("big", "+", "token", 7))
        file.close()
        seen: list[Event] = []
        handle = db.on("+big", seen.append, name="alerts", on_error=failures.append)
        assert "has delivered epoch 7, but the database is at epoch 1" in str(failures[0].error)
        pay(db, ("b", 50))
        assert [event.epoch for event in seen] == [2]
        assert not seen[0].id.startswith("token")
        assert handle.status.epoch == 2


# --- kills ----------------------------------------------------------------------------------------

KILLED = """
import json, os, signal, sys
from pathlib import Path
from tests.database.test_named_triggers import PROGRAM, pay
from tidelog import Database

folder, moment = Path(sys.argv[1]), sys.argv[2]
db = Database(PROGRAM, path=folder)

def note(event):
    if event.epoch == 3 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(folder / "seen", "a") as file:
        file.write(json.dumps([event.epoch, event.id, list(event.rows)]) + "\\n")
    if event.epoch == 3:
        os.kill(os.getpid(), signal.SIGKILL)

db.on("+big", note, name="alerts")
for n in range(1, 10):
    pay(db, ("a", 10 + n))
"""


def run(script: str, *args: object) -> int:
    """Run a script in another process; return its exit code."""
    words = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(words, cwd=Path(__file__).parents[2], check=False).returncode


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_between_commit_and_delivery(tmp_path: Path, moment: str) -> None:
    assert run(KILLED, tmp_path, moment) == -signal.SIGKILL
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [epoch for epoch, _, _ in seen] == ([1, 2] if moment == "before" else [1, 2, 3])
    with Database(PROGRAM, path=tmp_path) as db:
        assert db.epoch == 3
        later: list[Event] = []
        db.on("+big", later.append, name="alerts")
        assert [(event.epoch, list(event.rows)) for event in later] == [(3, [("a", 13)])]
        if moment == "after":  # it was delivered twice, with the same id
            assert later[0].id == seen[-1][1]
        pay(db, ("a", 14))
        assert [event.epoch for event in later] == [3, 4]


WATCHER = """
import os, signal, sys
from tests.database.test_named_triggers import WATCHED
from tidelog import Database

db = Database(WATCHED, path=sys.argv[1])
db.on("-reach", lambda event: os.kill(os.getpid(), signal.SIGKILL), name="watch")
with db.transaction() as tx:
    tx.insert("edge", [(1, 2), (2, 3)])
with db.transaction() as tx:
    tx.delete("edge", [(2, 3)])
"""
WATCHED = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
.view reach(virtual=true)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


def test_a_kill_before_the_changes_of_a_view_that_is_not_stored_are_delivered(
    tmp_path: Path,
) -> None:
    assert run(WATCHER, tmp_path) == -signal.SIGKILL
    with Database(WATCHED, path=tmp_path) as db:
        assert db.epoch == 2
        later: list[Event] = []
        db.on("-reach", later.append, name="watch")
        assert [(event.epoch, list(event.rows)) for event in later] == [(2, [(1, 3), (2, 3)])]


SENDER = """
import sys
from pathlib import Path
from tests.database.test_named_triggers import PROGRAM, pay
from tidelog import Database, Webhook

db = Database(PROGRAM, path=Path(sys.argv[1]))
db.on("+big", Webhook(sys.argv[2], retry=1000, retry_seconds=0.01), name="hook")
for n in range(1, 6):
    pay(db, ("a", 10 + n))
print("committed", flush=True)
sys.stdin.read()
"""


def test_messages_that_were_not_sent_when_a_process_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with receiver(200, 200, HANG) as received:
        words = [sys.executable, "-c", SENDER, str(state), received.url]
        with subprocess.Popen(
            words, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as sender:
            assert sender.stdout is not None
            assert sender.stdout.readline() == b"committed\n"
            wait_until(lambda: len(received.requests) >= 3)
            os.kill(sender.pid, signal.SIGKILL)
        first = received.ids
    for name in os.listdir(state):
        assert b"sesame" not in (state / name).read_bytes()
    with receiver() as received, Database(PROGRAM, path=state) as db:
        handle = db.on("+big", Webhook(received.url), name="hook")
        assert handle.wait(20)
        assert [message["epoch"] for message in received.messages] == [3, 4, 5]
        assert received.ids[0] == first[2]
        assert handle.status.delivered == 5


def test_what_does_not_fit_the_queue_waits_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    with receiver(HANG, 200) as received, Database(PROGRAM, path=tmp_path / "state") as db:
        webhook = Webhook(received.url, timeout=0.3, retry_seconds=0.01)
        handle = db.on("+big", webhook, name="hook", queue=2)
        lines = db.on("+big", JsonLines(path), name="lines", queue=1)
        pay(db, ("a", 50))
        wait_until(lambda: received.requests)
        for n in range(1, 20):
            pay(db, ("a", 50 + n))
        assert handle.wait(20)
        assert lines.wait(20)
        epochs = [message["epoch"] for message in received.messages]
        assert epochs == [1, *range(1, 21)]
        pay(db, ("b", 99))
        assert handle.wait(20)
        assert lines.wait(20)
        assert received.messages[-1]["inserted"] == [{"who": "b", "amount": 99}]
        status = handle.status
        assert (status.delivered, status.failed, status.pending) == (21, 0, 0)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["epoch"] for line in found] == list(range(1, 22))


def test_an_action_without_progress_can_be_closed(tmp_path: Path) -> None:
    with receiver(500) as received:
        with Database(PROGRAM, path=tmp_path) as db:
            handle = db.on("+big", Webhook(received.url, retry=9, retry_seconds=100), name="hook")
            pay(db, ("a", 50))
            wait_until(lambda: handle.status.last_error)
        assert handle.status.failed == 0
    with receiver() as received, Database(PROGRAM, path=tmp_path) as db:
        assert db.on("+big", Webhook(received.url), name="hook").wait(20)
        assert [message["epoch"] for message in received.messages] == [1]


# --- the file -------------------------------------------------------------------------------------


def record(epoch: int, *letters: DeadLetter) -> DeliveryRecord:
    return DeliveryRecord("big", "+", "token", epoch, epoch, len(letters), letters)


def test_a_write_that_is_torn_leaves_the_one_before(tmp_path: Path) -> None:
    files = Files(tmp_path)
    file = DeliveryFile(files, "a")
    assert file.read() is None
    file.create(record(1))
    for epoch in range(2, 9):
        file.write(record(epoch))
        assert DeliveryFile(files, "a").read() == record(epoch)
    file.close()
    path = tmp_path / "trigger-a.tide"
    data = path.read_bytes()
    assert len(data) == 8192
    for at in (4096, 4100, 4104, 4112, 4130):  # write 8 is in the second slot
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert DeliveryFile(files, "a").read() == record(7)
    path.write_bytes(b"x" + data[1:4096] + b"x" + data[4097:])
    with pytest.raises(StateError, match="is damaged"):
        DeliveryFile(files, "a").read()
    with pytest.raises(StateError, match="is damaged"):
        DeliveryFile(files, "a").read()


def test_dead_letters_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    letters = [DeadLetter(f"token-{n}", n, 3, "DeliveryError", "2026") for n in range(100)]
    file = DeliveryFile(Files(tmp_path), "a")
    file.create(record(1))
    file.write(record(2, *letters))
    file.close()
    found = DeliveryFile(Files(tmp_path), "a").read()
    assert found is not None
    assert found.failed == 100
    assert 10 < len(found.letters) < 100
    assert found.letters == tuple(letters[-len(found.letters) :])


def test_the_record_of_a_trigger_is_verified(tmp_path: Path) -> None:
    with Database(PROGRAM, path=tmp_path) as db:
        db.on("+big", print, name="alerts", where="amount > 1000")
        pay(db, ("a", 50))
    assert verify(tmp_path).epoch == 1
    path = tmp_path / "trigger-alerts.tide"
    path.write_bytes(bytes(8192))
    with pytest.raises(StateError, match=r"trigger-alerts\.tide` is damaged"):
        verify(tmp_path)
    with Database(PROGRAM, path=tmp_path) as db, pytest.raises(StateError, match="is damaged"):
        db.on("+big", print, name="alerts")
