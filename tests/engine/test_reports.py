"""`db.last_epoch`: what an epoch did, as data, on both engines."""

import pytest

import tidelog
from tests.engine.budget import always_bootstrap, always_update

PROGRAM = """
    .decl edge(x: number, y: number)
    .decl reach(x: number, y: number)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
    .decl two(x: number, z: number)
    two(x, z) :- edge(x, y), edge(y, z).
    .decl far(x: number, n: number)
    far(x, n) :- edge(x, _), n = count : { reach(x, _) }.
    .decl other(x: number)
    .decl same(x: number)
    same(x) :- other(x).
"""
CHAIN = [(i, i + 1) for i in range(5)]


def kernel() -> tidelog.Database:
    return tidelog.Database(PROGRAM, facts={"edge": CHAIN}, engine="kernel")


@pytest.mark.parametrize("engine", ["reference", "kernel"])
def test_given_rows_and_epochs_are_counted(engine: str) -> None:
    db = tidelog.Database(PROGRAM, facts={"edge": CHAIN}, engine=engine)
    first = db.last_epoch
    assert (first.epoch, first.given_inserted, first.given_deleted) == (0, 5, 0)
    assert first.seconds >= sum(layer.seconds for layer in first.layers) > 0
    assert {layer.choice for layer in first.layers} == {"bootstrap"}
    with db.transaction() as tx:
        tx.insert("edge", [(0, 1), (5, 6), (6, 7)])
        tx.delete("edge", [(3, 4), (8, 8)])
    second = db.last_epoch
    assert (second.epoch, second.given_inserted, second.given_deleted) == (1, 2, 1)
    assert db.epoch == 1


def test_the_reference_engine_has_one_layer() -> None:
    db = tidelog.Database(PROGRAM, facts={"edge": CHAIN}, engine="reference")
    (layer,) = db.last_epoch.layers
    assert layer.relations == ("reach", "two", "far", "same")
    assert (layer.strategy, layer.choice) == ("recompute", "bootstrap")
    assert layer.inserted == 15 + 4 + 5
    assert db.memory == {}
    assert tidelog.Database(".decl p(x: number)", engine="reference").last_epoch.layers == ()


def test_the_first_evaluation() -> None:
    report = kernel().last_epoch
    reach, two = report.layer("reach"), report.layer("two")
    assert reach is not None and two is not None
    assert (reach.strategy, reach.choice, reach.why) == (
        "elastic",
        "bootstrap",
        "the first evaluation",
    )
    assert (reach.inserted, reach.deleted, reach.touched) == (15, 0, 15)
    assert reach.levels == 6  # five with new rows, and one that finds none
    assert (two.strategy, two.inserted, two.touched, two.levels) == ("counting", 4, 4, 0)
    assert report.touched == sum(layer.touched for layer in report.layers)
    assert report.layer("edge") is None


def test_an_update() -> None:
    db = kernel()
    always_update(db)
    with db.transaction() as tx:
        tx.insert("edge", [(5, 6)])
    report = db.last_epoch
    reach, same = report.layer("reach"), report.layer("same")
    assert reach is not None and same is not None
    assert (reach.choice, reach.why) == ("update", "")
    assert (reach.inserted, reach.deleted, reach.touched) == (6, 0, 6)
    assert reach.levels > 0
    assert (same.choice, same.why) == ("nothing to do", "nothing it reads has changed")
    assert (same.touched, same.inserted, same.deleted) == (0, 0, 0)


def test_a_bootstrap_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    db = kernel()
    always_bootstrap(db, monkeypatch)
    with db.transaction() as tx:
        tx.delete("edge", [(2, 3)])
    reach = db.last_epoch.layer("reach")
    assert reach is not None
    assert reach.choice == "bootstrap"
    assert reach.why.startswith("the update exceeded its budget of ")
    assert (reach.inserted, reach.deleted) == (0, 9)


@pytest.mark.parametrize("engine", ["reference", "kernel"])
def test_a_failed_epoch_leaves_the_report(engine: str) -> None:
    db = tidelog.Database(".decl p(x: number) .decl q(x: number) q(10 / x) :- p(x).", engine=engine)
    with db.transaction() as tx:
        tx.insert("p", [(5,)])
    report = db.last_epoch
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.insert("p", [(0,)])
    assert db.last_epoch is report


def test_memory_is_told_by_relation() -> None:
    db = kernel()
    memory = db.memory
    assert set(db.program.relations) <= set(memory)
    assert memory["reach"] >= 15 * 8
    db.view("edge").where(y=3)
    assert db.memory["edge"] >= memory["edge"]
