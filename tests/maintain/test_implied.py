"""Atoms that an aggregate makes needless: which they are, and that views stay the same without."""

from __future__ import annotations

import pytest

from tests.seeds import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Atom, Program
from tidelog.plan.lower import lower
from tidelog.plan.redundant import without_redundant_atoms

DECLARED = """
    .decl r(g: number, h: number, v: number)
    .decl q(g: number)
    .decl a(g: number, n: number)
"""


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("a(g, n) :- r(g, _, _), n = count : { r(g, _, _) }.", []),
        ("a(g, n) :- r(g, _, _), n = sum x : { r(g, _, x) }.", []),
        ("a(0, n) :- r(_, _, _), n = count : { r(_, _, _) }.", []),
        ("a(g, n) :- r(g, _, _), n = max x : { r(g, x, _) }, n > g.", []),
        ("a(g, n) :- r(_, g, _), n = sum x : { r(_, g, x) }.", []),
        ("a(g, n + m) :- r(g, _, _), n = sum x : { r(g, _, x) }, m = min x : { r(g, x, _) }.", []),
        ("a(g, n) :- r(g, h, _), n = sum x : { r(g, _, x) }, h > 1.", ["r"]),
        ("a(g, n) :- r(g, _, 1), n = sum x : { r(g, _, x) }.", ["r"]),
        ("a(g, n) :- r(g, _, _), n = sum x : { r(g, _, x), x > 1 }.", ["r"]),
        ("a(g, n) :- r(g, _, _), n = sum x : { r(g, 1, x) }.", ["r"]),
        ("a(g, n) :- r(g, _, _), n = sum x : { r(g, x, x) }.", ["r"]),
        ("a(g, n) :- r(_, g, _), n = sum x : { r(g, _, x) }.", ["r"]),
        ("a(g, n) :- r(g, _, _), r(_, g, _), n = sum x : { r(g, _, x) }.", ["r"]),
        ("a(g, n) :- q(g), n = sum x : { r(g, _, x) }.", ["q"]),
        ("a(g, n) :- q(g), r(g, _, _), n = sum x : { r(g, _, x) }.", ["q"]),
        ("a(g, n) :- q(g), r(_, _, _), n = count : { r(g, _, _) }.", ["q", "r"]),
    ],
)
def test_which_atoms_are_needless(rule: str, kept: list[str]) -> None:
    program = Program.parse(DECLARED + rule)
    body = without_redundant_atoms(program.rules[0].body)
    assert [literal.relation for literal in body if isinstance(literal, Atom)] == kept
    _compare(program, rule)


def _compare(program: Program, label: str) -> None:
    """Follow random changes, few rows in few groups, and compare with the reference."""
    rng = seeded(label)
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    for _ in range(25):
        inserted = {
            "r": {tuple(rng.randrange(3) for _ in range(3)) for _ in range(rng.randrange(3))},
            "q": {(rng.randrange(3),)} if rng.random() < 0.3 else set(),
        }
        deleted = {
            name: {row for row in rows if rng.random() < 0.3} - inserted[name]
            for name, rows in ((name, kernel.rows(name)) for name in inserted)
        }
        expected = reference.apply(inserted, deleted)
        changes = kernel.apply(inserted, deleted).changes
        assert changes.keys() == expected.changes.keys()
        for name, change in changes.items():
            assert change.inserted == expected.changes[name].inserted
            assert change.deleted == expected.changes[name].deleted
        assert kernel.rows("a") == reference.rows("a")
        kernel.check()


def test_no_groups_are_asked_for_where_all_are() -> None:
    text = DECLARED + "a(g, n) :- r(g, _, _), n = sum x : { r(g, _, x) }."
    names = lower(Program.parse(text)).relations
    assert [name.partition("@")[0] for name in names if "@" in name] == ["sum"]


def test_a_copy_follows_its_original_with_and_without_given_rows() -> None:
    program = Program.parse(DECLARED + "a(g, n) :- r(g, _, _), n = count : { r(g, _, _) }.")
    kernel = KernelEngine(program, {"r": {(1, 1, 1), (1, 2, 1), (2, 1, 1)}})
    kernel.apply({"a": {(1, 2), (5, 5)}}, {})
    assert kernel.levels_and_counts("a") == {(1, 2): (0, 2), (2, 1): (0, 1), (5, 5): (0, 1)}
    kernel.apply({"r": {(1, 3, 1)}}, {})
    assert kernel.levels_and_counts("a") == {
        (1, 2): (0, 1),
        (1, 3): (0, 1),
        (2, 1): (0, 1),
        (5, 5): (0, 1),
    }
    kernel.apply({"r": {(5, i, 1) for i in range(5)}}, {"a": {(1, 2)}})
    assert kernel.levels_and_counts("a") == {(1, 3): (0, 1), (2, 1): (0, 1), (5, 5): (0, 2)}
    kernel.apply({}, {"a": {(5, 5)}})
    kernel.apply({"r": {(2, 2, 2)}}, {"r": {(5, 0, 1)}})
    assert kernel.levels_and_counts("a") == {(1, 3): (0, 1), (2, 2): (0, 1), (5, 4): (0, 1)}
    kernel.check()
