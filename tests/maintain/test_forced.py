"""Forced strategies: random programs against the oracle, and what each strategy does."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.generators.programs import check_cases
from tests.maintain.comparing import Comparison, Prepare, always_update, random_strategies
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.persist.state_tools import compact, verify
from tidelog.plan import order

PROGRAMS = sample(50, 2000)
BLOCK = 25

TWO = """
.decl edge(x: number, y: number)
.decl two(x: number, z: number)
two(x, z) :- edge(x, y), edge(y, z).
"""
REACH = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""
MUTUAL = """
.decl zero, e(x: number)
.decl even, odd(x: number)
even(x) :- zero(x).
odd(x + 1) :- even(x), e(x).
even(x + 1) :- odd(x), e(x).
"""
GROUPED = """
.decl e(x: number)
.decl p(x: number)
p(0).
p(y) :- p(x), x < 5, n = count : { e(z), z > x }, y = x + n.
"""


COPY = """
.decl edge(x: number, y: number)
.decl copy(x: number, y: number)
copy(y, x) :- edge(x, y).
"""
COUNTED = """
.decl e(x: number)
.decl p(x: number, y: number)
p(x, y) :- e(x), y = range(0, x).
"""


@pytest.mark.parametrize("prepare", [None, always_update], ids=["budget", "update"])
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=90_000))
def test_random_programs(
    seeds: range, prepare: Prepare | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    comparison = Comparison(prepare, random_strategies)
    check_cases(seeds, comparison.check, kernel_case)
    print(dict(comparison.seen))
    assert comparison.seen["programs"] == len(seeds)
    for strategy in ("counting: update", "elastic: update", "recompute: bootstrap"):
        assert comparison.seen[strategy] >= 5


# --- what is done -------------------------------------------------------------------------------


def strategy_of(kernel: KernelEngine, relation: str) -> str:
    (found,) = (s.name for layer, s in kernel.layers if relation in layer.relations)
    return found


@pytest.mark.parametrize("strategy", ["counting", "elastic", "recompute", "leapfrog"])
def test_directive_and_argument_force_a_strategy(strategy: str) -> None:
    by_directive = tidelog.Database(f'{TWO} .view two(strategy="{strategy}")')
    by_argument = tidelog.Database(TWO, strategy={"two": strategy})
    for db in (by_directive, by_argument):
        assert strategy_of(kernel_of(db), "two") == strategy
        with db.transaction() as tx:
            tx.insert("edge", [(1, 2), (2, 3), (2, 4)])
        assert set(tx.changes["two"].inserted) == {(1, 3), (1, 4)}
        with db.transaction() as tx:
            tx.delete("edge", [(2, 4)])
        assert set(tx.changes["two"].deleted) == {(1, 4)}


def test_a_join_tree_is_forced_and_forbidden() -> None:
    text = """
        .decl edge(x: number, y: number)
        .decl two(x: number, y: number, z: number)
        two(x, y, z) :- edge(x, y), edge(y, z).
        .decl up(x: number, y: number, z: number)
        up(x, y, z) :- edge(x, y), edge(x, z), y < z.
    """
    usual = tidelog.Database(text)
    other = tidelog.Database(text, strategy={"two": "theta-tree", "up": "counting"})
    assert [strategy_of(kernel_of(usual), name) for name in ("two", "up")] == [
        "counting", "theta-tree",
    ]  # fmt: skip
    assert [strategy_of(kernel_of(other), name) for name in ("two", "up")] == [
        "theta-tree", "counting",
    ]  # fmt: skip
    for edges in ([(1, 2), (2, 3), (1, 3)], [(1, 4), (2, 5), (4, 1)]):
        for db in (usual, other):
            with db.transaction() as tx:
                tx.insert("edge", edges)
        for name in ("two", "up"):
            assert set(usual.view(name)) == set(other.view(name)) != set()
    lines = other.explain().splitlines()
    assert any(line.startswith("  maintained by theta-tree: forced; the default") for line in lines)
    assert any(
        line.startswith("  maintained by counting: forced; the default is theta-tree")
        for line in lines
    )


def test_the_argument_goes_before_the_directive() -> None:
    db = tidelog.Database(TWO + '.view two(strategy="elastic")', strategy={"two": "recompute"})
    assert strategy_of(kernel_of(db), "two") == "recompute"


def test_recompute_evaluates_again_whenever_something_has_changed() -> None:
    text = REACH + ".decl other(x: number)"
    db = tidelog.Database(text, facts={"edge": [(1, 2)]}, strategy={"reach": "recompute"})
    for row in [(2, 3), (3, 4)]:
        with db.transaction() as tx:
            tx.insert("edge", [row])
        report = db.last_epoch.layer("reach")
        assert report is not None
        assert (report.choice, report.why) == ("bootstrap", "it is always re-evaluated")
    with db.transaction() as tx:
        tx.insert("other", [(1,)])
    report = db.last_epoch.layer("reach")
    assert report is not None
    assert report.choice == "nothing to do"
    assert len(db.view("reach")) == 6


def test_a_strategy_of_one_relation_is_that_of_its_recursion() -> None:
    db = tidelog.Database(MUTUAL, strategy={"odd": "recompute"})
    assert strategy_of(kernel_of(db), "even") == "recompute"
    with db.transaction() as tx:
        tx.insert("zero", [(0,)])
        tx.insert("e", [(0,), (1,)])
    assert (set(db.view("even")), set(db.view("odd"))) == ({(0,), (2,)}, {(1,)})


def test_functional_conflicts_are_traced_in_what_is_re_evaluated() -> None:
    text = ".decl a(x: number, y: number) .decl f[x: number]: number f[x] = y :- a(x, y)."
    db = tidelog.Database(text, facts={"a": [(1, 2)]}, strategy={"f": "recompute"})
    said = r"derived by f\[x\] = y :- a\(x, y\)"
    with pytest.raises(tidelog.FunctionalConflict, match=said), db.transaction() as tx:
        tx.insert("a", [(1, 3)])
    assert set(db.view("f")) == {(1, 2)}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "strategy", "message"),
    [
        (REACH, {"reach": "counting"},
         "`counting` cannot maintain `reach`, which is recursive: `reach` needs `reach`"),
        (MUTUAL, {"odd": "counting"},
         "`counting` cannot maintain `odd`, which is recursive: `odd` needs `even` needs `odd`"),
        (MUTUAL, {"odd": "elastic", "even": "recompute"},
         "`odd` and `even` depend on each other,"
         " and cannot have two strategies, `elastic` and `recompute`"),
        (TWO, {"edge": "counting"}, "`edge` has no rules, so no strategy maintains it"),
        (REACH, {"reach": "theta-tree"},
         "`theta-tree` cannot maintain `reach`, which is recursive: `reach` needs `reach`"),
        (TWO, {"two": "theta-tree"},
         "`theta-tree` cannot maintain `two`: its join is not free-connex"),
        (REACH, {"reach": "leapfrog"},
         "`leapfrog` cannot maintain `reach`, which is recursive: `reach` needs `reach`"),
        (COPY, {"copy": "leapfrog"},
         "`leapfrog` cannot maintain `copy`: its rule only copies rows"),
        (COUNTED, {"p": "leapfrog"},
         "`leapfrog` cannot maintain `p`: its rule counts through a range"),
        (TWO, {"two": "elastik"}, "there is no strategy `elastik`"),
        (TWO, {"too": "elastic"}, "relation `too` is not declared; did you mean `two`?"),
        (GROUPED, {"p": "elastic"},
         "`elastic` cannot maintain `p`:"
         " an aggregate in it is grouped by what only its recursion binds"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_what_cannot_be_done_is_an_error(
    text: str, strategy: dict[str, str], message: str, engine: str
) -> None:
    with pytest.raises(tidelog.UsageError) as caught:
        tidelog.Database(text, strategy=strategy, engine=engine)
    assert str(caught.value).splitlines()[0] == message


def test_a_directive_that_lowering_refuses_has_its_position() -> None:
    program = Program.parse(GROUPED + '.view p(strategy="elastic")', "p.dl")
    with pytest.raises(tidelog.ProgramError, match=r"p\.dl:6:7: error: `elastic` cannot maintain"):
        tidelog.Database(program)


def test_a_rule_with_a_mistake_is_a_rule() -> None:
    for rule in ("two(x, z) :- edge(x, y), edgy(y, z).", "two(x, z) :- edge(x, y) edge(y, z)."):
        text = TWO.replace("two(x, z) :- edge(x, y), edge(y, z).", rule)
        with pytest.raises(tidelog.ProgramError) as caught:
            Program.parse(text + '.view two(strategy="elastic")')
        assert [d.code for d in caught.value.diagnostics] != []
        assert "bad-view" not in [d.code for d in caught.value.diagnostics]


# --- explained ------------------------------------------------------------------------------------


def test_explain_shows_what_is_forced() -> None:
    aggregate = """
        .decl degree(x: number, n: number)
        degree(x, n) :- edge(x, _), n = count : { edge(x, _) }.
    """
    strategies = {"two": "recompute", "degree": "counting"}
    lines = tidelog.Database(TWO + aggregate, strategy=strategies).explain(plans=True).splitlines()
    why = "it does not depend on itself"
    assert f"  maintained by recompute: forced; the default is counting: {why}" in lines
    assert (
        f"  maintained by counting: forced, and the default: {why};"
        " the strategies of its aggregates are fixed" in lines
    )
    assert "  joins for two(x, z) :- edge(x, y), edge(y, z)." in lines
    assert not any(line.startswith("note:") for line in lines)


# --- durable --------------------------------------------------------------------------------------


def test_a_database_is_opened_with_other_strategies(tmp_path: Path) -> None:
    edges = [(1, 2), (2, 3)]
    used = ["elastic", "recompute", None, "recompute", "counting", "leapfrog", None]
    for number, strategy in enumerate(used):
        forced = {} if strategy is None else {"two": strategy}
        with tidelog.Database(TWO, path=tmp_path, strategy=forced) as db:
            assert strategy_of(kernel_of(db), "two") == (strategy or "counting")
            assert db.opened is not None
            assert bool(db.opened.rebuilt) == (number > 0)
            if number == 1:
                assert (
                    db.opened.rebuilt
                    == "`two` is maintained by `recompute` now, and no longer by `elastic`"
                )
            expected = {(x, z) for x, y in edges[: 2 + number - 1] for b, z in edges if b == y}
            assert number == 0 or set(db.view("two")) == expected
            if number == 0:
                with db.transaction() as tx:
                    tx.insert("edge", edges)
            else:
                edges.append((edges[-1][1], edges[-1][1] + 1))
                with db.transaction() as tx:
                    tx.insert("edge", edges[-1:])
            kernel_of(db).check()
        with tidelog.Database(TWO, path=tmp_path, strategy=forced) as db:
            assert db.opened is not None
            assert not db.opened.rebuilt


def test_tools_read_a_database_with_forced_strategies(tmp_path: Path) -> None:
    forced = {"reach": "recompute"}
    with tidelog.Database(REACH, path=tmp_path, strategy=forced) as db:
        with db.transaction() as tx:
            tx.insert("edge", [(1, 2), (2, 3)])
        db.snapshot()
        with db.transaction() as tx:
            tx.insert("edge", [(3, 4)])
        assert len(tidelog.Database.reader(tmp_path).view("reach")) == 6
    assert verify(tmp_path, deep=True).problems == ()
    compact(tmp_path)
    with tidelog.Database(REACH, path=tmp_path, strategy=forced) as db:
        assert db.opened is not None
        assert not db.opened.rebuilt
        assert len(db.view("reach")) == 6
