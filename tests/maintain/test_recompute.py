"""Recursion that binds the groups of its own aggregates: the kernel against the oracle."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import tidelog
from tests.generators.grouped_recursion import EPOCHS, FAILING, REGISTERED, grouped_case
from tests.generators.programs import RandomCase, check_cases
from tests.maintain.agreeing import assert_same_changes
from tests.maintain.comparing import Comparison, must_fail
from tests.seeds import case_seeds, seed_blocks
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.plan.lower import lower


def picky(values: frozenset[int]) -> int:
    if 7 in values:
        raise KeyError("seven")
    return len(values)


AGGREGATES = (
    tidelog.Group(operator.xor, lambda a: a, 0),
    tidelog.Semigroup(lambda a, b: b),
    tidelog.SetFunction(lambda values: max(values) - min(values)),
    tidelog.SetFunction(picky),
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    names = (*REGISTERED, *FAILING)
    try:
        for name, algebra in zip(names, AGGREGATES, strict=True):
            tidelog.aggregate(name, algebra, takes="number", gives="number")
        yield
    finally:
        for name in names:
            tidelog.forget_aggregate(name)


SEEN: Counter[str] = Counter()


def compare(case: RandomCase) -> None:
    """Assert that the kernel and the oracle have the same rows and the same changes."""
    program = Program.parse(case.program)
    given = {name: set(rows) for name, rows in case.facts.items()}
    SEEN["programs"] += 1
    try:
        reference = ReferenceEngine(program, given)
    except tidelog.DataError:
        SEEN["first evaluations that fail"] += 1
        must_fail(lambda: KernelEngine(program, given))
        reference, given = ReferenceEngine(program, {}), {}
    kernel = KernelEngine(program, given)
    SEEN["recomputed"] += any(strategy.name == "recompute" for strategy in kernel.strategies)
    for epoch in case.epochs:
        inserted = {name: set(adds) for name, (adds, _) in epoch.items()}
        deleted = {name: set(removes) for name, (_, removes) in epoch.items()}
        SEEN["epochs"] += 1
        try:
            wanted = reference.apply(inserted, deleted)
        except tidelog.DataError:
            SEEN["epochs that fail"] += 1
            must_fail(partial(kernel.apply, inserted, deleted))
            assert all(kernel.rows(name) == reference.rows(name) for name in program.relations)
            continue
        found = kernel.apply(inserted, deleted)
        SEEN["changed recursions"] += "p" in found.changes
        SEEN["rounds"] += sum(layer.levels for layer in kernel.last_epoch.layers)
        assert_same_changes(program, found, wanted)
        assert all(kernel.rows(name) == reference.rows(name) for name in program.relations)
    kernel.check()


@pytest.mark.parametrize("seeds", seed_blocks(120, 20, offset=80_000))
def test_random_recursions(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    SEEN.clear()
    check_cases(seeds, compare, grouped_case)
    print(dict(SEEN))
    assert SEEN["programs"] == len(seeds)
    assert SEEN["recomputed"] >= 0.5 * len(seeds)
    assert SEEN["epochs"] == EPOCHS * len(seeds)
    assert SEEN["changed recursions"] >= 0.5 * len(seeds)
    assert SEEN["rounds"] >= len(seeds)
    assert SEEN["epochs that fail"] < SEEN["epochs"] / 2


@pytest.mark.parametrize("number", range(3))
def test_state_and_levels(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every epoch the state is that of a fresh evaluation, down to the private relations."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    check_cases(case_seeds(1, offset=81_000 + number), Comparison().check, grouped_case)


# --- regressions --------------------------------------------------------------------------------


def engines(text: str, **facts: set[tuple[int, ...]]) -> tuple[KernelEngine, ReferenceEngine]:
    program = Program.parse(text)
    kernel, reference = KernelEngine(program, facts), ReferenceEngine(program, facts)
    assert "recompute" in {strategy.name for strategy in kernel.strategies}
    for name in program.relations:
        assert kernel.rows(name) == reference.rows(name)
    return kernel, reference


COUNTED = """
    .decl e(z: number)
    .decl p(x: number)
    p(0).
    p(y) :- p(x), n = count : { e(z), z > x }, y = x + n, y < 100.
