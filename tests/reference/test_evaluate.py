"""The model of a program on given facts, on cases that are computed by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tidelog
from tidelog.logic.program import Program
from tidelog.reference import evaluate

EDGES = {"edge": {(1, 2), (2, 3), (3, 1), (4, 5)}}


def rows(text: str, name: str = "p", **facts: Iterable[Any]) -> set[Any]:
    """Return the rows of one relation."""
    given = {relation: set(given) for relation, given in facts.items()}
    return set(evaluate(Program.parse(text), given)[name])


def test_given_rows_and_facts_of_the_program_are_there() -> None:
    text = ".decl a(x: number) a(1). a(2). .decl p(x: number) p(x) :- a(x)."
    assert rows(text, a=[(2,), (3,)]) == {(1,), (2,), (3,)}
    assert rows(text, "a", a=[(2,), (3,)]) == {(1,), (2,), (3,)}


def test_given_rows_of_a_derived_relation_stay() -> None:
    text = ".decl a(x: number) .decl p(x: number) p(x + 1) :- a(x)."
    assert rows(text, a=[(1,)], p=[(7,)]) == {(2,), (7,)}


def test_a_recursion_comes_to_its_fixpoint() -> None:
    text = """
        .decl edge(x: number, y: number)
        .decl p(x: number, y: number)
        p(x, y) :- edge(x, y).
        p(x, z) :- p(x, y), edge(y, z).
    """
    cycle = {(x, y) for x in (1, 2, 3) for y in (1, 2, 3)}
    assert rows(text, **EDGES) == cycle | {(4, 5)}
    assert rows(text) == set()


def test_a_recursion_that_joins_itself() -> None:
    text = """
        .decl edge(x: number, y: number)
        .decl p(x: number, y: number)
        p(x, y) :- edge(x, y).
        p(x, z) :- p(x, y), p(y, z).
    """
    assert rows(text, edge=[(i, i + 1) for i in range(9)]) == {
        (i, j) for i in range(10) for j in range(i + 1, 10)
    }


def test_relations_that_depend_on_each_other() -> None:
    text = """
        .decl top(n: number)
        .decl even(x: number) .decl odd(x: number)
        even(0).
        odd(x + 1) :- even(x), top(n), x < n.
        even(x + 1) :- odd(x), top(n), x < n.
    """
    assert rows(text, "even", top=[(7,)]) == {(0,), (2,), (4,), (6,)}
    assert rows(text, "odd", top=[(7,)]) == {(1,), (3,), (5,), (7,)}


def test_a_negation_looks_at_the_finished_stratum_below() -> None:
    text = """
        .decl node(x: number) .decl edge(x: number, y: number)
        .decl reach(x: number) .decl p(x: number)
        reach(1).
        reach(y) :- reach(x), edge(x, y).
        p(x) :- node(x), !reach(x).
    """
    assert rows(text, node=[(i,) for i in range(1, 7)], **EDGES) == {(4,), (5,), (6,)}


def test_a_negation_with_open_columns() -> None:
    text = """
        .decl node(x: number) .decl edge(x: number, y: number) .decl p(x: number)
        p(x) :- node(x), !edge(x, _).
    """
    assert rows(text, node=[(i,) for i in range(1, 7)], **EDGES) == {(5,), (6,)}


def test_a_relation_without_columns() -> None:
    text = ".decl a(x: number) .decl some() .decl p(x: number) some() :- a(_). p(1) :- !some()."
    assert rows(text) == {(1,)}
    assert rows(text, a=[(5,)]) == set()
    assert rows(text, "some", a=[(5,)]) == {()}


def test_records_are_made_and_taken_apart() -> None:
    text = """
        .type Pair = [x: number, y: number]
        .decl a(p: Pair) .decl p(x: number) .decl q(p: Pair)
        p(x) :- a([x, 2]).
        q([y, x]) :- a([x, y]).
    """
    given = [((1, 2),), ((3, 4),), (None,)]
    assert rows(text, a=given) == {(1,)}
    assert rows(text, "q", a=given) == {((2, 1),), ((4, 3),)}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("count : { a(k, _) }", {("u", 2), ("v", 1), ("w", 0)}),
        ("sum x : { a(k, x) }", {("u", 7), ("v", 9), ("w", 0)}),
        ("min x : { a(k, x) }", {("u", 3), ("v", 9)}),
        ("max x * 2 : { a(k, x), x < 9 }", {("u", 8)}),
        ("count x : { a(_, x) }", {("u", 3), ("v", 3), ("w", 3)}),
    ],
)
def test_aggregates_by_group(term: str, expected: set[Any]) -> None:
    text = f"""
        .decl k(k: symbol) .decl a(k: symbol, x: number) .decl p(k: symbol, n: number)
        p(k, n) :- k(k), n = {term}.
    """
    facts = {"k": [("u",), ("v",), ("w",)], "a": [("u", 3), ("u", 4), ("v", 9)]}
    assert rows(text, **facts) == expected


def test_an_error_tells_the_rule_and_the_values() -> None:
    text = ".decl a(x: number, y: number) .decl p(x: number) p(x / y) :- a(x, y)."
    with pytest.raises(tidelog.EvaluationError, match="division by zero: 4 / 0") as raised:
        rows(text, a=[(4, 0), (4, 2)])
    assert "p(x / y) :- a(x, y)." in str(raised.value)


@pytest.mark.parametrize("body", ["a(x, y), y != 0, z = x / y", "z = x / y, y != 0, a(x, y)"])
def test_a_guard_counts_wherever_it_stands(body: str) -> None:
    text = f".decl a(x: number, y: number) .decl p(z: number) p(z) :- {body}."
    assert rows(text, a=[(4, 0), (4, 2)]) == {(2,)}


def test_conditions_on_a_value_that_failed_are_left_out() -> None:
    text = ".decl a(x: number, y: number) .decl p(z: number) p(z) :- a(x, y), z = x / y, z > 100."
    with pytest.raises(tidelog.EvaluationError, match="division by zero"):
        rows(text, a=[(4, 0)])


def test_two_values_for_one_key() -> None:
    text = """
        .decl cost(i: symbol, c: number)
        .decl price[i: symbol]: number
        price[i] = c * 2 :- cost(i, c).
    """
    assert rows(text, "price", cost=[("a", 1), ("b", 1)]) == {("a", 2), ("b", 2)}
    with pytest.raises(tidelog.DataError, match=r"`price\[a\]` has two values") as raised:
        rows(text, "price", cost=[("a", 1), ("a", 3)])
    assert "= 2: derived by" in str(raised.value)
    assert "= 6: derived by" in str(raised.value)


def test_an_evaluation_is_watched() -> None:
    text = """
        .decl edge(x: number, y: number) .decl p(x: number, y: number)
        p(x, y) :- edge(x, y).
        p(x, z) :- p(x, y), edge(y, z).
    """

    class Watch:
        looked = 0
        levels: list[tuple[int, int]] = []  # noqa: RUF012

        def found(self, instantiations: int, /) -> None:
            self.looked += instantiations

        def reached(self, level: int, rows: int, /) -> None:
            self.levels.append((level, rows))

    watch = Watch()
    evaluate(Program.parse(text), {"edge": {(1, 2), (2, 3), (3, 4)}}, watch)
    numbers, sizes = zip(*watch.levels, strict=True)
    assert numbers == tuple(range(1, len(numbers) + 1))
    assert sizes == tuple(sorted(sizes)) and sizes[-1] == 6
    assert watch.looked >= 6
