"""Rules with one body and several heads are joined once, and mean what they mean one by one."""

from __future__ import annotations

import random

import pytest

from tests.generators.programs import RandomCase
from tests.maintain.comparing import Comparison
from tests.seeds import case_seeds
from tidelog import Database
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.join.bodies import by_body
from tidelog.maintain.elastic import Elastic

PROGRAM = """
.decl edge(x: number, y: number)
.decl given(a: number, b: number, c: number, d: number)
.decl wide(a: number, b: number, c: number, d: number)
.decl path(x: number, y: number)
.decl end(y: number)
.decl mark(y: number, x: number)
.decl far(x: number, y: number)
wide(a, b, c, d) :- given(a, b, c, d).
path(x, y) :- edge(x, y).
path(x, z), mark(z, y), end(z) :- path(x, y), edge(y, z), z != 3, !given(x, y, _, _).
wide(x, y, y, z), mark(x, z), path(z, x) :- mark(z, y), wide(_, _, y, x), edge(y, z).
wide(x, y, 1, x), end(7) :- end(x), path(x, y), far(_, _).
far(y, x), end(n) :- path(x, y), n = x + y, n < 30.
"""


def edges(rng: random.Random, size: int) -> list[tuple[int, int]]:
    return [(rng.randrange(12), rng.randrange(12)) for _ in range(size)]


def the_recursion(kernel: KernelEngine) -> Elastic:
    (found,) = [one for one in kernel.strategies if isinstance(one, Elastic)]
    return found


@pytest.mark.parametrize("seed", case_seeds(12, offset=41_000))
def test_levels_and_counts_are_those_of_the_rules(seed: int) -> None:
    rng = random.Random(seed)
    facts = {
        "edge": frozenset(edges(rng, 20)),
        "given": frozenset({(1, 2, rng.randrange(12), 4)}),
    }
    epochs = tuple({"edge": (edges(rng, 2), edges(rng, 3))} for _ in range(4))
    Comparison().check(RandomCase(seed, (), (), facts, epochs, types=(PROGRAM,)))


def test_which_rules_are_joined_once() -> None:
    kernel = kernel_of(Database(PROGRAM))
    recursion = the_recursion(kernel)
    bodies = by_body(kernel.catalog, recursion.joins)
    # The last rule computes a sum, which can fail, and the one before has constants in its heads:
    # these are joined head by head.
    assert sorted(len(body.heads) for body in bodies) == [1, 1, 1, 1, 1, 1, 3, 3]
