"""Aggregates from Python on the kernel: random histories, functions that fail, what is called."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import tidelog
from tests.maintain.histories import check_history
from tidelog.logic import registry
from tidelog.values.types import NUMBER_MAX

CALLS: list[frozenset[Any]] = []


def spread(values: frozenset[int]) -> int:
    CALLS.append(values)
    return max(values) - min(values)


def picky(values: frozenset[int]) -> int:
    if 7 in values:
        raise KeyError("seven")
    return len(values)


def not_seven(value: int) -> int:
    if value == 7:
        raise ZeroDivisionError("seven")
    return value


def ratio(text: str) -> Fraction:
    return Fraction(text)


AGGREGATES: dict[str, tuple[Any, str, str]] = {
    "xor": (tidelog.Group(operator.xor, lambda a: a, 0), "number", "number"),
    "clock": (
        tidelog.Group(lambda a, b: (a + b) % 12, lambda a: -a % 12, 0, lift=lambda v: v % 12),
        "number", "number",
    ),
    "fractions": (
        tidelog.Group(
            lambda a, b: str(ratio(a) + ratio(b)), lambda a: str(-ratio(a)), "0",
            lift=lambda v: str(Fraction(1, abs(v) + 1)),
        ),
        "number", "symbol",
    ),
    "brittle": (tidelog.Group(operator.xor, lambda a: a, 0, lift=not_seven), "number", "number"),
    "joined": (tidelog.Semigroup(lambda a, b: f"{a}/{b}", lift=str), "number", "symbol"),
    "first": (tidelog.Semigroup(lambda a, b: a), "number", "number"),
    "spread": (tidelog.SetFunction(spread), "number", "number"),
    "picky": (tidelog.SetFunction(picky), "number", "number"),
    "ordered": (tidelog.SetFunction(lambda s: frozenset(map(str, s))), "number", "set(symbol)"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    try:
        for name, (algebra, takes, gives) in AGGREGATES.items():
            tidelog.aggregate(name, algebra, takes=takes, gives=gives)
        yield
    finally:
        for name in registry.registered():
            tidelog.forget_aggregate(name)


PROGRAM = """
    .decl r(g: number, h: symbol, v: number)
    .decl asked(g: number)
    .decl all_of(g: number, x: {type})
    all_of(g, x) :- r(g, _, _), x = {name} v : {{ r(g, _, v) }}.
    .decl some_of(g: number, x: {type})
    some_of(g, x) :- asked(g), x = {name} v : {{ r(g, _, v) }}.
    .decl of_all(x: {type})
    of_all(x) :- x = {name} v : {{ r(_, _, v) }}.
    .decl computed(g: number, x: {type})
    computed(g, x) :- asked(g), x = {name} (v + g) : {{ r(g, "a", v), asked(_) }}.
    .decl back(x: {type}, n: number)
    back(x, n) :- all_of(_, x), n = count : {{ all_of(_, x) }}.
"""


@pytest.mark.parametrize("name", AGGREGATES)
def test_random_histories(name: str) -> None:
    program = PROGRAM.format(name=name, type=AGGREGATES[name][2])
    draws = {
        "r": lambda rng: (rng.randrange(3), rng.choice("ab"), rng.choice((-9, 0, 1, 5, 7, 2**40))),
        "asked": lambda rng: (rng.randrange(4),),
    }
    sevens = {"r": (0, "a", 7), "asked": (0,)}
    comparison = check_history(name, program, draws, failing=sevens)
    failures = comparison.seen["epochs that fail"]
    assert (failures > 0) == (name in ("picky", "brittle"))


def test_a_failure_counts_only_where_it_is_asked_for() -> None:
    program = """
        .decl r(g: number, v: number)
        .decl asked(g: number)
        .decl held(g: number, x: number)
        held(g, x) :- asked(g), x = picky v : { r(g, v) }.
    """
    draws = {
        "r": lambda rng: (rng.randrange(3), rng.choice((1, 2, 7))),
        "asked": lambda rng: (rng.randrange(3),),
    }
    comparison = check_history("asked", program, draws, failing={"r": (0, 7), "asked": (0,)})
    assert 0 < comparison.seen["epochs that fail"] < comparison.seen["epochs"]


ONE = """
    .decl r(g: symbol, v: number)
    .decl held(g: symbol, x: number)
    held(g, x) :- r(g, _), x = {} v : {{ r(g, v) }}.
