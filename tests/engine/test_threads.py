"""Large joins on several threads: the same results and the same state as on one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tidelog
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import check_cases
from tests.maintain.comparing import Comparison
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks, seeded_arrays
from tidelog.database.database import kernel_of
from tidelog.join.gather import Tally, united
from tidelog.join.rules import RuleJoins
from tidelog.runtime import workers as workers_module
from tidelog.runtime.workers import Workers, threads_wanted

CLOSURE = """
.decl e(x: number, y: number)
.decl path(x: number, y: number)
path(x, y) :- e(x, y).
path(x, z) :- path(x, y), e(y, z).
"""
SAME_GENERATION = """
.decl e(x: number, y: number)
.decl same(x: number, y: number)
.decl other(x: number, n: number)
same(x, y) :- e(x, p), e(y, p), x != y.
same(x, y) :- e(x, a), same(a, b), e(y, b).
other(y, n) :- same(x, y), n = x * 100000, !e(x, y).
"""
WIDE = """
.decl e(x: number, y: number)
.decl far(a: number, b: number, c: number, d: number)
.decl met(a: number, b: number, c: number, d: number)
far(x, 4611686018427387904 + y, z, x + z) :- e(x, y), e(y, z).
met(a, b, c, d) :- far(a, b, c, d).
met(b, a, d, c) :- far(a, b, c, d), met(c, _, _, _).
"""


@pytest.fixture(params=[2, 4])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Cut every join into parts, also the smallest one; count the parts."""
    count: int = request.param
    monkeypatch.setattr("tidelog.join.rules._LARGE", 1)
    monkeypatch.setattr("tidelog.join.gather._LARGE", 1)
    monkeypatch.setattr("tidelog.maintain.fixpoint._MANY", 1)
    monkeypatch.setattr("tidelog.store.index.MANY", 1)
    monkeypatch.setattr("tidelog.store.sorting.MANY", 1)
    monkeypatch.setattr("tidelog.engine.kernel.Workers", lambda _: Workers(count))
    seen = []
    whole = RuleJoins._run_parts

    def run_parts(self: RuleJoins, join: object, parts: list, *more: object) -> None:
        seen.append(len(parts))
        whole(self, join, parts, *more)

    monkeypatch.setattr(RuleJoins, "_run_parts", run_parts)
    yield count
    assert max(seen) > 1
    print(f"{len(seen)} joins in {sum(seen)} parts")


@pytest.mark.parametrize("seeds", seed_blocks(sample(10, 2000), 10, offset=960_000))
def test_random_programs(seeds: range, threads: int) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, kernel_case)
    assert comparison.seen["epochs"] > len(seeds)


@pytest.mark.parametrize("seeds", seed_blocks(sample(10, 1000), 10, offset=970_000))
def test_random_joins(seeds: range, threads: int) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, multiway_case)
    assert comparison.seen["epochs"] > len(seeds)


def edges(nodes: int, count: int) -> list[tuple[int, int]]:
    ends = seeded_arrays("threads", nodes, count).integers(0, nodes, (count, 2))
    return [tuple(row) for row in np.unique(ends, axis=0).tolist()]


def state_of(db: tidelog.Database) -> dict[str, list[tuple[bytes, bytes, bytes]]]:
    """Return the arrays of all runs of all relations, in all orders."""
    catalog = kernel_of(db).catalog
    found = {}
    for name, relation in catalog.relations.items():
        for order, index in relation.indexes.items():
            found[f"{name} {order}"] = [
                (
                    run.words.tobytes(),
                    b"" if run.marks is None else run.marks.tobytes(),
                    b"" if run.counts is None else run.counts.tobytes(),
                )
                for run in index.runs
            ]
        bits = [domain.bits for domain in catalog.domains(name)]
        found[f"{name} bits"] = [(bytes(bits), b"", b"")]
    return found


