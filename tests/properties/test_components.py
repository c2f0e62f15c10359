"""A program inside a component means the same as outside of it."""

from __future__ import annotations

import pytest

from tests.generators.programs import RandomCase, Shape, check_cases
from tests.properties.comparing import difference
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.logic.program import Program
from tidelog.reference import evaluate


def wrapped(case: RandomCase) -> str:
    """Return a program with two instances of the case, and one that inherits its declarations."""
    return "\n".join(
        [
            *case.types,
            ".comp Whole {", *map(str, (*case.declarations, *case.rules)), "}",
            ".comp Declared {", *map(str, case.declarations), "}",
            ".comp Ruled<T> : T {", *map(str, case.rules), "}",
            ".comp Outer { .init inner = Ruled<Declared> }",
            ".init one = Whole", ".init two = Outer",
        ]
    )  # fmt: skip


def disagreement(case: RandomCase) -> str | None:
    facts = list(case.states())[-1]
    expected = evaluate(Program.parse(case.program), facts)
    given = {f"{at}.{name}": rows for at in ("one", "two.inner") for name, rows in facts.items()}
    found = evaluate(Program.parse(wrapped(case)), given)
    for instance in ("one", "two.inner"):
        part = {name: found[f"{instance}.{name}"] for name in expected}
        if complaint := difference(expected, part, instance):
            return complaint
    return None


@pytest.mark.parametrize("seeds", seed_blocks(sample(40, 400), 20, offset=70_000))
def test_a_component_is_its_program(seeds: range) -> None:
    check_cases(seeds, disagreement, Shape(typed=0.3))
