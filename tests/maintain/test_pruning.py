"""`choice-domain` and subsumption: the kernel against the oracle, and both against definitions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases
from tests.generators.pruned import EPOCHS, pruned_case
from tests.maintain.agreeing import assert_same_changes
from tests.maintain.comparing import must_fail
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Program

SEEN: Counter[str] = Counter()


def compare(case: RandomCase) -> None:
    """Assert that the kernel and the oracle agree, and that the state is that of a bootstrap."""
    program = Program.parse(case.program)
    given = {name: set(rows) for name, rows in case.facts.items()}
    SEEN["programs"] += 1
    comparable = True
    try:
        reference = ReferenceEngine(program, given)
    except tidelog.DataError:
        SEEN["first evaluations that fail"] += 1
        must_fail(lambda: KernelEngine(program, given))
        reference, given, comparable = ReferenceEngine(program, {}), {}, False
    kernel = KernelEngine(program, given)
    for epoch, after in zip(case.epochs, list(case.states())[1:], strict=True):
        inserted = {name: set(adds) for name, (adds, _) in epoch.items()}
        deleted = {name: set(removes) for name, (_, removes) in epoch.items()}
        SEEN["epochs"] += 1
        try:
            wanted = reference.apply(inserted, deleted)
        except tidelog.DataError:
            SEEN["epochs that fail"] += 1
            must_fail(partial(kernel.apply, inserted, deleted))
            assert all(kernel.rows(name) == reference.rows(name) for name in program.relations)
            return
        found = kernel.apply(inserted, deleted)
        for _, strategy in kernel.layers:
            SEEN[f"{strategy.name}: {strategy.choice.what}"] += 1
        SEEN["changes"] += "p" in found.changes
        assert_same_changes(program, found, wanted)
        for name in program.relations:
            assert kernel.rows(name) == reference.rows(name)
        kernel.check()
        if comparable:
            fresh = KernelEngine(program, after)
            for name in program.relations:
                assert kernel.levels_and_counts(name) == fresh.levels_and_counts(name)


@pytest.mark.parametrize("seeds", seed_blocks(sample(200, 4000), 40, offset=90_000))
def test_random_programs(seeds: range) -> None:
    SEEN.clear()
    check_cases(seeds, compare, pruned_case)
    assert SEEN["programs"] == len(seeds)
    assert SEEN["epochs"] >= EPOCHS * len(seeds) / 2
    assert SEEN["changes"] >= len(seeds) / 4
    assert SEEN["counting: update"] >= len(seeds) / 4
    assert SEEN["recompute: bootstrap"] >= len(seeds) / 8
    assert SEEN["epochs that fail"] < SEEN["epochs"] / 2


# --- what it means ------------------------------------------------------------------------------


def test_shortest_paths_are_those_of_bellman_and_ford() -> None:
    program = Program.parse("""
        .decl road(x: number, y: number, km: number)
        .decl dist(x: number, km: number)
        dist(0, 0).
        dist(y, d + km) :- dist(x, d), road(x, y, km).
        dist(x, d) <= dist(x, e) :- e < d.
    """)
    random = seeded("shortest paths")
    kernel = KernelEngine(program, {})
    roads: dict[tuple[int, int], int] = {}
    for _ in range(sample(20, 200)):
        old = {(*ends, km) for ends, km in roads.items()}
        for _ in range(4):
            ends = (random.randrange(8), random.randrange(8))
            if roads.pop(ends, None) is None:
                roads[ends] = random.randrange(1, 9)
        new = {(*ends, km) for ends, km in roads.items()}
        kernel.apply({"road": new - old}, {"road": old - new})
        best = {0: 0}
        for _ in range(8):
            for (x, y), km in roads.items():
                if x in best:
                    best[y] = min(best.get(y, best[x] + km), best[x] + km)
        assert kernel.rows("dist") == set(best.items())


def test_a_recursive_choice_is_made_round_by_round() -> None:
    """Breadth first, and each node has the smallest parent among those of the level before."""
    program = Program.parse("""
        .decl edge(x: number, y: number)
        .decl tree(x: number, y: number) choice-domain y
        tree(0, 0).
        tree(x, y) :- tree(_, x), edge(x, y).
    """)
    random = seeded("spanning trees")
    for _ in range(sample(20, 200)):
        edges = {(random.randrange(9), random.randrange(9)) for _ in range(random.randrange(25))}
        parent, level = {0: 0}, [0]
        while level:
            found: dict[int, int] = {}
            for x, y in sorted(edges):
                if x in level and y not in parent:
                    found.setdefault(y, x)
            parent.update(found)
            level = list(found)
        assert KernelEngine(program, {"edge": edges}).rows("tree") == {
            (x, y) for y, x in parent.items()
        }


def test_a_candidate_stays_when_what_derived_it_is_not_kept() -> None:
    """As docs/language.md says: p(1, 5) is found from p(0, 9), which p(0, 1) is better than."""
    program = Program.parse("""
        .decl p(x: number, y: number)
        p(0, 9).
        p(0, 1) :- p(0, 9).
        p(1, 5) :- p(0, 9).
        p(x, a) <= p(x, b) :- b < a.
    """)
    kernel = KernelEngine(program, {})
    assert kernel.rows("p") == {(0, 1), (1, 5)} == ReferenceEngine(program, {}).rows("p")
    database = tidelog.Database(program)
    assert "found in an earlier round" in str(database.why("p", (1, 5)))


# --- in a database ------------------------------------------------------------------------------

PROGRAM = """
.decl e(x: number, y: number)
.decl best(x: number, y: number)
best(x, y) :- e(x, y).
best(x, y) <= best(x, z) :- z < y.
.decl first(x: number, name: symbol) choice-domain x
.decl pair(x: number, y: number) choice-domain x, y
pair(x, y) :- e(x, y), best(_, y).
.decl tree(x: number, y: number) choice-domain y
tree(0, 0).
tree(x, y) :- tree(_, x), e(x, y).
"""


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_proofs(engine: str) -> None:
    database = tidelog.Database(PROGRAM, engine=engine)
    with database.transaction() as tx:
        tx.insert("e", [(0, 2), (0, 1), (1, 2), (2, 1)])
        tx.insert("first", [(1, "b"), (1, "a")])
    for name in ("best", "first", "pair", "tree"):
        for row in database.view(name):
            assert str(database.why(name, row))
    assert "there is a better row" in str(database.why_not("best", (0, 2)))
    assert "it is given, but not chosen" in str(database.why_not("first", (1, "b")))
    assert "it is derived, but not chosen" in str(database.why_not("pair", (0, 2)))
    assert "missing" in str(database.why_not("pair", (7, 7)))
    assert database.why_not("first", (1, "b")).to_json()["not kept"]


def test_rules_change() -> None:
    program = PROGRAM
    database = tidelog.Database(program)
    with database.transaction() as tx:
        tx.insert("e", [(0, 2), (0, 1), (1, 2), (2, 1), (3, 1)])
        tx.insert("best", [(5, 5), (5, 4)])
    lines = (
        ("best(x, y) :- e(y, x).", True),
        ("e(x, y) <= e(x, z) :- z < y.", True),
        ("best(x, y) <= best(z, y) :- z < x.", True),
        ("best(x, y) <= best(x, z) :- z < y.", False),
        ("best(x, y) <= best(z, y) :- z < x.", False),
        ("tree(x, y) :- tree(_, x), e(x, y).", False),
        ("e(x, y) <= e(x, z) :- z < y.", False),
        ("tree(x, y) :- tree(_, x), best(x, y).", True),
    )
    given = {"e": {(0, 2), (0, 1), (1, 2), (2, 1), (3, 1)}, "best": {(5, 5), (5, 4)}}
    for line, is_added in lines:
        before = {name: set(database.view(name)) for name in database.program.relations}
        tx = database.add_rules(line) if is_added else database.drop_rules(line)
        expected = ReferenceEngine(database.program, given)
        for name in database.program.relations:
            rows = set(database.view(name))
            assert rows == expected.rows(name), (line, name)
            change = tx.changes.get(name)
            assert rows - before[name] == (set(change.inserted) if change else set())
            assert before[name] - rows == (set(change.deleted) if change else set())


def test_a_durable_database(tmp_path: Path) -> None:
    random = seeded("durable pruning")
    given: dict[str, set[tuple[int, int]]] = {"e": set(), "best": set(), "tree": set()}
    for _ in range(3):
        with tidelog.Database(PROGRAM, path=tmp_path / "state") as database:
            for _ in range(5):
                with database.transaction() as tx:
                    for name, rows in given.items():
                        row = (random.randrange(4), random.randrange(4))
                        (tx.delete if row in rows else tx.insert)(name, [row])
                        rows ^= {row}
                expected = ReferenceEngine(database.program, given)
                for name in database.program.relations:
                    assert set(database.view(name)) == expected.rows(name)
            assert database.query("best(0, y), tree(x, y)") is not None
            database.snapshot()


def test_explain_says_what_is_kept() -> None:
    text = tidelog.Database(PROGRAM).explain()
    assert "best(x, y) <= best(x, z) :- z < y." in text
    assert "choice-domain (x), (y)" in text
    assert "its candidates are found in rounds" in text