"""


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize(
    ("name", "rows", "reason"),
    [
        ("picky", [("a", 7)], "aggregate `picky` failed: KeyError: 'seven'"),
        ("brittle", [("a", 3), ("a", 7)], "`brittle` failed: ZeroDivisionError: seven"),
    ],
)
def test_what_a_function_raises(
    engine: str, name: str, rows: list[tuple[str, int]], reason: str
) -> None:
    database = tidelog.Database(ONE.format(name), engine=engine, facts={"r": [("b", 1)]})
    with (
        pytest.raises(tidelog.EvaluationError) as raised,
        database.transaction() as tx,
    ):
        tx.insert("r", [*rows, ("b", 2)])
    assert reason in str(raised.value)
    assert f"x = {name} v" in raised.value.rule
    assert raised.value.values["g"] == "a"
    assert set(database.view("r")) == {("b", 1)}, "the epoch is undone"
    assert len(database.view("held")) == 1


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize(
    ("algebra", "reason"),
    [
        (tidelog.Group(operator.add, operator.neg, 0), "outside the range of number"),
        (
            tidelog.SetFunction(lambda s: "much" if max(s) > 1000 else 1),
            "aggregate `wrong` gave a wrong result: 'much' is not a number",
        ),
    ],
)
def test_what_is_not_of_the_result_s_type(
    algebra: tidelog.Group | tidelog.SetFunction, reason: str, engine: str
) -> None:
    tidelog.aggregate("wrong", algebra, takes="number", gives="number")
    database = tidelog.Database(ONE.format("wrong"), engine=engine, facts={"r": [("a", 1)]})
    with (
        pytest.raises(tidelog.EvaluationError, match=reason),
        database.transaction() as tx,
    ):
        tx.insert("r", [("a", NUMBER_MAX)])
    assert set(database.view("held")) == {("a", 1)}


def test_a_function_of_sets_is_called_for_the_groups_that_change() -> None:
    facts = [(group, value) for group in "abcd" for value in range(50)]
    database = tidelog.Database(ONE.format("spread"), facts={"r": facts})
    CALLS.clear()
    with database.transaction() as tx:
        tx.insert("r", [("b", 80), ("c", 90)])
        tx.delete("r", [("b", 0)])
    assert sorted(map(len, CALLS)) == [50, 51]
    assert set(tx.changes["held"].inserted) == {("b", 79), ("c", 90)}


def test_a_program_keeps_what_it_was_analysed_with() -> None:
    program = tidelog.Program.parse(ONE.format("first"))
    database = tidelog.Database(program)
    tidelog.aggregate(
        "first", tidelog.Semigroup(lambda a, b: b), takes="number", gives="number", replace=True
    )
    with database.transaction() as tx:
        tx.insert("r", [("a", 1), ("a", 2)])
    assert set(database.view("held")) == {("a", 1)}
    later = tidelog.Database(ONE.format("first"), facts={"r": [("a", 1), ("a", 2)]})
    assert set(later.view("held")) == {("a", 2)}
    assert set(tidelog.Database(program, facts={"r": [("a", 3)]}).view("held")) == {("a", 3)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "xor",
            "xor by g maintained by group sums (Abelian group): one sum and support count",
        ),
        ("spread", "setof by g maintained by sets (set): one set a group"),
        ("spread", "spread by g maintained by set function (function of a set): "),
    ],
)
def test_explain_names_the_class(name: str, words: str) -> None:
    shown = tidelog.Database(ONE.format(name)).explain("held")
    assert any(line.strip().startswith(words) for line in shown.split("\n")), shown
