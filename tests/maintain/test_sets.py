"""`setof` by CReaM: the paper's example, and random histories against the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidelog
from tests.maintain.histories import Draw, check_history
from tests.samples import sample
from tidelog.values.scalars import NAN

# --- the example of "Maintaining Materialized Aggregate Views" ------------------------------------

PURCHASES = [
    ("John", "Ferrari", 2010),
    ("John", "Mercedes", 2010),
    ("Mary", "Jaguar", 2010),
    ("Mary", "Bugatti", 2010),
    ("John", "Jaguar", 2013),
]
PAPER = """
    .decl purchases(name: symbol, car: symbol, year: number)
    .decl cars(car: symbol)
    cars(c) :- purchases(_, c, _).
    .decl by_year(name: symbol, cars: set(symbol), year: number)
    by_year(n, s, y) :- purchases(n, _, y), s = setof c : { purchases(n, c, y) }.
    .decl counted(name: symbol, cars: number, year: number)
    counted(n, k, y) :- purchases(n, _, y), k = count c : { purchases(n, c, y) }.
    .decl query(name: symbol, cars: set(symbol))
    query(n, s) :- purchases(n, _, y), s = setof c : { purchases(n, c, y) }.
"""
FM, JB, J = (
    frozenset(cars) for cars in (("Ferrari", "Mercedes"), ("Jaguar", "Bugatti"), ("Jaguar",))
)


def paper() -> tidelog.Database:
    return tidelog.Database(PAPER, facts={"purchases": PURCHASES})


def apply(
    database: tidelog.Database, inserted: list[Any] = (), deleted: list[Any] = ()
) -> dict[str, tuple[set[Any], set[Any]]]:
    """Change `purchases`; return what each view has gained and lost."""
    with database.transaction() as tx:
        tx.insert("purchases", inserted)
        tx.delete("purchases", deleted)
    return {
        name: (set(tx.changes[name].inserted), set(tx.changes[name].deleted))
        for name in ("cars", "by_year", "counted", "query")
    }


def test_the_views_of_the_paper() -> None:
    database = paper()
    assert set(database.view("cars")) == {("Ferrari",), ("Mercedes",), ("Jaguar",), ("Bugatti",)}
    assert set(database.view("by_year")) == {
        ("John", FM, 2010), ("Mary", JB, 2010), ("John", J, 2013),
    }  # fmt: skip
    assert set(database.view("counted")) == {
        ("John", 2, 2010), ("Mary", 2, 2010), ("John", 1, 2013),
    }  # fmt: skip
    assert set(database.view("query")) == {("John", FM), ("Mary", JB), ("John", J)}


def test_the_differential_rules() -> None:
    changes = apply(paper(), [("John", "Bugatti", 2013)])
    assert changes["by_year"] == ({("John", JB, 2013)}, {("John", J, 2013)})
    assert changes["counted"] == ({("John", 2, 2013)}, {("John", 1, 2013)})
    assert changes["cars"] == (set(), set())


def test_the_ambiguous_update() -> None:
    """John has two sets, and the change does not say which; the auxiliary view does."""
    database = paper()
    changes = apply(database, [("John", "Bugatti", 2013)])
    assert changes["query"] == ({("John", JB)}, {("John", J)})
    assert set(database.view("query")) == {("John", FM), ("Mary", JB), ("John", JB)}


def test_a_row_goes_with_the_last_group_that_shows_it() -> None:
    database = paper()
    assert apply(database, [("John", "Jaguar", 2014)])["query"] == (set(), set())
    assert apply(database, [], [("John", "Jaguar", 2013)])["query"] == (set(), set())
    assert apply(database, [], [("John", "Jaguar", 2014)])["query"] == (set(), {("John", J)})


# --- random histories -----------------------------------------------------------------------------

ELEMENTS: dict[str, tuple[str, str, list[Any]]] = {
    "number": ("", "number", [-(2**63), -5, 0, 1, 2, 3, 2**40, 2**63 - 1]),
    "unsigned": ("", "unsigned", [0, 1, 2, 2**63, 2**64 - 1]),
    "float": ("", "float", [float("-inf"), -0.5, 0.0, 1.5, float("inf"), NAN]),
    "symbol": ("", "symbol", ["", "a", "b", "c", "a, b"]),
    "record": (
        ".type Pair = [left: number, right: symbol]", "Pair",
        [None, (1, "a"), (1, "b"), (2, "a")],
    ),
    "set": (
        "", "set(number)", [frozenset(), frozenset([1]), frozenset([1, 2]), frozenset([2])],
    ),
    "set of sets": (
        "", "set(set(symbol))",
        [frozenset(), frozenset([frozenset()]), frozenset([frozenset(["a"]), frozenset(["b"])])],
    ),
}  # fmt: skip

PROGRAM = """
    {types}
    .decl r(g: number, h: symbol, v: {type})
    .decl s(g: number, v: {type})
    .decl given(g: number, held: set({type}))
    // All variables reach the head; some do; none does.
    .decl whole(g: number, h: symbol, held: set({type}))
    whole(g, h, x) :- r(g, h, _), x = setof v : {{ r(g, h, v) }}.
    .decl some(g: number, held: set({type}))
    some(g, x) :- r(g, h, _), x = setof v : {{ r(g, h, v) }}.
    .decl none(held: set({type}))
    none(x) :- r(g, h, _), x = setof v : {{ r(g, h, v) }}.
    // A value of a group has several rows; the body is a join; a group may be empty.
    .decl many(g: number, held: set({type}))
    many(g, x) :- s(g, _), x = setof v : {{ r(g, _, v) }}.
    .decl joined(g: number, held: set({type}))
    joined(g, x) :- s(g, _), x = setof v : {{ r(g, _, v), s(_, v) }}.
    .decl everything(held: set({type}))
    everything(x) :- x = setof v : {{ r(_, _, v) }}.
    .decl itself(g: number, held: set(number))
    itself(g, x) :- s(g, _), x = setof g : {{ r(g, _, _) }}.
    // Equal sets meet, whichever way they came about.
    .decl equal(g: number, k: number)
    equal(g, k) :- some(g, x), given(k, x).
    .decl different(g: number, k: number)
    different(g, k) :- some(g, x), given(k, y), x != y.
    .decl before(g: number, k: number)
    before(g, k) :- some(g, x), given(k, y), x < y.
    .decl lone(g: number)
    lone(g) :- some(g, x), !given(_, x).
    // Sets as groups, as elements, and counted.
    .decl sharing(held: set({type}), n: number)
    sharing(x, n) :- some(_, x), n = count : {{ some(_, x) }}.
    .decl nested(g: number, held: set(set({type})))
    nested(g, x) :- some(g, _), x = setof y : {{ some(g, y) }}.
    .decl kinds(n: number)
    kinds(n) :- n = count x : {{ whole(_, _, x) }}.
    // What fails, now and then.
    .decl failing(g: number)
    failing(1 / (g - 3)) :- many(g, _).