"""


def test_a_group_asks_for_the_next() -> None:
    kernel, _ = engines(COUNTED, e={(1,), (3,), (7,)})
    assert kernel.rows("p") == {(0,), (3,), (4,), (5,), (6,), (7,)}
    report = kernel.last_epoch.layer("p")
    assert report is not None
    assert (report.strategy, report.levels) == ("recompute", 6)
    effects = kernel.apply({}, {"e": {(7,)}})
    assert effects.changes["p"].inserted == {(2,)}
    assert effects.changes["p"].deleted == {(4,), (5,), (6,), (7,)}


def test_what_it_does_not_read_does_not_matter() -> None:
    kernel, _ = engines(COUNTED + ".decl other(x: number)", e={(1,)})
    kernel.apply({"other": {(1,)}}, {})
    report = kernel.last_epoch.layer("p")
    assert report is not None
    assert report.choice == "nothing to do"


def test_an_epoch_that_fails_leaves_no_trace() -> None:
    """A sum is too large in the third round; what was computed until then is forgotten."""
    kernel, reference = engines(
        """
        .decl e(z: number, w: number)
        .decl p(x: number)
        p(0).
        p(y) :- p(x), s = sum w : { e(z, w), z > x }, x < 3, y = x + 1, s != y.
        .decl above(n: number)
        above(n) :- n = count : { p(_) }.
        """,
        e={(1, 1), (9, 5)},
    )
    before = kernel.rows("p"), kernel.rows("above")
    for _ in range(2):
        with pytest.raises(tidelog.EvaluationError, match="the sum of 2 values overflows"):
            kernel.apply({"e": {(3, 2**63 - 1), (2, -100)}}, {})
        assert (kernel.rows("p"), kernel.rows("above")) == before
        kernel.check()
    kernel.apply({"e": {(3, 2**63 - 1)}}, {"e": {(9, 5), (1, 1)}})
    reference.apply({"e": {(3, 2**63 - 1)}}, {"e": {(9, 5), (1, 1)}})
    assert kernel.rows("p") == reference.rows("p")


def test_a_failure_that_the_rest_of_the_rule_excuses() -> None:
    kernel, reference = engines(
        """
        .decl e(z: number, w: number)
        .decl no(x: number)
        .decl p(x: number)
        p(0).
        p(y) :- p(x), !no(x), s = sum w : { e(z, w), z > x }, n = count : { e(z, _), z > x },
            n < 2, y = (x + s) band 7.
        """,
        e={(5, 2**63 - 1), (6, 2**63 - 1)},
        no={(3,)},
    )
    assert kernel.rows("p") == {(0,)}  # two rows: the sum may be too large
    kernel.apply({"e": {(7, 3)}}, {"e": {(5, 2**63 - 1), (6, 2**63 - 1)}})
    reference.apply({"e": {(7, 3)}}, {"e": {(5, 2**63 - 1), (6, 2**63 - 1)}})
    assert kernel.rows("p") == reference.rows("p") == {(0,), (3,)}


@pytest.mark.parametrize("guard", ["x / 2 > 5", "2 < count : { e(z, _), z > x }", "12 / x < 1"])
def test_rows_that_fail_in_groups_that_nobody_asks_for(guard: str) -> None:
    """docs/decisions/0001, where what excuses the failure can fail as well or is an aggregate."""
    kernel, reference = engines(
        f"""
        .decl e(z: number, w: number)
        .decl p(x: number)
        p(x) :- e(x, _).
        p(y) :- p(x), n = sum k : {{ e(z, w), z <= x, k = 10 / w }}, {guard}, y = (x + n) band 31.
        """,
        e={(20, 1), (30, 2)},
    )
    for rows in ({(21, 3)}, {(1, 0)}, {(0, 2)}, {(2, 0)}):
        try:
            reference.apply({"e": rows}, {})
        except tidelog.EvaluationError:
            must_fail(partial(kernel.apply, {"e": rows}, {}))
        else:
            kernel.apply({"e": rows}, {})
        assert kernel.rows("p") == reference.rows("p")


@pytest.mark.parametrize("n", [20, 40, 62])
def test_values_that_are_wider_than_all_before(n: int) -> None:
    """Domains are widened in the middle of a round; then the epoch is tried again."""
    kernel, reference = engines(
        """
        .decl e(z: number)
        .decl p(x: number)
        p(y) :- e(y), y < 3.
        p(y) :- p(x), y = max z : { e(z), z > x, z < 2 * x + 4 }.
        """,
        e={(1,), (4,)},
    )
    more = {(2**i,) for i in range(n)}
    kernel.apply({"e": more}, {})
    reference.apply({"e": more}, {})
    assert kernel.rows("p") == reference.rows("p")
    assert len(kernel.rows("p")) > n - 2
    kernel.check()


def test_two_values_for_one_key_tell_where_they_come_from() -> None:
    text = """
        .decl e(z: number)
        .decl f[x: number]: number
        .decl p(x: number)
        p(0).
        f[x] = n :- p(x), n = count : { e(z), z > x }.
        f[x] = 1 :- e(x).
        p(y) :- f(x, n), y = x + n, y < 9.
    """
    kernel, _ = engines(text)
    for evaluate in (
        lambda: kernel.apply({"e": {(1,)}}, {}),
        lambda: KernelEngine(Program.parse(text), {"e": {(1,)}}),
    ):
        with pytest.raises(tidelog.FunctionalConflict) as failure:
            evaluate()
        assert "= 0: derived by f[x] = n :- p(x), n = count" in str(failure.value)
        assert "= 1: derived by f[x] = 1 :- e(x)." in str(failure.value)
    assert kernel.rows("f") == {(0, 0)}
    kernel.check()


def test_the_projection_of_a_recursion_is_seen_by_others() -> None:
    """The groups of the second aggregate are what the first gives: they read columns of q."""
    kernel, reference = engines(
        """
        .decl e(z: number)
        .decl q(x: number, y: number)
        q(0, 0).
        q(n, y) :- q(x, _), m = count : { e(z), z > x }, n = max z : { e(z), z < m + x }, y = m.
        .decl alone(x: number)
        alone(x) :- e(x), !q(x, _).
        """,
        e={(1,), (2,), (5,)},
    )
    for inserted, deleted in (({(7,), (3,)}, {(1,)}), ({(1,)}, {(5,)}), (set(), {(1,), (2,)})):
        kernel.apply({"e": inserted}, {"e": deleted})
        reference.apply({"e": inserted}, {"e": deleted})
        for name in ("q", "alone"):
            assert kernel.rows(name) == reference.rows(name)
    kernel.check()


def test_an_aggregate_that_does_not_read_the_recursion_stays_outside() -> None:
    """It is maintained by its own strategy, also if its failures are judged in the recursion."""
    program = Program.parse("""
        .decl e(z: number, w: number)
        .decl p(x: number)
        p(0).
        p(y) :-
            p(x), s = sum w : { e(x, w) }, n = count : { e(z, _), z > x }, n > s, n > 1,
            y = x + 1, y < 9.
    """)
    (layer,) = (layer for layer in lower(program).layers if layer.recompute is not None)
    assert layer.recompute is not None
    assert layer.relations == ("p",)
    assert len(layer.recompute.groups) == 1
    assert any(inner.errors_of in layer.recompute.reads for inner in layer.recompute.program.layers)
    kernel = KernelEngine(program, {"e": {(1, 5), (2, 1), (3, 1)}})
    assert kernel.rows("p") == {(0,), (1,)}
    with pytest.raises(tidelog.EvaluationError, match="the sum of 2 values overflows"):
        kernel.apply({"e": {(0, 2**63 - 1), (0, 1), (4, 4)}}, {})
    kernel.apply({"e": {(5, 2**63 - 1), (5, 1)}}, {})  # nobody asks for 5
    assert kernel.rows("p") == {(0,), (1,)}


def test_a_state_in_files(tmp_path: Path) -> None:
    with tidelog.Database(COUNTED, facts={"e": [(1,), (3,)]}, path=tmp_path) as db:
        before = set(db.view("p"))
    with tidelog.Database(COUNTED, path=tmp_path) as db:
        assert set(db.view("p")) == before
        with db.transaction() as tx:
            tx.insert("e", [(7,)])
        assert set(db.view("p")) == {(0,), (3,), (4,), (5,), (6,), (7,)}
