"""Virtual views against the oracle: random programs, of which random relations are not stored.

Their net changes are those that stored views would have, and so are their rows when they are read.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.stored_reads import StoredReader
from tidelog.engine.tree_reads import stored_rows
from tidelog.logic.program import Program
from tidelog.plan import order, virtual
from tidelog.reference import evaluate
from tidelog.values.types import Row

PROGRAMS = sample(18, 3000)
BLOCK = 6


@pytest.fixture(autouse=True)
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: planning takes most of the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


def virtual_case(seed: int) -> RandomCase:
    """Return a random case in which some relations that rules derive are virtual."""
    case = kernel_case(seed)
    rng = random.Random(f"virtual {seed}")
    functional = {d.name for d in case.declarations if d.functional}
    derived = sorted(Program.parse(case.program).derived - functional)
    chosen = [name for name in derived if rng.random() < 0.6]
    return replace(case, types=(*case.types, *(f".view {n}(virtual=true)" for n in chosen)))


class VirtualComparison:
    """Replays cases, and counts what has happened in them."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that the kernel and the oracle agree, epoch by epoch."""
        program = Program.parse(case.program)
        self.seen["programs"] += 1
        given = {name: set(case.facts.get(name, ())) for name in program.relations}
        try:
            before = evaluate(program, given)
            kernel = KernelEngine(program, given)
        except tidelog.ProgramError:
            self.seen["refused"] += 1
            return
        except tidelog.DataError:
            # What is not computed does not fail.
            self.seen["programs that fail"] += 1
            return
        self.seen["restricted"] += sum("@where@" in name for name in kernel.catalog.relations)
        self._compare(kernel, before)
        for epoch in case.epochs:
            inserted = {n: set(adds) - set(removes) for n, (adds, removes) in epoch.items()}
            deleted = {n: set(removes) - set(adds) for n, (adds, removes) in epoch.items()}
            given = {
                name: (rows - deleted.get(name, set())) | inserted.get(name, set())
                for name, rows in given.items()
            }
            try:
                after = evaluate(program, given)
            except tidelog.DataError:
                self.seen["epochs that fail"] += 1
                return
            changes = kernel.apply(inserted, deleted).changes
            for name, rows in after.items():
                change = changes.get(name)
                gained = change.inserted if change else frozenset()
                lost = change.deleted if change else frozenset()
                assert gained == rows - before[name], f"inserted into {name}"
                assert lost == before[name] - rows, f"deleted from {name}"
            self._compare(kernel, after)
            self._count(kernel)
            before = after

    def _compare(self, kernel: KernelEngine, expected: Mapping[str, frozenset[Row]]) -> None:
        for name, rows in expected.items():
            assert kernel.rows(name) == rows, f"rows of {name}"
            reader = kernel.reader(name)
            assert set(reader.rows()) == rows, f"reading {name}"
            for row in sorted(rows, key=repr)[:1]:
                assert row in reader, f"{row} in {name}"
                assert set(reader.prefix(row[:1])) == {r for r in rows if r[:1] == row[:1]}
        kernel.check()

    def _count(self, kernel: KernelEngine) -> None:
        for layer in kernel.last_epoch.layers:
            if layer.strategy == "virtual":
                self.seen["updates"] += layer.choice == "update"
                self.seen["propagated"] += layer.propagated
                self.seen["filtered"] += layer.filtered
                self.seen["disqualified"] += layer.disqualified


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=83_000))
def test_random_virtual_views(seeds: range) -> None:
    comparison = VirtualComparison()
    check_cases(seeds, comparison.check, virtual_case)
    print(dict(comparison.seen))
    assert comparison.seen["updates"] > len(seeds)
    assert comparison.seen["refused"] < len(seeds) / 2


# --- the example of the paper -------------------------------------------------------------------

CLOSURE = """
    .decl edge(x: number, y: number)
    .decl tc(x: number, y: number)
    .view tc(virtual=true)
    tc(x, y) :- edge(x, y).
    tc(x, y) :- tc(x, w), edge(w, y).
"""
A, B, C, D, E = range(5)


def figure_2(n: int) -> list[tuple[int, int]]:
    """Return the sample graph: two ways from a to d, and n edges from there."""
    return [(A, B), (A, C), (B, D), (C, D), *((D, E + i) for i in range(n))]


