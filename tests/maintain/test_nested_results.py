"""Joins as nested ranges: every part of the result, against all combinations of rows."""

from __future__ import annotations

import random
from itertools import product

import pytest

import tidelog
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.join.nesting import NestedResults, nested_results, nested_size
from tidelog.logic.program import Program
from tidelog.plan.body import LoweredRule
from tidelog.plan.lower import lower
from tidelog.plan.theta.nesting import nestings
from tidelog.store.versions import Version

GIVEN = """
    .decl r(k: number, j: number, x: number)
    .decl s(j: number, k: number, y: number)
    .decl t(k: number, z: number)
"""
LEAST, MOST = -(2**63), 2**63 - 1
Rows = list[tuple[int, ...]]


def engine_of(rule: str, facts: dict[str, Rows]) -> tuple[KernelEngine, LoweredRule]:
    """Return an engine that maintains a view, and the rule of the view."""
    columns = rule[rule.index("(") + 1 : rule.index(")")].split(", ")
    declared = ", ".join(f"{column}: number" for column in columns)
    program = f"{GIVEN}.decl v({declared})\n{rule}"
    engine = KernelEngine(Program.parse(program), {n: set(rows) for n, rows in facts.items()})
    (tree,) = [layer.tree for layer in engine.catalog.lowered.layers if layer.tree is not None]
    return engine, tree.parts[0].rule


def results_of(engine: KernelEngine, rule: LoweredRule) -> NestedResults:
    """Return the results of a rule that is a nesting."""
    found = nested_results(engine.catalog, rule, Version.NEW)
    assert found is not None
    return found


def in_parts(engine: KernelEngine, found: NestedResults, cuts: list[int]) -> Rows:
    """Return all results, written in parts."""
    rows: Rows = []
    for start, stop in zip([0, *cuts], [*cuts, found.size], strict=True):
        columns = found.columns(start, stop, engine.catalog.workers)
        rows += zip(*columns.tolist(), strict=True)
    return rows


