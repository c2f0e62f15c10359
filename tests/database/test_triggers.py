"""Triggers in the process: order, exactly once, conditions, failures."""

import queue
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.generators.programs import RandomCase, check_cases
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import case_seeds
from tidelog import Database, Event, ProgramError, TriggerFailure, UsageError
from tidelog.engine.changed_rows import ChangedRows
from tidelog.errors import DataError

PROGRAM = """
.decl pay(who: symbol, amount: number)
.decl big(who: symbol, amount: number)
big(w, a) :- pay(w, a), a > 10.
"""


@pytest.fixture(params=["kernel", "reference"])
def db(request: pytest.FixtureRequest) -> Database:
    return Database(PROGRAM, engine=request.param)


def pay(db: Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.insert("pay", rows)


def unpay(db: Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.delete("pay", rows)


def fail(event: Event) -> None:
    raise ValueError("no")


def test_insertions_deletions_and_both(db: Database) -> None:
    more: list[Any] = []
    less: list[Any] = []
    both: list[Any] = []
    db.on("+big", lambda e: more.append((e.epoch, list(e.rows), list(e.deleted))))
    db.on("-big", lambda e: less.append((e.epoch, list(e.rows), list(e.inserted))))
    db.on("big", lambda e: both.append((e.epoch, list(e.inserted), list(e.deleted))))
    pay(db, ("a", 5), ("b", 50), ("c", 60))
    with db.transaction() as tx:
        tx.delete("pay", [("b", 50)])
        tx.insert("pay", [("d", 70)])
    pay(db, ("e", 1))  # does not change `big`
    assert more == [(1, [("b", 50), ("c", 60)], []), (2, [("d", 70)], [])]
    assert less == [(2, [("b", 50)], [])]
    assert both == [(1, [("b", 50), ("c", 60)], []), (2, [("d", 70)], [("b", 50)])]


def test_an_event_says_what_it_is(db: Database) -> None:
    events: list[Event] = []
    handle = db.on("big", events.append, name="alerts")
    pay(db, ("b", 50))
    pay(db, ("c", 50))
    first, second = events
    assert (first.trigger, first.view, first.sign, first.epoch) == ("alerts", "big", "", 1)
    assert first.id != second.id
    assert first.inserted.columns == ("who", "amount")
    assert first.inserted.to_arrow().num_rows == 1
    assert "big +1 -0, epoch 1" in repr(first)
    assert repr(handle) == "<TriggerHandle alerts on big>"
    with pytest.raises(UsageError, match="has `inserted` and `deleted` rows"):
        _ = first.rows


def test_actions_may_commit_and_what_follows_comes_after(db: Database) -> None:
    order: list[Any] = []

    def again(event: Event) -> None:
        order.append(("first", event.epoch, db.epoch))
        if event.epoch < 3:
            pay(db, (f"x{event.epoch}", 100))
            order.append(("committed", db.epoch))

    db.on("+big", again)
    db.on("+big", lambda e: order.append(("second", e.epoch)))
    pay(db, ("b", 50))
    assert order == [
        ("first", 1, 1), ("committed", 2), ("second", 1),
        ("first", 2, 2), ("committed", 3), ("second", 2),
        ("first", 3, 3), ("second", 3),
    ]  # fmt: skip


def test_a_removed_trigger_is_quiet(db: Database) -> None:
    seen: list[int] = []
    handle = db.on("+big", lambda e: seen.append(e.epoch))
    pay(db, ("b", 50))
    handle.remove()
    handle.remove()
    pay(db, ("c", 50))
    assert seen == [1]
    assert db.triggers == ()


def test_a_trigger_that_an_action_removes_gets_no_more(db: Database) -> None:
    seen: list[int] = []
    db.on("+big", lambda e: handle.remove())
    handle = db.on("+big", lambda e: seen.append(e.epoch))
    pay(db, ("b", 50))
    assert seen == []


def test_a_transaction_that_fails_triggers_nothing(db: Database) -> None:
    seen: list[int] = []
    db.on("+big", lambda e: seen.append(e.epoch))
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.insert("pay", [("b", 50)])
        raise KeyError
    pay(db, ("c", 50))
    assert seen == [1]


def test_deletions_cost_nothing_while_rows_are_only_inserted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = Database(PROGRAM)
    seen: list[Any] = []
    db.on("-big", lambda e: seen.append(list(e.rows)), where="amount > 0")

    def refuse(*args: object) -> None:
        raise AssertionError("a reader was made")

    with monkeypatch.context() as patch:
        patch.setattr(ChangedRows, "readers", refuse)
        pay(db, ("b", 50))
    unpay(db, ("b", 50))
    assert seen == [[("b", 50)]]


# --- views that are not stored --------------------------------------------------------------------

WATCHED = """
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)
.view reach(virtual=true)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


def test_triggers_on_a_view_that_is_not_stored() -> None:
    db = Database(WATCHED, facts={"edge": [("a", "b"), ("a", "c"), ("b", "d")]})
    seen: list[tuple[str, int, list[Any], list[Any]]] = []
    for on in ("+reach", "-reach", "reach"):
        db.on(on, lambda e, on=on: seen.append((on, e.epoch, [*e.inserted], [*e.deleted])))
    db.on("+reach", lambda e: seen.append(("where", e.epoch, list(e.rows), [])), where='x = "a"')
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d"), ("d", "e")])
    gained = [("a", "e"), ("b", "e"), ("c", "d"), ("c", "e"), ("d", "e")]
    assert seen == [
        ("+reach", 1, gained, []),
        ("reach", 1, gained, []),
        ("where", 1, [("a", "e")], []),
    ]
    seen.clear()
    with db.transaction() as tx:
        tx.delete("edge", [("b", "d")])  # (a, d) and (a, e) still hold, by way of c
    lost = [("b", "d"), ("b", "e")]
    assert seen == [("-reach", 2, [], lost), ("reach", 2, [], lost)]
    seen.clear()
    db.drop_rules("reach(x, z) :- reach(x, y), edge(y, z).")
    lost = [("a", "d"), ("a", "e"), ("c", "e")]
    assert seen == [("-reach", 3, [], lost), ("reach", 3, [], lost)]
    assert db.memory["reach"] == 0


def test_deletions_cost_nothing_on_a_view_that_is_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = Database(WATCHED, facts={"edge": [("a", "b")]})
    seen: list[Any] = []
    db.on("-reach", lambda e: seen.append(list(e.rows)))

    def refuse(*args: object) -> None:
        raise AssertionError("a reader was made")

    with monkeypatch.context() as patch, db.transaction() as tx:
        patch.setattr(ChangedRows, "readers", refuse)
        tx.insert("edge", [("b", "c")])
    assert seen == []


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        'amount > 100, who != "x"',
        '!(amount <= 100; who = "x")',
        'amount > 100,\n  strlen(who) = 1, !match("x", who)',
        lambda row: row[1] > 100 and row[0] != "x",
    ],
)
def test_conditions(db: Database, where: Any) -> None:
    seen: list[Any] = []
    db.on("big", lambda e: seen.append((list(e.inserted), list(e.deleted))), where=where)
    pay(db, ("b", 50), ("c", 500), ("x", 500))
    pay(db, ("d", 90))
    unpay(db, ("c", 500), ("b", 50))
    assert seen == [([("c", 500)], []), ([], [("c", 500)])]
    assert db.triggers[0].delivered == 2
    assert db.triggers[0].epoch == 3


def test_events_with_a_condition_stay_as_they_are(db: Database) -> None:
    events: list[Event] = []
    db.on("+big", events.append, where="amount > 100")
    pay(db, ("b", 500))
    pay(db, ("c", 600))
    assert [list(event.rows) for event in events] == [[("b", 500)], [("c", 600)]]


MISTAKES = {
    "amuont > 1": ("<where>:1:1: error: variable `amuont` is not bound", "who, amount"),
    "amount > 1,\n  who > 2": ("<where>:2:3: error: `who` is a `symbol`", "who > 2"),
    "amount >": ("<where>:1:8: error: something is missing after `>`", ""),
    "amount > 1,": ("<where>:1:", ""),
}


@pytest.mark.parametrize("where", MISTAKES)
def test_mistakes_in_a_condition_have_positions(db: Database, where: str) -> None:
    with pytest.raises(ProgramError) as error:
        db.on("+big", print, where=where)
    for part in MISTAKES[where]:
        assert part in str(error.value)
    assert db.triggers == ()


@pytest.mark.parametrize(
    "where",
    ["pay(who, _)", "amount = count : { pay(_, _) }", "amount > 1). big(x, 1) :- (x = 2", ""],
)
def test_a_condition_is_only_about_the_columns(db: Database, where: str) -> None:
    with pytest.raises((UsageError, ProgramError)):
        db.on("+big", print, where=where)


def test_conditions_on_all_types() -> None:
    db = Database("""
        .type City <: symbol
        .type Pair = [a: number, b: City]
        .decl price[item: City]: decimal(9,2)
        .decl selected(p: Pair, s: set(number), ok: bool)
        .decl empty()
    """)
    seen: list[Any] = []
    db.on("+price", lambda e: seen.append(list(e.rows)), where="value > 1.50")
    db.on("+selected", lambda e: seen.append(list(e.rows)), where='p = [1, "a"], ok = true')
    db.on("+empty", lambda e: seen.append(list(e.rows)), where="1 < 2")
    with db.transaction() as tx:
        tx.insert("price", [("a", 1), ("b", 2)])
        tx.insert("selected", [((1, "a"), {1}, True), ((2, "a"), {1}, True), (None, {1}, True)])
        tx.insert("empty", [()])
    assert seen == [[("b", Decimal("2.00"))], [((1, "a"), frozenset({1}), True)], [()]]


def test_a_condition_that_fails_is_a_failure_of_the_trigger(db: Database) -> None:
    seen: list[int] = []
    handle = db.on("+big", lambda e: seen.append(e.epoch), where="100 / (amount - 50) > 0")
    pay(db, ("b", 50))
    pay(db, ("c", 51))
    assert seen == [2]
    assert handle.status.failed == 1
    assert "division by zero" in handle.status.last_error


# --- failures -------------------------------------------------------------------------------------


def test_an_action_that_raises_neither_fails_the_commit_nor_other_triggers(db: Database) -> None:
    seen: list[int] = []
    failures: list[TriggerFailure] = []
    handle = db.on("+big", fail, on_error=failures.append)
    db.on("+big", lambda e: seen.append(e.epoch))
    pay(db, ("b", 50))
    pay(db, ("c", 50))
    assert len(db.view("big")) == 2
    assert seen == [1, 2]
    assert [(f.epoch, f.attempts, f.is_final, str(f.error)) for f in failures] == [
        (1, 1, True, "no"), (2, 1, True, "no")
    ]  # fmt: skip
    status = handle.status
    assert (status.delivered, status.failed, status.last_error) == (0, 2, "ValueError: no")
    assert [(letter.epoch, letter.id) for letter in status.dead_letters] == [
        (f.epoch, f.id) for f in failures
    ]


def test_failures_are_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    db.on("+big", fail, name="alerts", on_error=fail)  # type: ignore[arg-type]
    pay(db, ("b", 50))
    assert "trigger `alerts`: epoch 1 failed, it is not tried again: ValueError: no" in caplog.text
    assert "`on_error` of trigger `alerts` failed" in caplog.text


def test_a_function_is_retried_on_its_own_thread_and_later_events_wait(db: Database) -> None:
    attempts: list[tuple[int, str, int]] = []
    main = threading.get_ident()

    def third_time(event: Event) -> None:
        attempts.append((event.epoch, event.id, threading.get_ident()))
        if event.epoch == 1 and len(attempts) < 3:
            raise ValueError("not yet")

    handle = db.on("+big", third_time, retry=5, retry_seconds=0.01)
    pay(db, ("b", 50))
    pay(db, ("c", 50))
    assert handle.wait(20)
    assert [epoch for epoch, _, _ in attempts] == [1, 1, 1, 2]
    assert len({id_ for _, id_, _ in attempts}) == 2
    assert attempts[0][2] == main != attempts[1][2]
    status = handle.status
    assert (status.delivered, status.failed, status.pending) == (2, 0, 0)


def test_a_keyboard_interrupt_in_an_action_ends_the_block_after_the_commit(db: Database) -> None:
    seen: list[int] = []

    def interrupt(event: Event) -> None:
        if event.epoch == 1:
            raise KeyboardInterrupt

    handle = db.on("+big", interrupt)
    db.on("+big", lambda e: seen.append(e.epoch))
    with pytest.raises(KeyboardInterrupt):
        pay(db, ("b", 50))
    assert db.epoch == 1
    assert handle.status.failed == 1
    pay(db, ("c", 50))
    assert seen == [1, 2]


def test_queues(db: Database) -> None:
    room: queue.Queue[Event] = queue.Queue(maxsize=1)
    handle = db.on("+big", room)
    pay(db, ("b", 50))
    pay(db, ("c", 50))
    assert list(room.get_nowait().rows) == [("b", 50)]
    assert handle.status.last_error.startswith("Full")


REFUSED: dict[str, Callable[[Database], object]] = {
    "relation `bog` is not declared; did you mean": lambda db: db.on("+bog", print),
    "the action of a trigger is a function": lambda db: db.on("+big", 3),
    "`retry` cannot be below 0": lambda db: db.on("+big", print, retry=-1),
    "`queue` must be 1 or more": lambda db: db.on("+big", print, queue=0),
    "there is a trigger `a` already": lambda db: [db.on("big", print, name="a") for _ in "ab"],
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_usage(db: Database, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        REFUSED[message](db)


def test_no_trigger_is_registered_within_a_transaction(db: Database) -> None:
    with pytest.raises(UsageError, match="another transaction is open"), db.transaction():
        db.on("+big", print)


# --- random programs ------------------------------------------------------------------------------


def test_the_events_of_a_view_add_up_to_its_changes() -> None:
    seen: Counter[str] = Counter()

    def check(case: RandomCase) -> str | None:
        try:
            db = Database(case.program, facts=case.facts)
        except DataError:
            return None
        events: list[Event] = []
        rows = {name: Counter(db.view(name)) for name in db.program.relations}
        for name in rows:
            for event in (f"+{name}", f"-{name}", name):
                db.on(event, events.append)
        for epoch in case.epochs:
            try:
                with db.transaction() as tx:
                    for name, (inserted, deleted) in epoch.items():
                        tx.insert(name, inserted)
                        tx.delete(name, deleted)
            except DataError:
                continue
            for event in events:
                seen[event.sign] += 1
                change = tx.changes[event.view]
                if event.sign:
                    rows[event.view].update(event.inserted)
                    rows[event.view].subtract(event.deleted)
                elif (set(event.inserted), set(event.deleted)) != (
                    set(change.inserted), set(change.deleted)
                ):  # fmt: skip
                    return f"{event} is not {change}"
                if event.epoch != db.epoch:
                    return f"{event} came at epoch {db.epoch}"
            events.clear()
        for name, counts in rows.items():
            if counts != Counter(db.view(name)):
                return f"the events of {name} give {counts}"
        return None

    check_cases(case_seeds(sample(10, 300), offset=71_000), check, kernel_case)
    assert seen["+"]
    assert seen["-"]
    assert seen[""]
