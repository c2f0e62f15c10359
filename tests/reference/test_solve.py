"""Assignments that satisfy a body, with the failures they meet."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.logic.program import Program
from tidelog.reference.solve import UNKNOWN, IndexedRows, Solver

A = [(1, 2), (2, 2), (3, 0)]
B = [(2, "two"), (5, "five")]
TEXT = """
    .decl a(x: number, y: number)
    .decl b(y: number, s: symbol)
    .decl p()
    p() :- {}.
"""


def solutions(body: str, known: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the solutions, each with its failure as `!`."""
    program = Program.parse(TEXT.format(body))
    (rule,) = program.rules
    solver = Solver({"a": IndexedRows(A), "b": IndexedRows(B), "p": IndexedRows()}, program.records)
    found = []
    for assignment, failure in solver.solutions(rule.body, known or {}):
        named = {name: value for name, value in assignment.items() if not name.startswith("$")}
        found.append(named if failure is None else {**named, "!": str(failure)})
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a(x, y)", [{"x": 1, "y": 2}, {"x": 2, "y": 2}, {"x": 3, "y": 0}]),
        ("a(x, x)", [{"x": 2}]),
        ("a(x, 2)", [{"x": 1}, {"x": 2}]),
        ("a(x, _), x > 1", [{"x": 2}, {"x": 3}]),
        ("a(1, y), b(y, s)", [{"s": "two", "y": 2}]),
        ("b(y, _), !a(_, y)", [{"y": 5}]),
        ("x = 1 + 2, a(x, y)", [{"x": 3, "y": 0}]),
        ("a(x, y), y = x", [{"x": 2, "y": 2}]),
        ("a(x, y), x = y + 1", []),
        ("x = range(0, 3), !a(x, _)", [{"x": 0}]),
        ('b(y, s), match("t.*", s)', [{"s": "two", "y": 2}]),
        ('b(y, s), !contains("i", s)', [{"s": "two", "y": 2}]),
        ("n = count : { a(_, 2) }", [{"n": 2}]),
        ("n = max x : { a(x, 9) }", []),
    ],
)
def test_solutions(body: str, expected: list[dict[str, Any]]) -> None:
    assert solutions(body) == expected


def test_what_is_known_narrows() -> None:
    assert solutions("a(x, y)", {"y": 0}) == [{"x": 3, "y": 0}]
    assert solutions("a(x, y)", {"y": 1}) == []


def test_a_failure_comes_with_its_solution() -> None:
    found = solutions("a(x, y), z = x / y, x > 2")
    assert found == [{"x": 3, "y": 0, "z": UNKNOWN, "!": "division by zero: 3 / 0"}]


def test_a_false_condition_excuses_a_failure() -> None:
    assert solutions("a(x, y), z = x / y, x < 3") == [
        {"x": 1, "y": 2, "z": 0}, {"x": 2, "y": 2, "z": 1},
    ]  # fmt: skip


def test_an_atom_that_does_not_match_excuses_a_failure() -> None:
    assert solutions("a(3, y), z = 1 / y, b(7, _)") == []
    (found,) = solutions('a(3, y), z = 1 / y, b(z, s), b(2, _), s = "two"')
    assert found["!"] == "division by zero: 1 / 0"


def test_a_focus_reads_one_atom_from_another_table() -> None:
    program = Program.parse(TEXT.format("a(x, y), a(y, z)"))
    (rule,) = program.rules
    solver = Solver({"a": IndexedRows(A), "b": IndexedRows(B), "p": IndexedRows()}, program.records)

    def focused(atom: int) -> list[dict[str, Any]]:
        return [
            found for found, _ in solver.solutions(rule.body, {}, (atom, IndexedRows([(2, 3)])))
        ]

    assert focused(0) == [{"x": 2, "y": 3, "z": 0}]
    assert sorted(found["x"] for found in focused(1)) == [1, 2]


def test_tables_keep_their_indexes_up_to_date() -> None:
    table = IndexedRows(A)
    assert sorted(table.lookup((1,), (2,))) == [(1, 2), (2, 2)]
    assert table.add((7, 2))
    assert not table.add((7, 2))
    assert sorted(table.lookup((1,), (2,))) == [(1, 2), (2, 2), (7, 2)]
    assert list(table.lookup((0, 1), (9, 9))) == []
    assert set(table.lookup((), ())) == {*A, (7, 2)}