@pytest.mark.parametrize(
    ("program", "nodes", "count"),
    [(CLOSURE, 900, 1000), (SAME_GENERATION, 500, 900), (WIDE, 4000, 40_000)],
    ids=["closure", "same generation", "wide"],
)
def test_the_state_is_that_of_one_thread(
    program: str, nodes: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.join.rules._LARGE", 64)
    facts = {"e": edges(nodes, count)}
    more = edges(nodes + 7, count // 2)
    states = []
    for threads in (1, 2, 4):
        db = tidelog.Database(program, facts=facts, threads=threads)
        first = state_of(db)
        with db.transaction() as tx:
            tx.insert("e", more)
            tx.delete("e", facts["e"][::3])
        # Whether the epoch was a bootstrap depends on the clock, and so do the runs afterwards.
        changes = {n: (set(c.inserted), set(c.deleted)) for n, c in tx.changes.items()}
        states.append((first, changes))
    assert states[0] == states[1] == states[2]
    assert sum(len(run[0]) for runs in states[0][0].values() for run in runs) > 100_000


def test_an_error_of_a_rule_is_that_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.join.rules._LARGE", 64)
    program = """
        .decl e(x: number, y: number)
        .decl v(x: number, y: number)
        v(x, 100 / (y - 77)) :- e(x, y), e(y, _).
    """
    facts = {"e": edges(100, 3000)}
    said = set()
    for threads in (1, 2, 4):
        with pytest.raises(tidelog.EvaluationError) as error:
            tidelog.Database(program, facts=facts, threads=threads)
        said.add(str(error.value))
    assert len(said) == 1


def test_a_limit_ends_all_parts(threads: int) -> None:
    program = ".decl n(x: number) n(0). n(x + 1) :- n(x)."
    with pytest.raises(tidelog.LimitError):
        tidelog.Database(program, level_limit=20, threads=threads)
    # The threads are there for other databases, and nothing of the buffers is lost.
    db = tidelog.Database(CLOSURE, facts={"e": [(1, 2), (2, 3), (3, 4)]}, threads=threads)
    assert len(db.view("path")) == 6


# --- workers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_are_in_order(count: int) -> None:
    workers = Workers(count)
    assert workers.map(lambda item, _: item * item, range(40)) == [i * i for i in range(40)]
    seen = np.zeros(1000, np.int64)

    def fill(start: int, stop: int) -> None:
        seen[start:stop] += 1

    workers.slices(len(seen), fill)
    assert (seen == 1).all()


def test_the_first_error_in_order_is_raised() -> None:
    workers = Workers(3)
    second_failed = threading.Event()

    def run(item: int, is_stopped: Callable[[], bool]) -> int:
        if item == 0:
            assert second_failed.wait(10)
            raise ValueError("0")
        if item == 1:
            second_failed.set()
            raise ValueError("1")
        return item

    for _ in range(20):
        second_failed.clear()
        with pytest.raises(ValueError, match="0"):
            workers.map(run, range(6))
    assert workers.map(lambda item, _: item, range(6)) == list(range(6))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_results_that_are_made_ahead(count: int) -> None:
    started, window = [], 3

    def run(item: int) -> int:
        started.append(item)
        return item * item

    for taken, result in enumerate(Workers(count).ahead(run, range(50), window)):
        assert result == taken * taken
        assert max(started) < taken + window, "a result is overwritten before it was used"
    assert sorted(started) == list(range(50))


def test_what_is_ahead_ends_with_the_caller() -> None:
    def run(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    with pytest.raises(ValueError, match="three"):
        list(Workers(2).ahead(run, range(9), 4))
    results = Workers(2).ahead(run, range(9), 2)
    assert next(results) == 0
    results.close()
    assert next(results, None) is None


def test_later_parts_end_when_one_has_failed() -> None:
    workers = Workers(2)
    started = threading.Event()

    def run(item: int, is_stopped: Callable[[], bool]) -> None:
        if item == 0:
            assert started.wait(10)
            raise ValueError("the first")
        started.set()
        while not is_stopped():
            pass

    with pytest.raises(ValueError, match="the first"):
        workers.map(run, range(2))


def test_a_forked_process_has_workers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(2)
    assert workers.map(lambda item, _: item, range(4)) == [0, 1, 2, 3]
    before = workers._threads()
    monkeypatch.setattr(workers_module.os, "getpid", lambda: -1)
    assert workers._threads() is not before
    assert workers.map(lambda item, _: item, range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("words", [1, 2])
def test_tallies_are_united(words: int) -> None:
    rng = seeded_arrays("united", words)
    expected: dict[tuple[int, ...], int] = {}
    tallies = []
    for _ in range(5):
        tally = Tally(words)
        rows = rng.integers(0, 300, (words, 40_000 if words == 2 else 200))
        for row in rows.T.tolist():
            expected[tuple(row)] = expected.get(tuple(row), 0) + 3
        tally.add(np.ascontiguousarray(rows), 3)
        tallies.append(tally)
    for count in (1, 3):
        copies = [Tally(words, t.rows.copy(), t.sums.copy()) for t in tallies]
        total = united(copies, Workers(count))
        found = dict(zip(map(tuple, total.rows.T.tolist()), total.sums.tolist(), strict=True))
        assert found == expected
        assert list(found) == sorted(found)


def test_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_cores", lambda: 6)
    monkeypatch.delenv("TIDELOG_THREADS", raising=False)
    assert threads_wanted(None) == threads_wanted(0) == 6
    assert threads_wanted(3) == 3
    monkeypatch.setenv("TIDELOG_THREADS", "2")
    assert threads_wanted(None) == 2
    assert threads_wanted(5) == 5
    monkeypatch.setenv("TIDELOG_THREADS", "0")
    assert threads_wanted(None) == 6
    for text in ("two", "-1", "1.5"):
        monkeypatch.setenv("TIDELOG_THREADS", text)
        with pytest.raises(tidelog.UsageError, match="TIDELOG_THREADS is a number of threads"):
            threads_wanted(None)
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(tidelog.UsageError, match="`threads` is a number of threads"):
            threads_wanted(wrong)  # type: ignore[arg-type]
    with pytest.raises(tidelog.UsageError, match="`threads`"):
        tidelog.Database(CLOSURE, threads=-2)
