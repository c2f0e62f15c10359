"""Counts, sums, means and extremes follow random changes: against the reference, all types."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.maintain.agreeing import assert_agree
from tests.samples import sample, until
from tests.seeds import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program
from tidelog.values.scalars import NAN

VALUES: dict[str, list[object]] = {
    "number": [-(2**63), -(2**62), -1, 0, 1, 7, 2**62, 2**63 - 1],
    "unsigned": [0, 1, 5, 2**31, 2**63 - 1, 2**63, 2**64 - 1],
    "decimal(18, 2)": [Decimal(n) / 100 for n in (-(10**18) + 1, -250, 0, 1, 99, 10**18 - 1)],
    "float": [-float("inf"), -1e300, -1.5, 0.0, 5e-324, 0.1, 2.25, 1e16, 1e300, float("inf"), NAN],
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
    .decl different(g: number, n: number)
    different(g, n) :- r(g, _, _), n = count x : {{ r(g, _, x) }}.
    .decl different_asked(g: number, n: number)
    different_asked(g, n) :- asked(g), n = count x : {{ r(g, x, _) }}.
    .decl averages(g: number, h: symbol, m: float)
    averages(g, h, m) :- r(g, h, _), m = mean x : {{ r(g, h, x) }}.
    .decl average_of_all(m: float)
    average_of_all(m) :- m = mean x : {{ r(_, _, x) }}.
    .decl totals(h: symbol, t: float)
    totals(h, t) :- r(_, h, _), t = total x : {{ r(_, h, x) }}.
    .decl total_of_all(t: float)
    total_of_all(t) :- t = total x : {{ r(_, _, x) }}.
    .decl total_of_some(g: number, t: float, n: number)
    total_of_some(g, t, n) :-
        asked(g), t = total x : {{ r(g, h, x), asked(k), k <= g, h != "c" }},
        n = count h : {{ r(g, h, x), asked(k), k <= g }}.
"""
OVER_OTHERS = """
    .decl step(x: number, y: number)
    step(x, y) :- counted(x, _), counted(y, n), y <= x + n.
    .decl reach(x: number, y: number)
    reach(x, y) :- step(x, y).
    reach(x, z) :- reach(x, y), step(y, z).
    .decl reached(x: number, n: number, m: float)
    reached(x, n, m) :-
        reach(x, _), n = count y : {{ reach(x, y) }}, m = mean y : {{ reach(x, y) }}.
    .decl of_results(s: number, t: float, m: float)
    of_results(s, t, m) :-
        s = sum n : {{ both(_, _, n) }}, t = total x : {{ totals(_, x) }},
        m = mean n : {{ different(_, n) }}.
"""
SUMMED = """
    .decl summed(g: number, s: {type})
    summed(g, s) :- asked(g), s = sum x : {{ r(g, _, x) }}.
    .decl summed_some(g: number, s: {type})
    summed_some(g, s) :- r(g, _, _), asked(g), s = sum x : {{ r(g, _, x) }}.
"""


@pytest.mark.parametrize("type_", ["number", "unsigned", "decimal(18, 2)", "float"])
@pytest.mark.parametrize("groups", [1, 4])
def test_random_changes(type_: str, groups: int) -> None:
    rng = seeded(f"sums{type_}{groups}")
    text = PROGRAM + OVER_OTHERS + SUMMED
    program = Program.parse(text.format(type=type_))
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    held: dict[str, set[tuple[object, ...]]] = {"r": set(), "asked": set()}
    failures = 0

    def is_enough() -> bool:
        return failures > 0 or type_ == "float"

    for _ in until(is_enough, least=sample(50, 100), most=500):
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
        except EvaluationError as error:
            failures += 1
            with pytest.raises(EvaluationError, match="overflows") as raised:
                kernel.apply(inserted, deleted)
            assert "summed" in str(raised.value) and "with: g = " in str(raised.value)
            if groups == 1:
                assert raised.value.reason == error.reason
                assert raised.value.values == error.values == {"g": 0}
            kernel.check()
            assert {name: kernel.rows(name) for name in program.relations} == {
                name: reference.rows(name) for name in program.relations
            }
            continue
        found = kernel.apply(inserted, deleted)
        assert_agree(program, kernel, reference, found, wanted)
        held = {name: (rows | inserted[name]) - deleted[name] for name, rows in held.items()}
    assert is_enough(), "no sum has overflowed"
    fresh = KernelEngine(program, held)
    for name in program.relations:
        assert kernel.levels_and_counts(name) == fresh.levels_and_counts(name), name


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


SHOPS = """
    .decl sale(shop: symbol, day: number, price: number)
    .decl revenue(shop: symbol, day: number, s: number)
    revenue(shop, day, s) :- sale(shop, day, _), s = sum p : { sale(shop, day, p) }.
"""


