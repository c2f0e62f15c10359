"""How programs of known shape are cut into stages, and the shares of large relations in shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seeded
from tests.sharding.sharded import routed
from tests.sharding.staged import InStages
from tidelog.logic.program import Program
from tidelog.reference import evaluate
from tidelog.sharding.layout import ShardLayout, laid_out, lay_out
from tidelog.sharding.router import Router
from tidelog.sharding.sharding import Grid
from tidelog.sharding.splitting import Split, splits

REGIONS = """
.decl sale(id: number, shop: number, amount: number)
.decl shop(shop: number, region: symbol)
.decl total(region: symbol, s: number)
total(r, s) :- shop(_, r), s = sum x : { sale(_, p, x), shop(p, r) }.
"""
Q3 = """
.decl customer(c: number, segment: symbol)
.decl orders(o: number, c: number, day: number)
.decl lineitem(o: number, line: number, price: number)
.decl q3(o: number, day: number, revenue: number)
q3(o, d, r) :- customer(c, "B"), orders(o, c, d), d < 50, r = sum x : { lineitem(o, _, x) }.
"""
HOPS = """
.decl edge(x: number, y: number)
.decl two(x: number, z: number)
two(x, z) :- edge(x, y), edge(y, z).
"""
FRAUD = Path(__file__).parents[2] / "examples" / "fraud" / "fraud.dl"


def layout_of(text: str, shards: int) -> ShardLayout:
    made = lay_out(Program.parse(text), shards)
    assert isinstance(made, ShardLayout)
    return made


def shares(layout: ShardLayout, given: Mapping[str, set[Any]]) -> dict[str, float]:
    """Return the largest share of any stored variant of each relation that a shard has."""
    found: Counter[str] = Counter()
    for program, sharding in zip(layout.programs, layout.shardings, strict=True):
        own = {name: rows for name, rows in given.items() if name in program.relations}
        for part in routed(program, Router(program, sharding), own):
            for variant in sharding.variants:
                rows = part.get(sharding.name_of(variant), ())
                if variant.relation in own:
                    share = len(rows) / len(own[variant.relation])
                    found[variant.relation] = max(found[variant.relation], share)
    return dict(found)


@pytest.mark.parametrize("shards", [4, 16])
@pytest.mark.parametrize("name", ["regions", "q3", "hops", "fraud"])
def test_no_shard_has_much_more_than_its_share(name: str, shards: int) -> None:
    rng = seeded("shares", name, shards)
    few, many = range(10_000), range(30_000)
    text, facts = {
        "regions": (REGIONS, {"sale": {(i, rng.choice(few), 1) for i in many}}),
        "q3": (
            Q3,
            {
                "customer": {(c, "B") for c in few},
                "orders": {(o, rng.choice(few), 1) for o in few},
                "lineitem": {(rng.choice(few), i, 1) for i in many},
            },
        ),
        "hops": (HOPS, {"edge": {(rng.choice(few), rng.choice(few)) for _ in many}}),
        "fraud": (FRAUD.read_text(), {}),
    }[name]
    layout = layout_of(text, shards)
    assert all(share <= 1.3 / shards for share in shares(layout, facts).values())
    whole = {"regions": "sale shop", "q3": "customer orders lineitem", "hops": "edge"}
    large = whole.get(name, "payment small tried risk")
    assert not set(large.split()) & set(layout.whole())


def test_equal_partial_results_of_two_shards_are_two() -> None:
    program = Program.parse(
        ".decl a(x: number)\n.decl t(s: number, n: number)\n"
        "t(s, n) :- s = sum x : { a(x) }, n = count : { a(_) }.\n"
    )
    (split,) = splits(program)
    made = laid_out(split, Grid((8,)))
    assert made is not None
    cells = InStages(program, made[1], {"a": {(x,) for x in range(100)}})
    assert cells.rows("t") == {(4950, 100)}
    sent = cells.engines[1][0].rows(made[1].exchanges[1].received)
    assert len({row[:-1] for row in sent}) < len(sent) == 8  # two shards have as many rows
    cells.apply({"a": {(1000,)}}, {"a": {(5,), (7,)}})
    assert cells.rows("t") == {(5938, 99)}


def test_a_row_that_two_shards_derive_is_there_as_long_as_one_does() -> None:
    """It is exchanged with the number of each of them."""
    program = Program.parse(
        ".decl a(k: number, x: number)\n.decl b(x: number)\n.decl p(x: number)\n"
        ".decl q(x: number)\n"
        "p(x % 3) :- a(_, x).\nq(x) :- b(x), !p(x).\n"
    )
    made = laid_out(Split(program, frozenset({"p"})), Grid((5,)))
    assert made is not None
    (exchange,) = (e for e in made[1].exchanges if e.relation == "p")
    assert exchange.is_counted
    rows = {(k, k) for k in range(30)}
    given = {"a": rows, "b": {(0,), (1,), (2,)}}
    cells = InStages(program, made[1], given)
    assert cells.rows("q") == frozenset()
    for k in range(0, 30, 3):
        gone = {(k, k)}
        rows -= gone
        changes = cells.apply({}, {"a": gone})
        now = evaluate(program, {**given, "a": rows})["q"]
        assert cells.rows("q") == now
        assert changes["q"] == ((now, frozenset()) if k == 27 else (frozenset(), frozenset()))
    assert cells.rows("q") == {(0,)}


@pytest.mark.parametrize(
    "body",
    [
        "s = sum x / y : { a(g, x), a(g, y) }",  # it may fail in a group that has no `g`
        "s = count x : { a(g, x) }",  # distinct values
        "s = sum x : { a(g, x), x > m }, m = max y : { a(g, y) }",
        "s = sum x : { a(h, x) }, h = g + 1",  # the group is computed
    ],
)
def test_what_has_no_partial_results(body: str) -> None:
    program = Program.parse(
        ".decl g(g: number)\n.decl a(g: number, x: number)\n.decl p(g: number, s: number)\n"
        f"p(g, s) :- g(g), {body}.\n"
    )
    assert not any("@part" in name for split in splits(program) for name in split.program.relations)