@pytest.mark.parametrize("seeds", seed_blocks(sample(60, 3000), 20, offset=930_000))
def test_all_results_in_any_parts(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        most = rng.choice((3, 8, 40))
        low, high, shift = (rng.choice((-3, 0, 1, most)) for _ in range(3))
        below, above = rng.choice(("<", "<=")), rng.choice(("<", "<="))
        facts: dict[str, Rows] = {}
        for name, width in (("r", 3), ("s", 3), ("t", 2)):
            count = rng.choice((0, 1, 5, 30))
            facts[name] = [
                (*(rng.randrange(3) for _ in range(width - 1)), rng.randrange(most))
                for _ in range(count)
            ]
        edge = (LEAST, LEAST + 1, MOST - 1, MOST)
        if rng.random() < 0.2:
            facts["t"] = [(k, rng.choice((z, rng.choice(edge)))) for k, z in facts["t"]]
        band = f"x {below} y + {low}, y {above} x + {high}"
        rule, expected = rng.choice(
            [
                (f"v(k, j, x, y) :- r(k, j, x), s(j, k, y), {band}.", "band"),
                (f"v(z, k, j, x) :- r(k, j, x), t(k, z), z {below} x.", "two"),
                (
                    f"v(y, k, j, x, z) :- r(k, j, x), s(j, k, y), t(k, z), {band},"
                    f" x + {shift} {above} z.",
                    "three",
                ),
                (f"v(k, j, x, y, z) :- r(k, j, x), s(j, k, y), t(k, z), x {below} y.", "equal"),
            ]
        )

        def compare(op: str, left: int, right: int) -> bool:
            is_less: bool = left < right
            return is_less or (op == "<=" and left == right)

        wanted = set()
        for (k, j, x), (j2, k2, y), (k3, z) in product(
            facts["r"], facts["s"] if expected != "two" else [(0, 0, 0)],
            facts["t"] if expected != "band" else [(0, 0)],
        ):  # fmt: skip
            if expected != "two" and (j, k) != (j2, k2):
                continue
            if expected != "band" and k3 != k:
                continue
            in_band = compare(below, x, y + low) and compare(above, y, x + high)
            if expected == "band" and in_band:
                wanted.add((k, j, x, y))
            elif expected == "two" and compare(below, z, x):
                wanted.add((z, k, j, x))
            elif expected == "three" and in_band and compare(above, x + shift, z):
                wanted.add((y, k, j, x, z))
            elif expected == "equal" and compare(below, x, y):
                wanted.add((k, j, x, y, z))
        engine, lowered = engine_of(rule, facts)
        found = results_of(engine, lowered)
        cuts = sorted(rng.randint(0, found.size) for _ in range(rng.randint(0, 6)))
        rows = in_parts(engine, found, cuts)
        assert len(rows) == len(set(rows)) == found.size == len(engine.reader("v")), seed
        assert set(rows) == wanted, f"{seed}: {rule}"


def test_some_of_the_results_of_many() -> None:
    """Ranges of all lengths, and parts that several workers write; a chain of four atoms."""
    rng = seeded("nested results")
    size = 50
    facts: dict[str, Rows] = {
        "t": [(0, x) for x in rng.sample(range(10 * size), size)],
        "r": [(k, 0, x) for k, x in enumerate(rng.sample(range(10 * size), size))],
    }
    atoms = "t(h, a), t(i, b), r(k, j, c), t(l, d)"
    rule = f"v(h, a, i, b, k, j, c, l, d) :- {atoms}, a < b, b < c, c < d."
    engine, lowered = engine_of(rule, facts)
    found = results_of(engine, lowered)
    values = [x for _, x in facts["t"]]
    wanted = sum(
        sum(a < b for a in values for b in values if b < c) * sum(c < d for d in values)
        for _, _, c in facts["r"]
    )
    assert found.size == wanted > 1 << 16
    rows = in_parts(engine, found, [])
    assert len(set(rows)) == found.size
    assert all(a < b < c < d and facts["r"][k] == (k, 0, c) for _, a, _, b, k, _, c, _, d in rows)
    for _ in range(20):
        start = rng.randrange(found.size)
        stop = min(found.size, start + rng.randrange(300))
        assert in_parts(engine, found, [start, stop])[start:stop] == rows[start:stop]


@pytest.mark.parametrize("seeds", seed_blocks(sample(40, 2000), 20, offset=940_000))
def test_bounds_on_two_columns_are_counted(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        most, shift = rng.choice((3, 9, 60)), rng.randint(-3, 3)
        edge = rng.random() < 0.2
        facts: dict[str, Rows] = {}
        for name, width in (("r", 3), ("s", 3), ("t", 2)):
            count = rng.choice((0, 1, 7, 40))
            facts[name] = [tuple(rng.randrange(most) for _ in range(width)) for _ in range(count)]
        if edge:
            facts["r"] += [(k, rng.choice((LEAST, MOST)), x) for k, _, x in facts["r"][:5]]
        has_third = rng.random() < 0.4
        third = ", t(k, z), z <= x" if has_third else ""
        rule = (
            f"v(k, j, x, i, y{', z' * has_third}) :- r(k, j, x), s(i, k, y),"
            f" i <= j, x < y, y < x + {most // 2}, i > j - {most}{third}."
            if shift > 0
            else f"v(k, j, x, i, y{', z' * has_third}) :- r(k, j, x), s(i, k, y),"
            f" i <= j, x < y{third}."
        )
        wanted = 0
        for (k, j, x), (i, k2, y) in product(set(facts["r"]), set(facts["s"])):
            found = k == k2 and i <= j and x < y
            if shift > 0:
                found = found and y < x + most // 2 and j - most >= LEAST and i > j - most
            partners = sum(k3 == k and z <= x for k3, z in set(facts["t"])) if has_third else 1
            wanted += found * partners
        try:
            engine, lowered = engine_of(rule, facts)
        except tidelog.EvaluationError:
            assert edge and shift > 0
            continue
        assert nested_results(engine.catalog, lowered, Version.NEW) is None
        assert nested_size(engine.catalog, lowered, Version.NEW) == wanted, f"{seed}: {rule}"
        assert len(engine.reader("v")) == wanted


@pytest.mark.parametrize(
    "body",
    [
        "r(k, j, x), s(j, k, y), x < y, y != 3",  # a row is tested by itself
        "r(k, j, x), s(j, k, y), x < y, x + y < 7",
        "r(k, j, x), s(j, k, y), t(k, z), x < y, y < z, z < x + 9",  # cyclic
        "r(k, j, x), s(j, k, y), k < y, j < x",  # bounds on two attributes
        "r(k, j, x), s(j, k, y), x < y, !t(k, x)",
        "r(k, j, x), s(j, 1, y), x < y",
    ],
)
def test_what_is_no_nesting(body: str) -> None:
    text = f"{GIVEN}.decl v(k: number, j: number, x: number)\nv(k, j, x) :- {body}."
    layers = lower(Program.parse(text)).layers
    (rule,) = [r for layer in layers for r in layer.rules if r.head.relation == "v"]
    assert nestings(rule) == []


def test_more_results_than_can_be_numbered() -> None:
    size = 1 << 9
    facts: dict[str, Rows] = {"t": [(0, x) for x in range(size)]}
    names = [f"x{i}" for i in range(5)]
    atoms = ", ".join(f"t(k, {name})" for name in names)
    rule = f"v(k, {', '.join(names)}) :- {atoms}, x0 < x1."
    engine, lowered = engine_of(rule, facts)
    assert results_of(engine, lowered).size == size**4 * (size - 1) // 2
    with_more = KernelEngine(
        Program.parse(
            f"{GIVEN}.decl v(k: number, {', '.join(f'{name}: number' for name in names)})\n{rule}"
        ),
        {"t": [(0, x) for x in range(size**2)]},
    )
    assert nested_results(with_more.catalog, lowered, Version.NEW) is None
