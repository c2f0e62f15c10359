"""A probe answers what given rows would add to views, and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import NoObserver

PROGRAM = tidelog.Program.parse("""
.decl row(k: number, x: symbol, y: number)
.decl asked(k: number, y: number)
.decl found(k: number, x: symbol, y: number)
found(k, x, y) :- asked(k, y), row(k, x, y).
.decl inverse(x: number)
inverse(100 / y) :- asked(_, y).
""")


class Never(NoObserver):
    """Fails if it sees an epoch."""

    def given(self) -> None:
        raise AssertionError("an epoch was announced")

    computed = undone = given


def ask(engine: KernelEngine, *keys: tuple[int, int]) -> set[tuple[object, ...]]:
    catalog = engine.catalog
    rows = engine.probe({"asked": catalog.encode("asked", keys)}, ["found"])["found"]
    found = catalog.decode_ordinals("found", rows)
    assert len(set(found)) == len(found)
    return set(found)


def contents(engine: KernelEngine) -> dict[str, object]:
    return {name: engine.rows(name) for name in PROGRAM.relations}


def test_a_probe_finds_rows_and_changes_nothing() -> None:
    rng = seeded("a probe finds rows and changes nothing")
    engine = KernelEngine(PROGRAM, {})
    rows: set[tuple[int, str, int]] = set()
    for _ in range(20):
        new = {(rng.randrange(9), f"s{rng.randrange(4)}", rng.randrange(1, 5)) for _ in range(4)}
        gone = {row for row in rows if rng.random() < 0.2} - new
        engine.apply({"row": new}, {"row": gone})
        rows = (rows | new) - gone
        before, report = contents(engine), engine.last_epoch
        observer = engine.observer = Never()
        # Keys that are known, and some that do not fit the codes of the columns so far.
        keys = [(rng.randrange(9), rng.randrange(1, 5)) for _ in range(5)]
        keys += [(rng.randrange(10**12), 1 << rng.randrange(40))] * (rng.random() < 0.3)
        expected = {row for row in rows if (row[0], row[2]) in keys}
        assert ask(engine, *keys) == expected
        assert engine.observer is observer
        engine.observer = NoObserver()
        assert contents(engine) == before
        assert engine.last_epoch is report
        engine.check()
    assert ask(engine) == set()


def test_a_probe_that_fails_is_undone() -> None:
    engine = KernelEngine(PROGRAM, {"row": [(1, "a", 0)]})
    observer = engine.observer = Never()
    with pytest.raises(tidelog.EvaluationError):
        ask(engine, (1, 0))
    assert engine.observer is observer
    assert engine.rows("asked") == set()
    engine.check()


def test_a_probe_writes_nothing(tmp_path: Path) -> None:
    with tidelog.Database(PROGRAM, path=tmp_path) as database:
        with database.transaction() as tx:
            tx.insert("row", [(1, "a", 1), (2, "b", 2)])
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
        epoch = database.epoch
        assert ask(kernel_of(database), (2, 2), (3, 77)) == {(2, "b", 2)}
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
        assert database.epoch == epoch
        with database.transaction() as tx:
            tx.insert("row", [(3, "c", 77)])
    with tidelog.Database(PROGRAM, path=tmp_path) as database:
        assert set(database.view("row")) == {(1, "a", 1), (2, "b", 2), (3, "c", 77)}
        assert not set(database.view("found"))
        assert ask(kernel_of(database), (3, 77)) == {(3, "c", 77)}
