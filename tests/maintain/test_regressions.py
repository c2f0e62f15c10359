"""What random programs have found, made small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.generators.programs import Epoch, RandomCase
from tests.maintain.comparing import Comparison, abandon_at_once
from tidelog.engine.kernel import KernelEngine
from tidelog.errors import EvaluationError, FunctionalConflict
from tidelog.logic.program import Program

Facts = Mapping[str, set[tuple[Any, ...]]]


def check(text: str, facts: Facts, *epochs: Epoch) -> None:
    given = {name: frozenset(rows) for name, rows in facts.items()}
    Comparison().check(RandomCase(0, (), (), given, epochs, (text,)))


LARGEST = 2**63 - 1


def test_nothing_asks_for_an_aggregate_that_fails_in_its_braces() -> None:
    """No atom of the recursion matches, so that nothing is an error (docs/decisions/0001)."""
    check(
        """
        .decl a(x: number)
        .decl d(x: number, y: number)
        .decl given(x: number, y: number)
        d(x, y) :- given(x, y).
        d(y, v) :- v = sum w + 1 : { a(w) }, v < 50, -50 < v, d(_, y).
        """,
        {},
        {"a": ([(LARGEST,)], [])},
        {"a": ([(3,)], [])},
        {"given": ([(1, 2)], []), "a": ([], [(LARGEST,)])},
    )


@pytest.mark.parametrize(
    "rule",
    [
        "p(s) :- r(x, _), s = sum u / v : { r(u, v) }, n = count : { r(_, _) }, n < 3.",
        "p(s) :- r(x, _), s = sum u / v : { r(u, v) }, t = sum u / (v - 1) : { r(u, v) }, t > 5.",
        "p(s) :- r(x, _), s = sum u / v : { r(u, v) }, 10 / x > 4.",
        "p(s) :- r(x, _), y = 10 / x, s = sum u : { r(u, y) }, n = max u : { r(u, _) }, n < 3.",
        "p(s) :- r(x, _), s = max k : { r(x, v), k = sum u / z : { r(u, z), z < v } }, !r(s, x).",
    ],
)
def test_what_excuses_a_failure_in_the_braces(rule: str) -> None:
    """Another aggregate, what can fail itself, and what binds the group."""
    check(
        f".decl r(x: number, y: number) .decl p(x: number) {rule}",
        {"r": {(1, 1)}},
        {"r": ([(2, 0)], [])},
        {"r": ([(5, 5), (3, 2)], [])},
        {"r": ([(6, 0), (2, 0)], [])},
        {"r": ([(0, 2)], [(3, 2)])},
        {"r": ([(1, 3)], [(2, 0), (6, 0)])},
        {"r": ([], [(0, 2), (5, 5)])},
    )


@pytest.mark.parametrize("condition", ["z = 10 / y", "z = 10 / y, y > 0", "z = 10 / x, !r(y)"])
def test_a_failure_for_some_numbers_of_a_range(condition: str) -> None:
    """It was not seen if it depended on the number; and what excuses it was not seen either."""
    check(
        f"""
        .decl q(x: number)
        .decl r(x: number)
        .decl p(z: number)
        p(z) :- q(x), y = range(0, 3), {condition}.
        """,
        {"r": {(0,), (1,), (2,)}},
        {"q": ([(0,)], [])},
        {"r": ([], [(1,)])},
        {"q": ([(2,)], [])},
    )


def test_an_atom_must_match_also_if_it_depends_on_what_fails() -> None:
    """The reference left the atom out (docs/decisions/0001)."""
    check(
        """
        .decl q(x: number)
        .decl r(x: number)
        .decl p(z: number)
        p(z) :- q(x), y = 10 / x, z = y + 1, r(z).
        """,
        {},
        {"q": ([(0,)], [])},
        {"r": ([(3,)], [])},
        {"q": ([(5,)], [(0,)])},
    )


def test_a_constant_beyond_what_its_column_can_hold() -> None:
    """The code of 2**63 - 1 in a domain that begins below 0 does not fit a word."""
    check(
        """
        .decl a(x: symbol, y: number)
        .decl b(x: symbol)
        b(x) :- a(x, _), !a(x, 9223372036854775807).
        """,
        {"a": {("d", -1)}},
        {"a": ([("d", 2**63 - 1)], [])},
        {"a": ([], [("d", -1)])},
    )


def test_rows_between_stages_are_sorted_as_the_next_stage_wants_them() -> None:
    """The second stage began with `v`, and read the rows of the first as if they began with it."""
    check(
        """
        .decl a(x: number)
        .decl z(s: symbol)
        .decl c(x: number, y: number)
        c(x, 4) :- v = w, a(x), z(w), z(v), v = min(w, w).
        """,
        {"a": {(3,), (5,)}, "z": {("b",), ("a",)}},
        {"z": ([("c",)], [("a",)])},
    )


@pytest.mark.parametrize("z", ["ab", "b", "a"])
def test_an_equality_that_binds_to_the_left_outlives_its_stage(z: str) -> None:
    """`x = m` gave `m` its value, and the next stage gave it another one."""
    check(
        """
        .decl a(x: symbol)
        .decl z(y: symbol)
        .decl b(x: symbol)
        b("c") :- a(x), z(y), m = max(y, x), x = m.
        """,
        {"a": {("a",)}, "z": {(letter,) for letter in z}},
        {"z": ([("0",)], [])},
    )


@pytest.mark.parametrize("aggregate", ["sum y", "max y + 1"])
def test_an_aggregate_may_fail_where_nobody_asks_for_it(aggregate: str) -> None:
    """docs/decisions/0001: it is an error exactly when the rest of the rule holds."""
    program = Program.parse(f"""
        .decl a(x: number, y: number)
        .decl b(x: number)
        .decl p(x: number, n: number)
        p(x, n) :- b(x), n = {aggregate} : {{ a(x, y) }}.
    """)
    kernel = KernelEngine(program, {"a": {(1, 2**63 - 1), (1, 1), (2, 5)}, "b": {(2,)}})
    assert len(kernel.rows("p")) == 1
    with pytest.raises(EvaluationError):
        kernel.apply({"b": {(1,)}}, {})
    assert len(kernel.rows("p")) == 1
    kernel.apply({"b": {(1,)}}, {"a": {(1, 2**63 - 1)}})
    assert len(kernel.rows("p")) == 2


def test_a_sum_grouped_by_what_its_recursion_binds_has_values() -> None:
    program = Program.parse("""
        .decl ar(c0: number, c1: number)
        .decl dr(c0: number, c1: number, c2: number)
        dr(v4, v1, v2) :- dr(v2, 0, v1), v4 = sum w1 : { ar(v2, w1), !ar(w1, 3) }.
        dr(v1, 0, v1) :- ar(v1, v2).
    """)
    kernel = KernelEngine(program, {"ar": {(4, 4)}})
    assert kernel.rows("dr") == {(4, 0, 4), (4, 4, 4)}


def test_an_abandoned_update_tells_where_two_values_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bootstrap beside the old state was not shown to those who look for the derivations."""
    monkeypatch.setattr("tidelog.maintain.switch.LEAST_SECONDS", 0.0)
    text = """
        .decl a(x: symbol, y: symbol)
        .decl b(x: symbol)
        .decl f[x: symbol]: number
        f[y] = 2 :- a(_, y), !a(y, y).
        f[y] = 4 :- b(x), a(x, y).
        b(x) :- f(x, _).
    """
    facts = {"a": frozenset({("d", "c")})}
    epoch: Epoch = {"b": ([("d",)], [])}
    Comparison(abandon_at_once).check(RandomCase(0, (), (), facts, (epoch,), (text,)))