def test_an_overflow_names_the_view_and_the_group() -> None:
    program = Program.parse(SHOPS)
    given = {"sale": {("a", 1, 5), ("b", 2, 2**62), ("b", 1, 2**62), ("b", 2, 2**62 - 1)}}
    kernel, reference = KernelEngine(program, given), ReferenceEngine(program, given)
    messages = []
    for engine in (kernel, reference):
        with pytest.raises(EvaluationError) as raised:
            engine.apply({"sale": {("b", 2, 1)}}, {})
        messages.append(str(raised.value))
        with pytest.raises(EvaluationError) as raised:
            type(engine)(program, {"sale": given["sale"] | {("b", 2, 1)}})
        messages.append(str(raised.value))
    assert set(messages) == {
        "<program>:4:5: the sum of 3 values overflows `number`\n"
        "  rule: revenue(shop, day, s) :- sale(shop, day, _),"
        " s = sum p : { sale(shop, day, p) }.\n"
        "  with: shop = 'b', day = 2"
    }
    kernel.check()
    assert ("b", 2, 2**63 - 1) in kernel.rows("revenue")


def test_a_domain_that_widens_in_the_middle_of_an_epoch() -> None:
    """The epoch is undone and tried again: nothing is added twice."""
    program = Program.parse("""
        .decl r(g: number, v: number)
        .decl s(g: number, n: number)
        s(g, n) :- r(g, _), n = sum x : { r(g, x) }.
        .decl m(g: number, n: float)
        m(g, n) :- r(g, _), n = mean x : { r(g, x) }.
    """)
    kernel = KernelEngine(program, {"r": {(1, 1), (2, 5)}})
    kernel.apply({"r": {(1, x) for x in range(2, 40)}}, {"r": {(2, 5)}})
    kernel.apply({"r": {(3, -x) for x in range(40)}}, {})
    kernel.check()
    assert kernel.rows("s") == {(1, 780), (3, -780)}
    assert kernel.rows("m") == {(1, 20.0), (3, -19.5)}


def test_values_of_equal_rows_are_counted_once() -> None:
    program = Program.parse("""
        .decl r(g: number, h: number, v: number)
        .decl d(g: number, n: number)
        d(g, n) :- r(g, _, _), n = count x : { r(g, _, x) }.
        .decl k(g: number, n: number)
        k(g, n) :- d(g, _), n = count x : { d(g, x) }.
    """)
    kernel = KernelEngine(program, {"r": {(1, 1, 7), (1, 2, 7), (1, 3, 8)}})
    assert kernel.rows("d") == {(1, 2)}
    assert not kernel.apply({}, {"r": {(1, 1, 7)}}).changes.keys() - {"r"}
    kernel.apply({}, {"r": {(1, 2, 7)}})
    assert (kernel.rows("d"), kernel.rows("k")) == ({(1, 1)}, {(1, 1)})
    sources = [layer.aggregation.source for layer, _ in kernel.layers if layer.aggregation]
    assert sources[1] == "d", "the rows of `d` are different without a projection"


COPIED = """
    .decl r(g: number, v: number)
    .decl a(g: number, x: number)
    a(g, x) :- r(g, _), x = sum v : { r(g, v) }.
    .decl swapped(x: number, g: number)
    swapped(x, g) :- r(g, _), x = sum v : { r(g, v) }.
    .decl above(g: number)
    above(g) :- a(g, x), x > 3.
"""


def test_a_view_that_copies_sums_may_be_given_rows_as_well() -> None:
    rng = seeded("copied sums")
    program = Program.parse(COPIED)
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    held: dict[str, set[tuple[object, ...]]] = {name: set() for name in ("r", "a", "swapped")}
    for _ in range(60):
        inserted: dict[str, set[tuple[object, ...]]] = {}
        deleted: dict[str, set[tuple[object, ...]]] = {}
        for name in rng.sample(sorted(held), rng.randint(1, 3)):
            rows = [(rng.randrange(3), rng.randrange(5)) for _ in range(4)]
            inserted[name] = set(rows[:2])
            deleted[name] = (set(rows[2:]) | set(sorted(held[name])[:1])) - inserted[name]
            held[name] = (held[name] | inserted[name]) - deleted[name]
        found, wanted = kernel.apply(inserted, deleted), reference.apply(inserted, deleted)
        assert_agree(program, kernel, reference, found, wanted)
    results = kernel.catalog.passed_on
    assert results and not any(result.stored for result in results), "rows are stored twice"
    fresh = KernelEngine(program, held)
    for name in program.relations:
        assert kernel.levels_and_counts(name) == fresh.levels_and_counts(name), name