"""


def draws(values: list[Any]) -> dict[str, Draw]:
    def subset(rng: random.Random) -> frozenset[Any]:
        return frozenset(rng.sample(values, rng.randint(0, min(3, len(values)))))

    def group(rng: random.Random) -> int:
        return 3 if rng.random() < 0.06 else rng.randrange(3)

    return {
        "r": lambda rng: (rng.randrange(3), rng.choice("ab"), rng.choice(values)),
        "s": lambda rng: (group(rng), rng.choice(values)),
        "given": lambda rng: (rng.randrange(3), subset(rng)),
    }


@pytest.mark.parametrize("kind", ELEMENTS)
def test_random_histories(kind: str) -> None:
    types, type_, values = ELEMENTS[kind]
    program = PROGRAM.format(types=types, type=type_)
    failing = {"s": (3, values[0])}
    comparison = check_history(f"setof {kind}", program, draws(values), failing=failing)
    assert comparison.seen["sets: update"] > 20
    assert comparison.seen["epochs that fail"] > 0, "no epoch was undone"


def test_domains_that_widen() -> None:
    """New sets get larger numbers than their columns have room for: epochs are tried again."""
    program = """
        .decl r(g: number, v: number)
        .decl held(g: number, x: set(number))
        held(g, x) :- r(g, _), x = setof v : { r(g, v) }.
        .decl by_set(x: set(number), n: number)
        by_set(x, n) :- held(_, x), n = count : { held(_, x) }.
    """
    values = {"r": lambda rng: (rng.randrange(4), rng.randrange(200))}
    check_history("widening sets", program, values, epochs=sample(40, 80), most=12)


def test_which_groups_are_asked_for() -> None:
    """By a relation as it is, by a projection, by what is absent, by nothing at all."""
    program = """
        .decl r(g: number, v: number)
        .decl s(g: number)
        .decl closed()
        .decl open()
        .decl as_it_is(g: number, n: number, x: set(number))
        as_it_is(g, n, x) :- s(g), n = count : { r(g, _) }, x = setof v : { r(g, v) }.
        .decl of_all(n: number, x: set(number))
        of_all(n, x) :- n = count : { r(_, _) }, x = setof v : { r(_, v) }.
        .decl absent(n: number, x: set(number))
        absent(n, x) :- !closed(), n = count : { r(_, _) }, x = setof v : { r(_, v) }.
        .decl present(n: number, x: set(number))
        present(n, x) :- open(), n = count : { s(_) }, x = setof v : { s(v) }.
        .decl both(g: number, n: number)
        both(g, n) :- r(g, v), !s(v), n = count : { s(g) }.
        .decl own(g: number, n: number)
        own(g, n) :- s(g), n = count : { s(g) }.
        .decl turned(v: number, g: number, n: number)
        turned(v, g, n) :- r(g, v), n = count : { r(v, g) }.
    """
    draws = {
        "r": lambda rng: (rng.randrange(3), rng.randrange(3)),
        "s": lambda rng: (rng.randrange(4),),
        "closed": lambda rng: (),
        "open": lambda rng: (),
    }
    check_history("asked groups", program, draws, most=1)


@pytest.mark.parametrize("op", ["setof v", "count", "sum v", "max v"])
def test_what_a_change_costs_does_not_depend_on_the_size_of_its_group(op: str) -> None:
    type_ = "set(number)" if op == "setof v" else "number"
    program = f"""
        .decl r(g: number, v: number, w: number)
        .decl held(g: number, x: {type_})
        held(g, x) :- r(g, _, _), x = {op} : {{ r(g, v, w) }}.
    """
    touched = []
    for size in (50, 5000):
        database = tidelog.Database(program, facts={"r": [(1, i, 0) for i in range(size)]})
        with database.transaction() as tx:
            tx.insert("r", [(1, size, 1)])
        touched.append(sum(layer.touched for layer in database.last_epoch.layers))
    assert touched[0] == touched[1] < 20