def test_a_conflict_within_a_recursion_that_is_bootstrapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a value comes from was looked for in rows that the epoch did not show yet."""
    program = Program.parse("""
        .decl a(x: symbol, y: symbol)
        .decl b(x: symbol)
        .decl f[x: symbol]: number
        f[y] = 4 :- b(x), a(x, y).
        b(x) :- f(x, n).
        f[y] = 0 :- a(x, y).
    """)
    monkeypatch.setattr("tidelog.maintain.switch.LEAST_SECONDS", 0.0)
    kernel = KernelEngine(program, {})
    abandon_at_once(kernel)
    with pytest.raises(FunctionalConflict, match="has two values"):
        kernel.apply({"a": {("c", "c")}, "b": {("c",)}}, {})
    assert kernel.rows("f") == frozenset()


def test_a_row_that_becomes_given_in_the_epoch_in_which_a_negated_row_is_deleted() -> None:
    """The level of `c` fell from 1 to 0, so the instantiation counted as known: it was new."""
    check(
        """
        .decl b()
        .decl c(x: number, y: number)
        .decl e(x: number, y: number)
        c(3, 2).
        c(x, 0) :- e(x, 0).
        e(1, 3).
        e(x, y) :- e(_, x), c(x, y), !b().
        """,
        {},
        {"b": ([()], [])},
        {"b": ([], [()]), "c": ([(3, 2)], [])},
    )


def test_a_failure_is_excused_if_a_range_lacks_a_known_value() -> None:
    """`x` is not in the range, so it does not matter that `-x` overflows."""
    check(
        """
        .decl a(x: number)
        .decl b(x: number)
        b(x) :- a(x), x = range(3, 2, -2), -x != 2.
        """,
        {},
        {"a": ([(-(2**63),), (3,)], [])},
    )


@pytest.mark.parametrize(
    "atoms",
    ["all(_, x), all(_, x)", "all(_, x), all(x, _)", "all(x, _), seen(x), all(_, x)"],
)
def test_a_failure_that_needs_two_rows_of_a_recursion_settled_together(atoms: str) -> None:
    """The rows of a bucket are flagged, and the check of a failure did not see those."""
    check(
        f"""
        .decl given(x: number)
        .decl seen(x: number)
        .decl low(x: number, y: number)
        .decl all(x: number, y: number)
        low(x, x) :- 6 % (x - 7) < 4, {atoms}.
        all(x, x) :- given(x).
        all(x, x) :- low(x, x).
        seen(x) :- given(x).
        """,
        {},
        {"given": ([(7,)], [])},
        {"given": ([(8,), (9,)], [])},
        {"given": ([(7,)], [(8,)])},
        {"given": ([], [(7,)])},
    )


def test_the_largest_text_of_a_group_of_pairs() -> None:
    """The source lost columns, and its scan tree then took rows of a group for the same row."""
    check(
        """
        .decl a(x: set(symbol))
        .decl b(x: set(symbol), y: number)
        .decl top(x: set(symbol), y: set(symbol))
        top(v, m) :- a(v), m = max w : { a(w), b(_, _), w != v }.
        """,
        {"a": {(frozenset("p"),), (frozenset("pq"),)}, "b": {(frozenset("p"), 1)}},
        {"a": ([(frozenset(),)], [])},
        {"a": ([(frozenset("r"),)], [])},
        {"a": ([], [(frozenset("r"),)])},
    )