def closure(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the transitive closure."""
    rows, new = set(edges), set(edges)
    while new:
        new = {(x, z) for x, y in new for w, z in edges if w == y} - rows
        rows |= new
    return rows


def deleted_and_rederived(edges: set[tuple[int, int]], gone: tuple[int, int]) -> int:
    """Return how many rows delete-and-rederive filters: it deletes too many, then asks for each."""
    rows = closure(edges)
    over = {gone} & rows
    new = set(over)
    while new:
        found = {(x, z) for x, y in new for w, z in edges if w == y}
        found |= {(x, gone[1]) for x, y in rows if y == gone[0]}
        new = (found & rows) - over
        over |= new
    return len(over)


@pytest.mark.parametrize("n", [10, 100, 1_000, 10_000, 100_000])
def test_rows_of_figure_3(n: int) -> None:
    edges = figure_2(n)
    db = tidelog.Database(CLOSURE, facts={"edge": edges})
    with db.transaction() as tx:
        tx.delete("edge", [(B, D)])
    layer = db.last_epoch.layer("tc")
    assert layer is not None
    # tc(b, d), tc(b, e1) .. tc(b, en), and tc(a, d), which is disqualified.
    assert (layer.propagated, layer.filtered, layer.disqualified) == (n + 2, n + 2, 1)
    assert len(tx.changes["tc"].deleted) == n + 1
    assert db.memory["tc"] == 0


@pytest.mark.parametrize("n", [10, 100])
def test_fewer_rows_are_filtered_than_by_delete_and_rederive(n: int) -> None:
    edges = set(figure_2(n))
    db = tidelog.Database(CLOSURE, facts={"edge": edges})
    with db.transaction() as tx:
        tx.delete("edge", [(B, D)])
    layer = db.last_epoch.layer("tc")
    assert layer is not None
    assert set(tx.changes["tc"].deleted) == closure(edges) - closure(edges - {(B, D)})
    assert deleted_and_rederived(edges, (B, D)) == 2 * n + 2
    assert layer.filtered == n + 2


def test_an_inserted_fact_is_proved_once_for_each_new_row() -> None:
    db = tidelog.Database(CLOSURE, facts={"edge": [(i, i + 1) for i in range(50)]})
    with db.transaction() as tx:
        tx.insert("edge", [(10, 60), (60, 61)])
    layer = db.last_epoch.layer("tc")
    assert layer is not None
    assert len(tx.changes["tc"].inserted) == 11 + 11 + 1
    assert layer.propagated == layer.filtered == 23
    assert layer.disqualified == 0


# --- what is not propagated ---------------------------------------------------------------------


def test_updates_that_no_constant_meets_are_irrelevant() -> None:
    db = tidelog.Database("""
        .decl edge(x: symbol, y: symbol, n: number)
        .decl near(y: symbol)
        .view near(virtual=true)
        near(y) :- edge("a", y, n), n < 10.
    """)
    with db.transaction() as tx:
        tx.insert("edge", [("b", "c", 1), ("a", "c", 20)])
    layer = db.last_epoch.layer("near")
    assert layer is not None
    assert (layer.propagated, layer.filtered, layer.touched) == (0, 0, 0)
    assert not tx.changes["near"]
    assert layer.choice == "update"  # n < 10 was tested
    with db.transaction() as tx:
        tx.insert("edge", [("b", "d", 1), ("c", "d", 1)])
    layer = db.last_epoch.layer("near")
    assert layer is not None
    assert (layer.choice, layer.touched) == ("nothing to do", 0)
    assert layer.why == "no row that has changed has the constants of its rules"
    with db.transaction() as tx:
        tx.insert("edge", [("b", "e", 1), ("a", "e", 1)])
    assert list(tx.changes["near"].inserted) == [("e",)]


def test_an_atom_without_constants_meets_every_row() -> None:
    db = tidelog.Database("""
        .decl edge(x: symbol, y: symbol, n: number)
        .decl near(x: symbol, y: symbol)
        .view near(virtual=true)
        near("a", y) :- edge("a", y, 1).
        near("b", y) :- edge("b", y, 2), edge(y, _, 3).
        near(x, "c") :- edge(x, "c", _), !edge(x, "d", 4).
    """)
    for row, views in (
        (("b", "e", 1), []),
        (("a", "e", 1), [("a", "e")]),
        (("b", "e", 2), []),
        (("e", "f", 3), [("b", "e")]),
        (("f", "c", 9), [("f", "c")]),
    ):
        with db.transaction() as tx:
            tx.insert("edge", [row])
        assert list(tx.changes["near"].inserted) == views
    with db.transaction() as tx:
        tx.insert("edge", [("f", "d", 4)])
    assert list(tx.changes["near"].deleted) == [("f", "c")]


def test_a_change_of_what_is_negated_has_the_other_sign() -> None:
    db = tidelog.Database(
        """
        .decl node(x: number)
        .decl edge(x: number, y: number)
        .decl last(x: number)
        .view last(virtual=true)
        last(x) :- node(x), !edge(x, _).
        """,
        facts={"node": [(1,), (2,)], "edge": [(1, 2)]},
    )
    with db.transaction() as tx:
        tx.insert("edge", [(2, 1)])
    assert list(tx.changes["last"].deleted) == [(2,)]
    with db.transaction() as tx:
        tx.delete("edge", [(2, 1), (1, 2)])
    assert list(tx.changes["last"].inserted) == [(1,), (2,)]
    assert db.memory["last"] == 0
    assert list(db.view("last")) == [(1,), (2,)]


def test_nothing_is_kept_of_an_epoch_that_fails() -> None:
    db = tidelog.Database(
        """
        .decl edge(x: number, y: number)
        .decl tc(x: number, y: number)
        .decl inverse(x: number, y: number)
        .view tc(virtual=true)
        tc(x, y) :- edge(x, y).
        tc(x, y) :- tc(x, w), edge(w, y).
        inverse(x, 10 / y) :- edge(x, y).
        """,
        facts={"edge": [(1, 2)]},
    )
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.insert("edge", [(2, 0)])
    assert list(db.view("tc")) == [(1, 2)]
    with db.transaction() as tx:
        tx.insert("edge", [(2, 3)])
    assert list(tx.changes["tc"].inserted) == [(1, 3), (2, 3)]


@pytest.mark.parametrize("is_restricted", [True, False])
def test_constants_restrict_what_is_made_for_a_view(
    is_restricted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial evaluation: the constants of the readers are pushed down through the rules."""
    if not is_restricted:
        monkeypatch.setattr(virtual, "partially_evaluated", lambda lowered, hidden: lowered)
    db = tidelog.Database("""
        .decl edge(x: symbol, y: symbol, n: number)
        .decl node(x: symbol)
        .decl apart(x: symbol)
        .view apart(virtual=true)
        apart(x) :- node(x), !edge("a", x, _), !edge(x, "b", _).
        apart(x) :- node(x), n = count : { edge(x, _, _), !edge("c", x, _) }, n = 1.
    """)
    with db.transaction() as tx:
        tx.insert("node", [("x",), ("y",), ("z",)])
    counted = []
    for inserted in ([("p", f"q{i}", i) for i in range(20)], [("a", "x", 1), ("y", "b", 1)]):
        with db.transaction() as tx:
            tx.insert("edge", inserted)
        layers = [layer for layer in db.last_epoch.layers if "edge@" in layer.relations[0]]
        counted.append(sum(layer.filtered for layer in layers))
        assert all(layer.propagated == layer.filtered for layer in layers)
    assert list(tx.changes["apart"].deleted) == [("x",)]
    assert ("y",) in db.view("apart")
    assert counted == ([0, 2] if is_restricted else [20, 2])


# --- what cannot be virtual ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            ".decl q(x: number) .decl p[x: number]: number p[x] = 1 :- q(x). .view p(virtual=true)",
            "`p` cannot be virtual: that it has one value for each key is checked by its rows",
        ),
        (
            ".decl e(x: number) .decl p(x: number) p(0)."
            " p(y) :- p(x), x < 5, n = count : { e(z), z > x }, y = x + n. .view p(virtual=true)",
            "`p` cannot be virtual: `p` is re-evaluated as a whole",
        ),
        (
            ".decl e(x: number) .decl p(x: number) .decl q(x: number) p(x) :- e(x)."
            ' q(x) :- p(x). .view p(virtual=true) .view q(strategy="elastic")',
            "`p` cannot be virtual: `elastic` maintains stored rows, and is asked for `q`",
        ),
    ],
)
def test_refused_with_a_reason_at_the_directive(program: str, why: str) -> None:
    with pytest.raises(tidelog.ProgramError) as refused:
        tidelog.Database(program)
    assert why in str(refused.value)
    assert "bad-view" in str(refused.value)


def test_rows_with_values_that_no_domain_has_room_for() -> None:
    program = Program.parse("""
        .decl q(x: number)
        .decl p(x: number)
        .view p(virtual=true)
        p(x * 1000) :- q(x).
        p(-x) :- q(x).
    """)
    engine = KernelEngine(program, {"q": {(1,), (7,)}})
    expected = {(1000,), (7000,), (-1,), (-7,)}
    rows = stored_rows(engine.catalog, program.relations["p"])
    reader = StoredReader(engine.state.codec, rows, program.relations["p"])
    assert set(reader.rows()) == expected == engine.rows("p")
    assert set(engine.apply({"q": {(9,)}}, {}).changes["p"].inserted) == {(9000,), (-9,)}
