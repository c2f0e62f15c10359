"""The reference engine agrees with clingo on random programs."""

from __future__ import annotations

import pytest

from tests.generators.programs import RandomCase, Shape, check_cases
from tests.properties import clingo_peer
from tests.properties.comparing import difference
from tests.samples import sample
from tests.seeds import case_seeds, seed_blocks, seeded
from tidelog.logic.program import Program
from tidelog.reference import evaluate


def disagreement(case: RandomCase) -> str | None:
    program = Program.parse(case.program)
    facts = list(case.states())[-1]
    return difference(evaluate(program, facts), clingo_peer.evaluate(program, facts), "clingo")


@pytest.mark.parametrize("seeds", seed_blocks(sample(200, 400), 20))
def test_agrees_with_clingo(seeds: range) -> None:
    check_cases(seeds, disagreement)


PRUNED = """
.decl e(x: number, y: number, z: number)
.decl s(x: number)
.decl p(x: number, y: number) {choice}
p(x, y) :- e(x, y, _).
{subsumption}
.decl q(x: number, y: number)
q(x, y) :- p(y, x), !p(x, y).
"""


@pytest.mark.parametrize(
    ("choice", "subsumption"),
    [
        ("choice-domain x", ""),
        ("choice-domain y", ""),
        ("choice-domain (x, y)", ""),
        ("", "p(x, d) <= p(x, e) :- e < d."),
        ("", "p(x, d) <= p(x, e) :- e < d. p(x, d) <= p(y, d) :- s(x), y < x."),
        ("", "p(x, d) <= p(x, e) :- e != d, s(x)."),
        ("", "p(x, _) <= p(y, _) :- e(x, y, _), !s(y)."),
        ("", "p(x, d) <= p(y, e) :- n = count : { e(x, _, _) }, n < count : e(y, _, _), d != e."),
    ],
)  # fmt: skip
def test_clingo_keeps_the_same_candidates(choice: str, subsumption: str) -> None:
    program = Program.parse(PRUNED.format(choice=choice, subsumption=subsumption))
    random = seeded(f"pruned {choice}{subsumption}")
    for _ in range(sample(15, 100)):
        sizes = {"e": 3, "s": 1, "p": 2}
        facts = {
            name: {
                tuple(random.randrange(4) for _ in range(arity)) for _ in range(random.randrange(9))
            }
            for name, arity in sizes.items()
        }
        found, expected = evaluate(program, facts), clingo_peer.evaluate(program, facts)
        assert difference(found, expected, "clingo") is None


# Dense in one feature each, so that none is only met by chance.
@pytest.mark.parametrize(
    "shape",
    [
        Shape(aggregates=1.0, linear=0.1, relations=(2, 4)),
        Shape(linear=1.0, nonlinear=1.0, mutual=1.0, aggregates=0.05),
        Shape(negation=1.0, negated_groups=0.6, disjunction=0.6),
        Shape(arithmetic=1.0, range=0.6, equalities=0.6, negative_numbers=1.0),
    ],
    ids=["aggregates", "recursion", "negation", "arithmetic"],
)
def test_agrees_with_clingo_on_one_feature(shape: Shape) -> None:
    chosen = case_seeds(15, offset=10_000)
    check_cases(chosen, disagreement, shape)


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        # An aggregate counts assignments, not values; `_` counts as a variable.
        (
            ".decl e(x: number, y: number) .decl n(c: number, s: number)\n"
            "n(c, s) :- c = count : { e(_, _) }, s = sum x : { e(x, _) }.",
            {"e": {(1, 1), (1, 2), (2, 2)}},
        ),
        # Count and sum of nothing are 0, min of nothing does not hold.
        (
            ".decl e(x: number) .decl n(c: number)\n"
            "n(c + s) :- c = count : { e(_) }, s = sum x : { e(x) }.\n"
            "n(m) :- m = min x : { e(x) }.",
            {},
        ),
        # Division and remainder cut towards zero.
        (
            ".decl e(x: number) .decl n(x: number, q: number, r: number)\n"
            "n(x, x / 2, x % 3) :- e(x).\nn(x, x / -2, x % -3) :- e(x).",
            {"e": {(-7,), (7,), (-1,), (0,)}},
        ),
        (
            ".decl n(x: number)\n"
            "n(x) :- x = range(3, -3).\n"
            "n(x) :- x = range(10, 20, 3).\n"
            "n(x) :- x = range(40, 30, -4).",
            {},
        ),
    ],
    ids=["assignments", "nothing", "division", "range"],
)
def test_agrees_with_clingo_where_languages_differ(
    program: str, facts: dict[str, set[tuple[int, ...]]]
) -> None:
    checked = Program.parse(program)
    found = evaluate(checked, facts)
    assert found["n"]
    assert difference(found, clingo_peer.evaluate(checked, facts), "clingo") is None
