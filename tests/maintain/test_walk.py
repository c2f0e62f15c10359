"""Linear recursions, whose levels the kernel walks through by itself (maintain/walk.py)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.generators.programs import RandomCase
from tests.maintain.comparing import Comparison, always_update
from tests.samples import until
from tests.seeds import case_seeds
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.maintain import repair, settle_queue, walk

PROGRAMS = {
    "closure": """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), edge(y, z).
    """,
    "two recursive rules": """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, y) :- edge(x, y), x != 3.
        path(x, z) :- path(x, y), edge(y, z), x != z.
        path(z, y) :- edge(z, x), path(x, y), !edge(z, y).
    """,
    "three words": """
        .decl edge(x: number, y: number)
        .decl path(x: number, a: number, y: number, b: number, c: number)
        path(x, x * 4611686018427387, y, y - 9007199254740993, 0 - x) :- edge(x, y).
        path(x, a, z, b, c) :- path(x, a, y, b, c), edge(y, z).
    """,
    "arithmetic": """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, 8 / (y - 4)) :- edge(x, y), y != 4.
        path(x, z + y) :- path(x, y), edge(y, z), y + z < 12.
    """,
    "constants": """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(1, y) :- edge(1, y).
        path(y, y) :- path(_, y), edge(y, _).
        path(x, z) :- path(x, 2), edge(2, z), edge(z, x).
    """,
    "text": """
        .decl edge(x: number, y: number)
        .decl path(x: symbol, y: number)
        path(to_string(x), y) :- edge(x, y).
        path(x, z) :- path(x, y), edge(y, z), strlen(x) > 0.
    """,
}  # fmt: skip
# Not where Python computes something, nor where rows are found by a constant among sorted ones.
WALKED = set(PROGRAMS) - {"text", "constants"}


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count walks; let them begin with hardly any room, so that they ask for more."""
    seen: Counter[str] = Counter()
    monkeypatch.setattr(walk, "_FIRST_ROOM", 2)
    monkeypatch.setattr(walk, "_CHUNK", 3)
    monkeypatch.setattr(settle_queue, "_FIRST_SIZE", 4)
    for name in ("lose", "settle"):
        original = getattr(walk.Walk, name)

        def counted(*args: object, name: str = name, original: object = original) -> object:
            seen[name] += 1
            return original(*args)  # type: ignore[operator]

        monkeypatch.setattr(walk.Walk, name, counted)
    return seen


def _case(program: str, seed: int) -> RandomCase:
    rng = random.Random(seed)
    nodes = rng.choice((5, 8, 12))

    def edges(n: int) -> list[tuple[int, int]]:
        return [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(n)]

    facts = {"edge": frozenset(edges(nodes + rng.randrange(nodes)))}
    epochs: Any = tuple(
        {"edge": (edges(rng.randrange(3)), edges(rng.randrange(4)))} for _ in range(8)
    )
    rules: Any = (program,)
    return RandomCase(seed, (), rules, facts, epochs)


def has_walked(walks: Counter[str]) -> bool:
    return walks["lose"] > 5 and walks["settle"] > 5


@pytest.mark.parametrize("name", PROGRAMS)
def test_walks_give_what_a_bootstrap_gives(name: str, walks: Counter[str]) -> None:
    comparison = Comparison(always_update)
    seeds = case_seeds(60, offset=64_000)
    for number in until(lambda: has_walked(walks) == (name in WALKED), least=12, most=60):
        print("seed", seeds[number])
        comparison.check(_case(PROGRAMS[name], seeds[number]))
    assert has_walked(walks) == (name in WALKED), walks


def test_a_long_chain(walks: Counter[str]) -> None:
    """A cut in the middle moves half of the rows by hundreds of levels."""
    program = Program.parse(PROGRAMS["closure"])
    chain = {(i, i + 1) for i in range(150)} | {(200, 0), (60, 201), (201, 202), (202, 75)}
    kernel = KernelEngine(program, {"edge": chain})
    always_update(kernel)
    for inserted, deleted in (
        (set(), {(70, 71)}), ({(70, 71)}, {(60, 201)}), ({(3, 140)}, set()),
    ):  # fmt: skip
        chain = (chain - deleted) | inserted
        kernel.apply({"edge": inserted}, {"edge": deleted})
        kernel.check()
        fresh = KernelEngine(program, {"edge": chain})
        for name in ("edge", "path"):
            assert kernel.rows(name) == fresh.rows(name)
    assert walks == {"lose": 2, "settle": 2}


def test_counts_wider_than_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk asks for wide counts, and goes on from the same instantiation."""
    program = Program.parse(PROGRAMS["closure"])
    edges = {(0, 1), (1, 2), (0, 3), (3, 4), (4, 2), (2, 5), (2, 6)}
    kernel = KernelEngine(program, {"edge": edges})
    always_update(kernel)
    relation = kernel.catalog.relations["path"]
    relation.set_counts(
        relation.find(relation.rows()), np.full(len(relation), (1 << 31) - 1, np.int64)
    )
    relation.primary.counts_undo.clear()
    kernel.apply({"edge": {(1, 7), (7, 2), (3, 8), (8, 9), (9, 5)}}, {})
    assert (0, 9) in kernel.rows("path")


def test_only_linear_strata_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> object:
        raise AssertionError("walked")

    monkeypatch.setattr(repair, "Walk", never)
    program = Program.parse("""
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), path(y, z).
    """)
    kernel = KernelEngine(program, {"edge": {(i, i + 1) for i in range(20)}})
    always_update(kernel)
    kernel.apply({}, {"edge": {(4, 5)}})
    assert (3, 5) not in kernel.rows("path")
