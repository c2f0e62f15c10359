"""`add_rules` and `drop_rules`, as users call them."""

from __future__ import annotations

import pytest

import tidelog
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import RuleChange

REACH = """\
.decl edge(x: symbol, y: symbol)
.decl reach(x: symbol, y: symbol)  .output reach
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).   // one step more
"""
LOOPS = "reach(x, x) :- edge(x, _)."
EDGES = [("a", "b"), ("b", "c")]
ENGINES = ("kernel", "reference")


def database(engine: str = "kernel", text: str = REACH) -> tidelog.Database:
    return tidelog.Database(text, facts={"edge": EDGES}, engine=engine)


def rows(db: tidelog.Database) -> dict[str, list[tuple[object, ...]]]:
    return {name: list(db.view(name)) for name in db.program.relations}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rule_comes_and_goes(engine: str) -> None:
    db = database(engine)
    before = rows(db)
    tx = db.add_rules(LOOPS)
    assert list(tx.changes["reach"].inserted) == [("a", "a"), ("b", "b")]
    assert LOOPS in db.program.text
    tx = db.drop_rules("reach(x,x) :- // the loops\n  edge(x, _).")
    assert list(tx.changes["reach"].deleted) == [("a", "a"), ("b", "b")]
    assert rows(db) == before
    assert db.program.text.strip() == REACH.strip()
    assert db.epoch == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_and_rows_in_one_transaction(engine: str) -> None:
    db = database(engine)
    with db.transaction() as tx:
        tx.add_rules(".decl town(x: symbol)  .output town\ntown(x) :- edge(x, _).")
        tx.insert("town", [("z",)])
        tx.insert("edge", [("c", "d")])
        tx.drop_rules("reach(x, z) :- reach(x, y), edge(y, z).")
        tx.add_rules('town("y").')
    assert list(tx.changes["town"].inserted) == [("a",), ("b",), ("c",), ("y",), ("z",)]
    assert list(tx.changes["reach"].inserted) == [("c", "d")]
    assert list(tx.changes["reach"].deleted) == [("a", "c")]
    tx = db.drop_rules('town("y").')
    assert list(tx.changes["town"].deleted) == [("y",)]
    assert db.given_count("town") == 1


