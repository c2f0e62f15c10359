"""Webhooks and files: what is sent, signed, retried and given up."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from tests.database.receiving import CERTIFICATE, HANG, receiver, wait_until
from tidelog import Database, JsonLines, TriggerFailure, UsageError, Webhook

PROGRAM = """
.decl pay(who: symbol, amount: number)
.decl typed(d: date, t: timestamp, m: decimal(5,2), f: float, s: set(number))
"""
QUICK: dict[str, Any] = {"retry_seconds": 0.01}


@pytest.fixture
def db() -> Database:
    return Database(PROGRAM, engine="reference")


def pay(db: Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.insert("pay", rows)


def test_a_message(db: Database) -> None:
    with receiver() as received:
        handle = db.on("pay", Webhook(received.url), name="alerts", where="amount > 1")
        pay(db, ("a", 5), ("b", 1))
        with db.transaction() as tx:
            tx.delete("pay", [("a", 5)])
            tx.insert("pay", [("c", 6)])
        assert handle.wait(20)
        first, second = received.messages
        id_ = first.pop("id")
        assert first == {
            "trigger": "alerts", "view": "pay", "epoch": 1, "part": 1, "parts": 1,
            "inserted": [{"who": "a", "amount": 5}], "deleted": [],
        }  # fmt: skip
        assert second["inserted"] == [{"who": "c", "amount": 6}]
        assert second["deleted"] == [{"who": "a", "amount": 5}]
        headers = received.requests[0][0]
        assert headers["Content-Type"] == "application/json"
        assert headers["Tidelog-Delivery"] == id_
        assert "Tidelog-Signature" not in headers
        assert len(set(received.ids)) == 2
    db.close()


def test_values_of_all_types(db: Database) -> None:
    with receiver() as received:
        handle = db.on("+typed", Webhook(received.url))
        with db.transaction() as tx:
            tx.insert("typed", [_typed()])
        assert handle.wait(20)
        assert received.messages[0]["inserted"] == [
            {"d": "2026-03-01", "t": "2026-03-01T08:00:00", "m": "1.50", "f": "inf", "s": [1, 2]}
        ]
    db.close()


def _typed() -> tuple[Any, ...]:
    import datetime as dt
    from decimal import Decimal

    day = dt.date(2026, 3, 1)
    return (day, dt.datetime(2026, 3, 1, 8), Decimal("1.50"), float("inf"), {1, 2})


def test_a_receiver_can_verify_the_signature(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "a secret")
    with receiver() as received:
        handle = db.on("+pay", Webhook(received.url, secret_env="HOOK_SECRET"))
        pay(db, ("a", 5))
        assert handle.wait(20)
        headers, body = received.requests[0]
        wanted = hmac.new(b"a secret", body, hashlib.sha256).hexdigest()
        assert headers["Tidelog-Signature"] == f"sha256={wanted}"
    db.close()


def test_many_rows_are_several_messages(db: Database) -> None:
    with receiver(200, 500, 200) as received:
        handle = db.on("pay", Webhook(received.url, max_rows=3, **QUICK))
        pay(db, *[("a", n) for n in range(5)])
        assert handle.wait(20)
        with db.transaction() as tx:
            tx.delete("pay", [("a", 0), ("a", 1)])
            tx.insert("pay", [("b", n) for n in range(4)])
        assert handle.wait(20)
    found = received.messages
    # The second message has failed, so both are sent again, with the same ids.
    assert [(m["part"], m["parts"]) for m in found] == [(1, 2), (2, 2)] * 3
    assert received.ids[:2] == received.ids[2:4]
    assert found[0] == found[2]
    by_id = {message["id"]: message for message in found}
    assert len(by_id) == 4
    assert sum(len(m["inserted"]) for m in by_id.values()) == 9
    assert [len(m["deleted"]) for m in by_id.values()] == [0, 0, 2, 0]
    assert all(len(m["inserted"]) + len(m["deleted"]) <= 3 for m in by_id.values())
    db.close()


def test_failed_requests_are_sent_again_in_order(db: Database) -> None:
    failures: list[TriggerFailure] = []
    with receiver(500, 302, HANG, 204) as received:
        webhook = Webhook(received.url, timeout=0.2, **QUICK)
        handle = db.on("+pay", webhook, on_error=failures.append)
        pay(db, ("a", 1))
        pay(db, ("b", 2))
        assert handle.wait(20)
        epochs = [message["epoch"] for message in received.messages]
        assert epochs == [1, 1, 1, 1, 2]
        assert len(set(received.ids)) == 2
    assert [str(failure.error).split(" ", 1)[1] for failure in failures] == [
        "answered with status 500", "answered with status 302", "did not answer within 0.2 s",
    ]  # fmt: skip
    assert [failure.attempts for failure in failures] == [1, 2, 3]
    status = handle.status
    assert (status.delivered, status.failed, status.pending) == (2, 0, 0)
    db.close()


def test_after_the_last_retry_it_is_a_dead_letter(db: Database) -> None:
    with receiver(503, 503, 503, 200) as received:
        handle = db.on("+pay", Webhook(received.url, retry=2, **QUICK))
        pay(db, ("a", 1))
        pay(db, ("b", 2))
        assert handle.wait(20)
        assert [message["epoch"] for message in received.messages] == [1, 1, 1, 2]
    status = handle.status
    assert (status.delivered, status.failed) == (1, 1)
    (letter,) = status.dead_letters
    assert (letter.epoch, letter.attempts) == (1, 3)
    assert received.ids[0] == f"{letter.id}-1"
    assert "status 503" in letter.error
    db.close()


def test_a_server_that_is_down_blocks_no_commit(db: Database) -> None:
    with receiver() as received:
        url = received.url
    handle = db.on("+pay", Webhook(url, retry=1000, retry_seconds=100))
    for n in range(20):
        pay(db, ("a", n))
    wait_until(lambda: handle.status.last_error)
    assert "cannot be reached" in handle.status.last_error
    assert db.epoch == 20
    assert handle.status.pending == 20
    handle.remove()


def test_events_that_do_not_fit_the_queue_are_dead_letters(db: Database) -> None:
    failures: list[TriggerFailure] = []
    with receiver(HANG) as received:
        handle = db.on("+pay", Webhook(received.url), queue=3, on_error=failures.append)
        pay(db, ("a", 0))
        wait_until(lambda: received.requests)
        for n in range(1, 6):
            pay(db, ("a", n))
        status = handle.status
        assert status.pending == 3
        assert status.failed == 3
        assert [failure.epoch for failure in failures] == [4, 5, 6]
        assert "the queue is full, with 3 events" in status.last_error
        received.over.set()
        handle.remove()


def test_a_certificate_that_nobody_trusts_is_refused(db: Database) -> None:
    with receiver(tls=True) as received:
        handle = db.on("+pay", Webhook(received.url, retry=1, **QUICK))
        pay(db, ("a", 1))
        assert handle.wait(20)
        assert received.requests == []
        assert "certificate" in handle.status.last_error
        assert handle.status.failed == 1
        trusting = db.on("+pay", Webhook(received.url, ca_file=str(CERTIFICATE), **QUICK))
        pay(db, ("b", 1))
        assert trusting.wait(20)
        assert trusting.status.delivered == 1
    db.close()


def test_addresses_and_secrets_are_not_shown(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "open sesame")
    with receiver(500) as received:
        webhook = Webhook(received.url, secret_env="HOOK_SECRET", retry=0)
        handle = db.on("+pay", webhook)
        pay(db, ("a", 1))
        assert handle.wait(20)
    shown = f"{webhook!r} {handle.status!r} {caplog.text}"
    assert "127.0.0.1" in shown
    assert "sesame" not in shown
    db.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/hook", "must begin with https://"),
        ("http://10.0.0.1/hook", "must begin with https://"),
        ("ftp://example.org", "must begin with https://"),
        ("https:///hook", "must begin with https://"),
        ("https://user:word@example.org", "cannot have a user"),
        ("https://example.org/a b", "characters"),
        ("https://example.org:port/", "is not a URL"),
    ],
)
def test_addresses_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        Webhook(url)
    assert "word" not in str(error.value)


def test_wrong_usage() -> None:
    assert Webhook("http://[::1]:1/").host == "http://::1:1"
    for keys in ({"timeout": 0}, {"max_rows": 0}, {"retry": -1}, {"secret_env": "NO_SUCH_NAME"}):
        with pytest.raises(UsageError):
            Webhook("https://example.org", **keys)  # type: ignore[arg-type]


# --- files ----------------------------------------------------------------------------------------


def test_lines_of_json(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "pay.jsonl"
    path.write_text("half of a li")
    handle = db.on("pay", JsonLines(path), name="all")
    pay(db, ("a", 1), ("b", 2))
    with db.transaction() as tx:
        tx.delete("pay", [("a", 1)])
    assert handle.wait(20)
    first, *lines = path.read_text().splitlines()
    assert first == "half of a li"
    found = [json.loads(line) for line in lines]
    assert [(f["epoch"], f["op"], f["row"]["who"]) for f in found] == [
        (1, "+", "a"), (1, "+", "b"), (2, "-", "a")
    ]  # fmt: skip
    assert len({f["id"] for f in found}) == 2
    assert all(f["trigger"] == "all" and f["view"] == "pay" for f in found)
    db.close()


def test_a_file_that_cannot_be_written(db: Database, tmp_path: Path) -> None:
    handle = db.on("+pay", JsonLines(tmp_path / "no" / "file"), retry=1, retry_seconds=0.01)
    pay(db, ("a", 1))
    assert handle.wait(20)
    assert "No such file" in handle.status.last_error
    assert handle.status.failed == 1
    db.close()


def test_closing_gives_up_what_cannot_be_delivered(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.database.delivery_worker._CLOSING", 0.05)
    with receiver(500) as received:
        handle = db.on("+pay", Webhook(received.url, retry=9, retry_seconds=100))
        pay(db, ("a", 1))
        wait_until(lambda: handle.status.last_error)
        db.close()
    assert handle.status.failed == 1
    assert "the database was closed" in handle.status.last_error
