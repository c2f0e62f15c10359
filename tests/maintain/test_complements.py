"""Sparse negation by complement: when it is chosen, what it gives, and how `explain` shows it."""

from __future__ import annotations

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.maintain.complement_bootstrap import ComplementBootstrap
from tidelog.plan.lower import lower
from tidelog.reference import evaluate

PROGRAM = """
    .decl order(id: number, shop: symbol)
    .decl paid(id: number)
    .decl settled(shop: symbol, id: number)
    settled(s, i) :- order(i, s), paid(i).
    .decl open(id: number, shop: symbol)
    open(i, s) :- order(i, s), !settled(s, i).
    .decl done(id: number, shop: symbol)
    done(i, s) :- order(i, s), paid(i).
    .decl due(shop: symbol, id: number)
    due(s, i) :- order(i, s), !done(i, s).
"""
SHOPS = ["b", "a", "c"]


def facts(size: int, unpaid: set[int]) -> dict[str, set[tuple[object, ...]]]:
    return {
        "order": {(i, SHOPS[i % 3]) for i in range(size)},
        "paid": {(i,) for i in range(size) if i not in unpaid},
    }


def complement_bootstrap(kernel: KernelEngine, view: str) -> ComplementBootstrap | None:
    (layer,) = (la for la in kernel.catalog.lowered.layers if view in la.relations)
    return ComplementBootstrap.of(kernel.catalog, layer.rules[0])


@pytest.mark.parametrize("missing", [0, 1, 12, 2000])
def test_against_the_reference(missing: int) -> None:
    rng = seeded(f"lacking {missing}")
    program = tidelog.Program.parse(PROGRAM)
    unpaid = set(rng.sample(range(5000), missing))
    given = facts(5000, unpaid)
    kernel = KernelEngine(program, given)
    found = complement_bootstrap(kernel, "due")
    assert found is not None
    assert found.pays == (missing < 100)
    wanted = evaluate(program, given)
    for name in ("open", "due"):
        assert kernel.rows(name) == wanted[name]
        assert all(
            level_and_count == (0, 1) for level_and_count in kernel.levels_and_counts(name).values()
        )
    for _ in range(20):  # and updates go on from there
        new, gone = {(rng.randrange(5000),)}, {(rng.randrange(5000),)}
        kernel.apply({"paid": new - gone}, {"paid": gone - new})
        given["paid"] = (given["paid"] | (new - gone)) - (gone - new)
    wanted = evaluate(program, given)
    assert kernel.rows("due") == wanted["due"]
    kernel.check()


def test_it_does_less_than_a_join() -> None:
    few = KernelEngine(tidelog.Program.parse(PROGRAM), facts(5000, {7, 4000}))
    many = KernelEngine(tidelog.Program.parse(PROGRAM), facts(5000, set(range(2500))))
    layers = (few.last_epoch.layer("due"), many.last_epoch.layer("due"))
    assert [layer is not None and layer.touched for layer in layers] == [0, 2500]


def test_given_rows_make_it_no_subset() -> None:
    program = tidelog.Program.parse(PROGRAM)
    given = {**facts(5000, {7}), "done": {(6000, "x")}}
    kernel = KernelEngine(program, given)
    found = complement_bootstrap(kernel, "due")
    assert found is not None
    assert not found.pays
    assert kernel.rows("due") == {("a", 7)}


@pytest.mark.parametrize(
    "rules",
    [
        "v(x, y) :- a(x, y), !b(x, y).  b(x, y) :- c(x, y).",  # from elsewhere
        "v(x, y) :- a(x, y), !b(x, y).  b(x, y) :- a(x, y).  b(x, y) :- c(x, y).",
        "v(x, y) :- a(x, y), !b(x, y).  b(x, y) :- a(y, x).",  # the other way round
        "v(x, y) :- a(x, y), !b(x, y).  b(x, y) :- c(x, y), !a(x, y).",
        "v(x, y) :- a(x, y), !b(x, y), x < y.  b(x, y) :- a(x, y), c(x, y).",
        "v(x, x) :- a(x, x), !b(x, x).  b(x, y) :- a(x, y), c(x, y).",
        "v(x, y) :- a(x, y), !b(y, x).  b(x, y) :- a(x, y), c(x, y).",
        "v(x, y) :- a(x, y), !b(x, 1).  b(x, y) :- a(x, y), c(x, y).",
        "v(x, y) :- a(x, y), !b(x, _).  b(x, y) :- a(x, y), c(x, y).",
        "v(x, y) :- a(x, y), !b(x, y).  b(x, n) :- a(x, _), n = count : { a(x, _) }.",
        "v(x, y) :- a(x, y), !b(x, y).",  # given only
    ],
)
def test_rules_that_are_no_complements(rules: str) -> None:
    relations = " ".join(f".decl {name}(x: number, y: number)" for name in "abcv")
    layers = lower(tidelog.Program.parse(relations + rules)).layers
    kernel = KernelEngine(tidelog.Program.parse(relations + rules), {})
    (layer,) = (la for la in layers if "v" in la.relations)
    assert all(ComplementBootstrap.of(kernel.catalog, rule) is None for rule in layer.rules)


def test_explain_shows_it() -> None:
    few = tidelog.Database(PROGRAM, facts=facts(5000, {7}))
    shown = few.explain("due", plans=True)
    assert "at first: what done(i, s) lacks of order(i, s), found by counting\n" in shown
    assert shown.partition("joins for due")[2].count("at first") == 1
    many = tidelog.Database(PROGRAM, facts=facts(5000, set(range(2500))))
    assert "found by counting" not in many.explain("due", plans=True)
