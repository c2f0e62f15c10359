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
