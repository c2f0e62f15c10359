"""Counts, sums and extremes follow random changes: against the reference engine, all types."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.kernel.words import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.oracle import ReferenceEngine
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program

VALUES: dict[str, list[object]] = {
    "number": [-(2**63), -(2**62), -1, 0, 1, 7, 2**62, 2**63 - 1],
    "unsigned": [0, 1, 5, 2**31, 2**63 - 1, 2**63, 2**64 - 1],
    "decimal(18, 2)": [Decimal(n) / 100 for n in (-(10**18) + 1, -250, 0, 1, 99, 10**18 - 1)],
    "float": [-float("inf"), -1.5, 0.0, 2.25, 1e300, float("inf")],
}
PROGRAM = """
    .decl r(g: number, h: symbol, v: {type})
    .decl asked(g: number)
    .decl counted(g: number, n: number)
    counted(g, n) :- r(g, _, _), n = count : {{ r(g, _, _) }}.
    .decl both(g: number, h: symbol, n: number)
    both(g, h, n) :- r(g, h, _), n = count : {{ r(g, h, _) }}.
    .decl all_rows(n: number)
    all_rows(n) :- n = count : {{ r(_, _, _) }}.
    .decl least(g: number, v: {type})
    least(g, v) :- r(g, _, _), v = min x : {{ r(g, _, x) }}.
    .decl most(h: symbol, v: {type})
    most(h, v) :- r(_, h, _), v = max x : {{ r(_, h, x) }}.
"""
SUMMED = """
    .decl summed(g: number, s: {type})
    summed(g, s) :- asked(g), s = sum x : {{ r(g, _, x) }}.
"""


@pytest.mark.parametrize("type_", ["number", "unsigned", "decimal(18, 2)", "float"])
@pytest.mark.parametrize("groups", [1, 4])
def test_random_changes(type_: str, groups: int) -> None:
    rng = seeded(f"sums{type_}{groups}")
    text = PROGRAM + (SUMMED if type_ != "float" else "")
    program = Program.parse(text.format(type=type_))
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    held: dict[str, set[tuple[object, ...]]] = {"r": set(), "asked": set()}
    failures = 0
    for _ in range(150):
        inserted: dict[str, set[tuple[object, ...]]] = {"r": set(), "asked": set()}
        deleted: dict[str, set[tuple[object, ...]]] = {"r": set(), "asked": set()}
        for _ in range(rng.randint(0, 4)):
            row = (rng.randrange(groups), rng.choice("abc"), rng.choice(VALUES[type_]))
            inserted["r"].add(row)
        for name, rows in held.items():
            some = rng.sample(sorted(rows, key=repr), min(len(rows), rng.randint(0, 3)))
            deleted[name] = set(some) - inserted[name]
        if rng.random() < 0.4:
            inserted["asked"].add((rng.randrange(groups),))
            deleted["asked"] -= inserted["asked"]
        try:
            wanted = reference.apply(inserted, deleted)
        except EvaluationError:
            failures += 1
            with pytest.raises(EvaluationError):
                kernel.apply(inserted, deleted)
            continue
        found = kernel.apply(inserted, deleted)
        for name in program.relations:
            assert kernel.rows(name) == reference.rows(name), name
            assert (name in found.changes) == (name in wanted.changes), name
            if name in found.changes:
                assert found.changes[name].inserted == wanted.changes[name].inserted
                assert found.changes[name].deleted == wanted.changes[name].deleted
        kernel._check()
        held = {name: (rows | inserted[name]) - deleted[name] for name, rows in held.items()}
    assert failures > 0 or type_ == "float", "no sum has overflowed"
    fresh = KernelEngine(program, held)
    for name in program.relations:
        assert kernel.state(name) == fresh.state(name), name


def test_what_overflows_on_the_way_is_no_error() -> None:
    program = Program.parse("""
        .decl r(v: number)
        .decl s(n: number)
        s(n) :- n = sum x : { r(x) }.
    """)
    large = 2**63 - 1
    kernel = KernelEngine(program, {"r": {(large,), (-large,), (large - 1,), (-5,)}})
    assert kernel.rows("s") == {(large - 6,)}
    kernel.apply({"r": {(large - 2,)}}, {"r": {(large,), (-5,)}})
    assert kernel.rows("s") == {(large - 3,)}