REFUSED = {
    "syntax": ("reach(x, y) :- edge(x, y)", "added rules>:1:"),
    "unsafe": (
        "\n  reach(x, y) :- edge(x, _).",
        r"added rules>:2:12: error: .*\[unbound-variable\]",
    ),
    "type": ("reach(x, 1) :- edge(x, _).", r"\[type-mismatch\]"),
    "strata": (
        ".decl no(x: symbol) no(x) :- edge(x, _), !reach(x, x). reach(x, x) :- no(x).",
        r"\[not-stratified\]",
    ),
    "undeclared": ("far(x) :- edge(x, _).", r"\[undeclared-relation\]"),
    "twice": ("reach(x,y):-edge(x,y).", r"has this rule already \[duplicate-rule\]"),
    "strategy": ('.view reach(strategy="counting")', r"\[bad-view\]"),
    "declared twice": (".decl edge(x: symbol)", r"\[duplicate-relation\]"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_refused_change_leaves_everything_as_it_was(engine: str, name: str) -> None:
    text, message = REFUSED[name]
    db = database(engine)
    before, program = rows(db), db.program
    with pytest.raises(tidelog.ProgramError, match=message):
        db.add_rules(text)
    assert (rows(db), db.epoch, db.program is program) == (before, 0, True)
    assert list(db.add_rules(LOOPS).changes["reach"].inserted) == [("a", "a"), ("b", "b")]


def test_unknown_rules_to_drop() -> None:
    db = database()
    with pytest.raises(tidelog.ProgramError) as caught:
        db.drop_rules("reach(x, y) :- edge(x, y).\nreach(x, y) :- edge(y, x).\n.decl t()\n")
    assert str(caught.value).count("[unknown-rule]") == 2
    assert "<dropped rules>:2:1: error: the program has no such rule" in str(caught.value)
    assert db.epoch == 0


def test_what_cannot_change() -> None:
    db = database(text=REACH + ".type P = [a: number]\n.decl p(x: P) .decl n(x: number)\n")
    for added, dropped, message in (
        (".decl n(x: symbol)", ".decl n(x: number)", "`n` is declared as"),
        ("", ".decl p(x: P) .type P = [a: number]", "record type `P` cannot be dropped"),
    ):
        with pytest.raises(tidelog.TidelogError, match=message), db.transaction() as tx:
            tx.change_rules(RuleChange.of(added, dropped))
    only = tidelog.Database(".decl a(x: number) .decl b()", facts={"a": [(1,)]})
    with pytest.raises(tidelog.UsageError, match="`a` has 1 given rows"):
        only.drop_rules(".decl a(x: number)")
    only.drop_rules(".decl b()")
    assert list(only.program.relations) == ["a"]


def test_an_epoch_that_fails_puts_the_program_back() -> None:
    db = tidelog.Database(
        ".decl n(x: number) .decl m(x: number) .output m m(x + 1) :- n(x).",
        facts={"n": [(0,), (3,)]},
    )
    kernel, before = kernel_of(db), rows(db)
    for text, message in (
        ("m(12 / x) :- n(x).", "division by zero"),
        (".decl f[x: number]: number f[1] = x :- n(x).", "two values"),
    ):
        program = db.program
        with pytest.raises(tidelog.DataError, match=message):
            db.add_rules(text)
        assert (rows(db), db.program is program, kernel.program is program) == (before, True, True)
        kernel.check()
    limited = tidelog.Database(REACH, facts={"edge": EDGES}, level_limit=3)
    with pytest.raises(tidelog.LimitError):
        limited.add_rules(".decl up(n: number) up(0). up(n + 1) :- up(n), n < 100.")
    assert "up" not in limited.program.relations
    kernel_of(limited).check()
    limited.add_rules(LOOPS)


def chain(length: int) -> str:
    """Return a program of several chains of views, each over the one before it."""
    lines = [".decl base(x: number)"]
    for letter in "abcd":
        for number in range(length):
            below = "base" if number == 0 else f"{letter}{number - 1}"
            lines.append(f".decl {letter}{number}(x: number)  .output {letter}{number}")
            lines.append(f"{letter}{number}(x) :- {below}(x), x > {number}.")
    return "\n".join(lines)


def test_only_what_depends_on_a_rule_is_touched() -> None:
    db = tidelog.Database(chain(5), facts={"base": [(n,) for n in range(20)]})
    kernel = kernel_of(db)
    kept = {layer.relations: strategy for layer, strategy in kernel.layers}
    db.add_rules("b2(x) :- base(x), x < 2.")
    touched = {
        name
        for layer in db.last_epoch.layers
        if layer.choice != "nothing to do"
        for name in layer.relations
    }
    assert touched == {"b2", "b3"}, "no row of b3 is in b4 then"
    assert len(db.last_epoch.layers) == 20
    for layer, strategy in kernel.layers:
        assert (strategy is kept[layer.relations]) == (layer.relations != ("b2",))


def test_another_strategy() -> None:
    db = database()
    db.add_rules('.view reach(strategy="recompute")')
    assert db.last_epoch.layer("reach").strategy == "recompute"  # type: ignore[union-attr]
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert len(db.view("reach")) == 6
    tx = db.drop_rules('.view reach(strategy="recompute")')
    assert not tx.changes["reach"]
    fresh = KernelEngine(Program.parse(REACH), {"edge": {*EDGES, ("c", "d")}})
    assert kernel_of(db).levels_and_counts("reach") == fresh.levels_and_counts("reach")
    kernel_of(db).check()


PAIRS = """\
.decl low(x: number)  .decl high(x: number)
.decl pair(x: number, y: number)  .output pair
pair(x, y) :- low(x), high(y), x < y.
"""


def test_a_view_that_is_not_stored_becomes_one_that_is_and_back() -> None:
    db = tidelog.Database(PAIRS, facts={"low": [(1,), (2,)], "high": [(2,), (3,)]})
    kernel = kernel_of(db)
    assert kernel.catalog.tree_of("pair") is not None
    tx = db.add_rules("pair(x, x) :- low(x).")
    assert list(tx.changes["pair"].inserted) == [(1, 1), (2, 2)]
    assert kernel.catalog.tree_of("pair") is not None
    kernel.check()
    tx = db.add_rules("pair(x, x) :- high(x), !low(x).")
    assert list(tx.changes["pair"].inserted) == [(3, 3)]
    assert kernel.catalog.tree_of("pair") is None
    kernel.check()
    with db.transaction() as tx:
        tx.insert("low", [(0,)])
        tx.drop_rules("pair(x, x) :- low(x). pair(x, x) :- high(x), !low(x).")
    assert list(tx.changes["pair"].deleted) == [(1, 1), (2, 2), (3, 3)]
    assert list(tx.changes["pair"].inserted) == [(0, 2), (0, 3)]
    assert kernel.catalog.tree_of("pair") is not None
    kernel.check()


def test_domains_that_rules_unite() -> None:
    db = tidelog.Database(
        ".decl a(x: number) .decl b(x: number) .decl c(x: number) .output c c(x) :- a(x).",
        facts={"a": [(1,)], "b": [(-(2**40),), (1,)]},
    )
    tx = db.add_rules("c(x) :- a(_), b(x). c(x) :- b(x), !a(x).")
    assert list(tx.changes["c"].inserted) == [(-(2**40),)]
    with db.transaction() as tx:
        tx.insert("a", [(2**62,)])
        tx.insert("b", [(2**61,)])
    assert list(db.view("c")) == [(-(2**40),), (1,), (2**61,), (2**62,)]
    kernel_of(db).check()
    db.drop_rules("c(x) :- b(x), !a(x).")
    kernel_of(db).check()


WATCHED = REACH + ".view reach(virtual=true)\n"


def test_rules_of_a_virtual_view() -> None:
    """An added rule is evaluated after the epoch and filtered before it; a dropped one likewise."""
    db = database(text=WATCHED)
    with db.transaction() as tx:
        tx.insert("edge", [("a", "a")])
    tx = db.add_rules(LOOPS)
    assert list(tx.changes["reach"].inserted) == [("b", "b")]
    layer = db.last_epoch.layer("reach")
    assert layer is not None
    # (a, a) was there; (b, b) leads to (b, c), which was there.
    assert (layer.choice, layer.propagated, layer.disqualified) == ("update", 3, 2)
    tx = db.drop_rules("reach(x, z) :- reach(x, y), edge(y, z).")
    assert list(tx.changes["reach"].deleted) == [("a", "c")]
    tx = db.drop_rules(LOOPS)
    assert list(tx.changes["reach"].deleted) == [("b", "b")]
    assert list(db.view("reach")) == [("a", "a"), ("a", "b"), ("b", "c")]
    assert db.memory["reach"] == 0
    kernel_of(db).check()


def test_a_view_becomes_virtual_and_stored_again() -> None:
    db = database()
    before = rows(db)
    tx = db.add_rules(".view reach(virtual=true)")
    assert not tx.changes["reach"]
    assert db.memory["reach"] == 0
    assert rows(db) == before
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert list(tx.changes["reach"].inserted) == [("a", "d"), ("b", "d"), ("c", "d")]
    tx = db.drop_rules(".view reach(virtual=true)")
    assert not tx.changes["reach"]
    assert db.memory["reach"] > 0
    assert len(db.view("reach")) == 6
    kernel_of(db).check()


def test_other_rules_leave_virtual_views_alone() -> None:
    db = database(text=WATCHED)
    strategies = kernel_of(db).strategies
    db.add_rules(".decl leaf(x: symbol)  leaf(y) :- edge(_, y), !edge(y, _).")
    assert set(strategies) <= set(kernel_of(db).strategies)
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert len(tx.changes["reach"].inserted) == 3


def test_a_refused_change_leaves_virtual_views_as_they_were() -> None:
    db = database(text=WATCHED)
    before = rows(db)
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.add_rules(".decl bad(x: number)  bad(1 / (n - n)) :- n = count : { edge(_, _) }.")
        tx.add_rules(LOOPS)
        tx.insert("edge", [("c", "d")])
    assert rows(db) == before
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert len(tx.changes["reach"].inserted) == 3
    kernel_of(db).check()


def test_triggers_see_changes_of_rules() -> None:
    db, seen = database(), []
    handle = db.on("+reach", lambda event: seen.extend(event.rows))
    db.add_rules(LOOPS)
    assert seen == [("a", "a"), ("b", "b")]
    lone = tidelog.Database(".decl p(x: number)")
    watch = lone.on("p", lambda event: None)
    with pytest.raises(tidelog.UsageError, match="a trigger watches `p`"):
        lone.drop_rules(".decl p(x: number)")
    watch.remove()
    lone.drop_rules(".decl p(x: number)")
    handle.remove()


def test_proofs_follow_the_program() -> None:
    db = database()
    assert db.why("reach", ("a", "c"))
    db.add_rules(LOOPS)
    assert "reach(x, x)" in str(db.why("reach", ("a", "a")))
