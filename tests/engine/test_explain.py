"""`explain`: how each view is kept and joined, with data and without."""

import sys
from pathlib import Path

import pytest

import tidelog
from tests.engine.budget import always_update
from tests.generators.programs import RandomCase, check_cases
from tests.seeds import seed_blocks
from tidelog.cli.main import main
from tidelog.database.explain import explain
from tidelog.database.explain_kernel import details_without_data
from tidelog.database.plan_words import RuleWords
from tidelog.join.compiler import BATCH
from tidelog.plan.lower import lower
from tidelog.plan.steps import Leap, Plan, Scan, Seek

REACH = """
    .decl edge(x: number, y: number)
    .decl reach(x: number, y: number)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
    .decl other(x: number)
"""


def without_data(text: str, *, plans: bool = False) -> list[str]:
    program = tidelog.Program.parse(text)
    details = details_without_data(program)
    return explain(program, "kernel", None, details, plans=plans).split("\n")


def plans_of(text: str) -> list[str]:
    """Return the lines about plans, without costs."""
    lines = without_data(text, plans=True)
    return [line.strip().partition("  (cost ")[0] for line in lines if "(cost " in line]


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.dl").write_text(REACH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidelog", "explain", "p.dl", "reach"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    lines = capsys.readouterr().out.split("\n")
    orders = lines[9:]
    assert lines[:9] == [
        "engine: kernel (every epoch follows the changes)",
        "given:",
        "  edge(x: number, y: number)",
        "stratum 1: reach (recursive, to a fixpoint)",
        "  maintained by elastic: it depends on itself",
        "  reach(x: number, y: number)",
        "    reach(x, y) :- edge(x, y).",
        "    reach(x, z) :- reach(x, y), edge(y, z).",
        "orders that joins ask for, beside the declared one:",
    ]
    assert "  reach: (y, x)" in orders


def test_plans_of_a_recursion() -> None:
    plans = plans_of(REACH)
    assert plans[:3] == [
        "at first: each edge(x, y)",
        "when edge(x, y) changes: from edge(x, y)",
        "to derive a lost row again: from reach(x, y): check edge(x, y)",
    ]
    assert plans[4:6] == [
        "when reach(x, y) changes: from reach(x, y): look up edge(y, z) by y",
        "when edge(y, z) changes: from edge(y, z): look up reach(x, y) by y",
    ]
    assert plans[6].startswith("to derive a lost row again: from reach(x, z): ")


def test_steps_that_join_atoms() -> None:
    program = tidelog.Program.parse(REACH)
    lowered = lower(program)
    (rule,) = [r for layer in lowered.layers for r in layer.rules if len(r.atoms) == 2]
    reach, edge = rule.atoms
    plan = Plan(
        (reach, edge), None, (Leap("y", (0, 1), (1, 0)), Scan(0, (0,)), Scan(1, (1,))),
        ((1, 0), (0, 1)), 1.0,
    )  # fmt: skip
    words = RuleWords(rule, lowered.relations, program.records)
    assert words.plan(plan, BATCH) == (
        "y on which reach(x, y) and edge(y, z) agree; each x of reach(x, y); each z of edge(y, z)"
    )
    plan = Plan((reach, edge), None, (Scan(0, (0, 1)), Seek(1, (0, 1))), ((0, 1), (0, 1)), 1.0)
    assert words.plan(plan, BATCH) == "each reach(x, y); check edge(y, z)"
    plan = Plan(
        (reach, edge), 0, (Scan(0, (0, 1)), Seek(1, (0,)), Scan(1, (1,))), ((0, 1), (0, 1)), 1.0
    )
    assert words.plan(plan, BATCH) == "from reach(x, y): look up edge(y, z) by y"


@pytest.mark.parametrize(
    ("rule", "plan"),
    [
        (
            'p(y) :- e("a", y).',
            'at first: look up e("a", y) by "a"',
        ),
        (
            "q(y, x) :- n(x, y), !n(y, x).",
            "when n(x, y) changes: from n(x, y): check !n(y, x)",
        ),
        (
            "q(x, z) :- n(x, y), z = (y + 1) * 2, z < 9.",
            "when n(x, y) changes: from n(x, y): compute z = (y + 1) * 2; check z < 9",
        ),
        (
            "q(x, i) :- n(x, y), i = range(0, y).",
            "when n(x, y) changes: from n(x, y): each i in range(0, y)",
        ),
        (
            "p(s) :- e(x, y), s = cat(x, y).",
            "when e(x, y) changes: from e(x, y); then in Python s = cat(x, y)",
        ),
        (
            "ok() :- n(_, _).",
            "when n(_, _) changes: from n(_, _)",
        ),
        (
            "p(s) :- e(s, _), ok().",
            "when ok() changes: from ok(): each e(s, _)",
        ),
    ],
)
def test_steps_in_words(rule: str, plan: str) -> None:
    declared = """
        .decl e(x: symbol, y: symbol)
        .decl n(x: number, y: number)
        .decl ok()
        .decl p(x: symbol)
        .decl q(x: number, y: number)
    """
    assert plan in plans_of(declared + rule)


