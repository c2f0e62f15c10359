"""The reference engine agrees with DuckDB where SQL can say what the program says."""

from __future__ import annotations

import pytest

from tests.generators.programs import RandomCase, Shape, check_cases
from tests.properties import duckdb_peer
from tests.properties.comparing import difference
from tests.samples import until
from tests.seeds import seed_blocks
from tidelog.logic.program import Program
from tidelog.reference import evaluate

SHAPE = Shape(
    relations=(2, 5), mutual=0, nonlinear=0, range=0, disjunction=0, arithmetic=0.15, wide=0.4
)


@pytest.mark.parametrize("seeds", seed_blocks(160, 16, offset=20_000))
def test_agrees_with_duckdb(seeds: range) -> None:
    compared = 0

    def disagreement(case: RandomCase) -> str | None:
        nonlocal compared
        program = Program.parse(case.program)
        facts = list(case.states())[-1]
        try:
            theirs = duckdb_peer.evaluate(program, facts)
        except duckdb_peer.Unsupported:
            return None
        compared += 1
        return difference(evaluate(program, facts), theirs, "DuckDB")

    more = range(seeds.start, seeds.start + 10 * len(seeds))
    for number in until(lambda: compared >= 6, least=len(seeds), most=len(more)):
        check_cases(more[number : number + 1], disagreement, SHAPE)
    assert compared >= 6, "too few programs are in the subset"


def test_transitive_closure() -> None:
    program = Program.parse(
        ".decl edge(x: number, y: number) .decl reach(x: number, y: number)\n"
        ".decl apart(x: number, y: number) .decl degree(x: number, n: number)\n"
        "reach(x, y) :- edge(x, y).\n"
        "reach(x, z) :- reach(x, y), edge(y, z).\n"
        "apart(x, y) :- edge(x, _), edge(_, y), !reach(x, y).\n"
        "degree(x, n) :- edge(x, _), n = count : { edge(x, _) }.\n"
    )
    big = 2**53
    edges = {(1, 2), (2, 3), (3, 1), (big, big + 1), (big + 1, -(2**63)), (2**63 - 1, 1)}
    found = evaluate(program, {"edge": edges})
    assert len(found["reach"]) == 15 and found["apart"]
    assert difference(found, duckdb_peer.evaluate(program, {"edge": edges}), "DuckDB") is None
