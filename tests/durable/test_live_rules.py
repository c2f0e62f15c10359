"""Rules that change in a durable database: the log, snapshots, readers and migration."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.generators.programs import check_cases
from tests.maintain.changing_rules import ReopenedRules
from tests.maintain.shapes import kernel_case
from tests.samples import sample, until
from tests.seeds import case_seeds
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.persist.state_tools import verify
from tidelog.plan import order

REACH = """\
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)  .output reach
reach(x, y) :- edge(x, y).
"""
STEP = "reach(x, z) :- reach(x, y), edge(y, z).\n"
MORE = ".decl start(x: symbol)  .output start\nstart(x) :- reach(x, _), !reach(_, x).\n"
EDGES = [("a", "b"), ("b", "c"), ("c", "d")]


def opened(path: Path, text: str = REACH, policy: str = "refuse") -> tidelog.Database:
    return tidelog.Database(text, path=path, on_program_change=policy)


def changed(path: Path) -> None:
    """Make a state whose log has row epochs, and changes of the program among them."""
    with tidelog.Database(REACH, path=path, facts={"edge": EDGES}) as db:
        db.add_rules(STEP)
        with db.transaction() as tx:
            tx.insert("edge", [("d", "e")])
            tx.add_rules(MORE)
        with db.transaction() as tx:
            tx.delete("edge", [("a", "b")])


def same_as_fresh(db: tidelog.Database) -> None:
    """Assert that rows, levels and counts are those of a new database."""
    engine = kernel_of(db)
    given = {name: set(engine.state.given_rows(name)) for name in db.program.relations}
    fresh = KernelEngine(Program.parse(db.program.text), given)
    for name in db.program.relations:
        assert engine.levels_and_counts(name) == fresh.levels_and_counts(name)
    engine.check()


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_log_leads_through_changes_of_the_program(tmp_path: Path, snapshots: bool) -> None:
    changed(tmp_path)
    for _ in range(2):
        with opened(tmp_path, REACH + STEP + MORE) as db:
            assert db.opened is not None and not db.opened.rebuilt
            assert db.epoch == 3
            assert list(db.view("start")) == [("b",)]
            same_as_fresh(db)
            if snapshots:
                db.snapshot()
    assert not verify(tmp_path, deep=True).problems
    with pytest.raises(tidelog.UsageError, match="is of another program"):
        opened(tmp_path)


def test_a_program_is_the_same_whatever_its_spaces(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with opened(tmp_path, "// roads\n" + REACH.replace("  ", "\n")) as db:
        assert db.epoch == 0


def test_migration_applies_the_difference(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, facts={"edge": EDGES}) as db:
        db.add_rules("reach(x, x) :- edge(x, _).")
    with opened(tmp_path, REACH + STEP + MORE, "migrate") as db:
        assert db.opened is not None and db.opened.migrated and not db.opened.rebuilt
        assert db.epoch == 2
        assert list(db.view("start")) == [("a",)]
        layers = {layer.relations: layer.choice for layer in db.last_epoch.layers}
        assert layers["start",] == "bootstrap"
        ((epoch, change),) = db.changes("start", 1)
        assert (epoch, list(change.inserted)) == (2, [("a",)])
        same_as_fresh(db)
    with opened(tmp_path, REACH + STEP + MORE, "migrate") as db:
        assert db.opened is not None and not db.opened.migrated
        assert db.epoch == 2


def test_migration_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, facts={"edge": EDGES}):
        pass
    for other in (".decl p()\n", REACH.replace("edge(x: symbol", "edge(x: number")):
        with pytest.raises(tidelog.TidelogError):
            opened(tmp_path, other, "migrate")
    with opened(tmp_path) as db:
        assert db.epoch == 0
        assert list(db.view("reach")) == EDGES


def test_readers_follow_a_change_of_the_program(tmp_path: Path) -> None:
    with tidelog.Database(REACH, path=tmp_path, facts={"edge": EDGES}) as db:
        reader = tidelog.Database.reader(tmp_path)
        db.add_rules(STEP)
        db.add_rules(MORE)
        db.drop_rules("reach(x, y) :- edge(x, y).")
        for one in (reader, tidelog.Database.reader(tmp_path)):
            one.refresh()
            assert one.epoch == 3
            for name in db.program.relations:
                assert list(one.view(name)) == list(db.view(name))
        assert len(db.at(1).view("reach")) == 6
        assert len(reader.at(0).view("reach")) == 3
        with pytest.raises(tidelog.UsageError, match=r"not declared at epoch 1: .* since epoch 2"):
            len(db.at(1).view("start"))


def test_a_kill_during_a_change_of_the_program(tmp_path: Path) -> None:
    """Whatever the log has got by then: the state before the epoch, or that after it."""
    whole = tmp_path / "whole"
    changed(whole)
    (log,) = whole.glob("log-*.tide")
    data = log.read_bytes()
    seen = set()
    for end in range(200, len(data) + 1, 97):
        part = tmp_path / "part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(whole, part)
        (part / "COMMITTED").unlink()
        (part / log.name).write_bytes(data[:end])
        with opened(part, REACH + STEP + MORE, "migrate") as db:
            assert list(db.view("start")) in ([("a",)], [("b",)])
            same_as_fresh(db)
            seen.add(db.epoch)
    assert len(seen) > 1


CASES = sample(2, 100)


@pytest.mark.parametrize("virtual", [False, True])
def test_random_rules_in_durable_databases(
    virtual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    comparison = ReopenedRules(tmp_path, virtual=virtual)
    seeds = case_seeds(20 * CASES, offset=72_000 if virtual else 71_000)
    for i in until(lambda: comparison.seen["opened"] > 0, least=CASES, most=len(seeds)):
        check_cases(seeds[i : i + 1], comparison.check, kernel_case)
    print(dict(comparison.seen))
    assert comparison.seen["opened"] > 0