def test_why_a_strategy_was_chosen() -> None:
    lines = without_data("""
        .decl e(x: number)
        .decl a(x: number) .decl b(x: number)
        a(x) :- e(x), b(x). b(x) :- a(x). b(x) :- e(x).
        .decl once(x: number)
        once(x) :- a(x), !e(x).
        .decl p(x: number)
        p(0).
        p(y) :- p(x), x < 5, n = count : { e(z), z > x }, y = x + n.
        .view once(strategy="recompute", virtual=false)
        .view a(strategy="elastic")
    """)
    assert "  maintained by elastic: forced, and the default: they depend on each other" in lines
    assert (
        "  maintained by recompute: forced; the default is counting: it does not depend on itself"
        in lines
    )
    why = "an aggregate in it is grouped by what only its recursion binds"
    assert f"  maintained by recompute: {why}" in lines


def test_a_virtual_view_and_a_view_that_reads_it() -> None:
    db = tidelog.Database("""
        .decl e(x: number, y: number)
        .decl v(x: number)
        .decl w(x: number)
        v(x) :- e(x, _).
        w(x) :- v(x), e(_, x).
        .view v(virtual=true)
    """)
    with db.transaction() as tx:
        tx.insert("e", [(1, 2), (2, 1)])
    how = "its changes are propagated and filtered"
    lines = db.explain().split("\n")
    assert f"  maintained by virtual: it is not stored; {how}" in lines
    assert f"  maintained by virtual: it reads what is not stored; {how}" in lines
    assert sum("2 propagated, 2 filtered, 0 disqualified" in line for line in lines) == 2


def test_a_database_explains_itself_with_its_data() -> None:
    db = tidelog.Database(REACH, facts={"edge": [(1, 2), (2, 3)]}, engine="kernel")
    first = db.explain("reach").split("\n")
    assert "  edge(x: number, y: number)  2 rows" in first
    assert "  reach(x: number, y: number)  3 rows" in first
    assert any(line.startswith("  first evaluation: bootstrap, ") for line in first)
    assert "orders kept:" in first
    assert any(line.startswith("  edge: (x, y) 16 bytes") for line in first)
    always_update(db)
    with db.transaction() as tx:
        tx.insert("edge", [(3, 4)])
    (said,) = [line for line in db.explain().split("\n") if line.startswith("  epoch 1: ")]
    assert said.startswith("  epoch 1: update, ")
    assert "+3 -0 rows, 3 instantiations, " in said
    with db.transaction() as tx:
        tx.insert("other", [(3,)])
    assert "  epoch 2: nothing to do (nothing it reads has changed)" in db.explain().split("\n")


def test_the_reference_engine_explains_the_strata() -> None:
    db = tidelog.Database(REACH, engine="reference")
    assert db.explain("reach", plans=True).split("\n") == [
        "engine: reference (every epoch re-evaluates the program)",
        "given:",
        "  edge(x: number, y: number)",
        "stratum 1: reach (recursive, to a fixpoint)",
        "  reach(x: number, y: number)",
        "    reach(x, y) :- edge(x, y).",
        "    reach(x, z) :- reach(x, y), edge(y, z).",
    ]


@pytest.mark.parametrize("seeds", seed_blocks(20, 10))
def test_random_programs_are_explained(seeds: range) -> None:
    def check(case: RandomCase) -> None:
        lines = without_data(case.program, plans=True)
        program = tidelog.Program.parse(case.program)
        for rule in program.rules:
            assert f"    {rule.text}" in lines
        try:
            db = tidelog.Database(program, facts=case.facts, engine="kernel")
        except tidelog.DataError:
            return
        for view in [None, *program.relations]:
            assert db.explain(view, plans=True)
        assert all("%" not in line for line in lines if "(cost" in line and "%" not in case.program)

    check_cases(seeds, check)
