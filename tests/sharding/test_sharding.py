"""What the analysis finds for programs of known shape; that it is right is tested at random."""

from __future__ import annotations

import pytest

from tests.seeds import seeded
from tests.sharding.sharded import InShards, routed
from tidelog.logic.program import Program
from tidelog.reference import evaluate
from tidelog.sharding.describing import describe
from tidelog.sharding.layout import ShardLayout, lay_out, layout_on
from tidelog.sharding.router import Router, hash_column, hash_symbols
from tidelog.sharding.sharding import Grid
from tidelog.values.types import NUMBER, SYMBOL

REACH = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""
TRIANGLES = """
.decl e(x: number, y: number)
.decl t(x: number, y: number, z: number)
t(x, y, z) :- e(x, y), e(y, z), e(z, x).
"""


def found(text: str, shards: int = 4) -> list[str]:
    program = Program.parse(text)
    return [line.strip() for line in describe(lay_out(program, shards))]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (REACH, ["edge: by x, and whole in every shard", "reach: by x"]),
        (
            ".decl a(k: number, x: number)\n.decl b(x: number, k: number)\n"
            ".decl v(n: number, k: number)\n"
            "v(n, k) :- a(k, _), !b(1, k), n = count : { b(_, k) }.\n",
            ["a: by k", "b: by k", "v: by k"],
        ),
        (
            ".decl a(k: number, x: number)\n.decl p(x: number)\np(x) :- a(k, x), k < 3, x = k.\n",
            ["a: by k", "p: by x"],
        ),
        (
            ".decl a(k: number, x: number)\n.decl p(x: number)\np(x + k) :- a(k, x).\n",
            ["a: by k", "p: where it is derived, counted once"],
        ),
        (
            ".decl a(k: number, x: number)\n.decl p(x: number)\n.decl q(k: number, x: number)\n"
            "p(x + 1) :- a(_, x).\nq(k, x) :- a(k, x), !p(x).\n",
            [
                "stage 1",
                "a: by x",
                "p: where it is derived, counted once",
                "exchange of a, from stage 1",
                "exchange of p, from stage 1, counted by shard",
                "stage 2",
                "a: by x",
                "p: by x",
                "q: by x",
                "p, as received: by x",
            ],
        ),
        (
            ".decl price[i: number]: number\n.decl a(i: number)\n.decl p(x: number)\n"
            "p(price[i]) :- a(i).\n",
            ["price: by i", "a: by i", "p: where it is derived, counted once"],
        ),
        (".decl on()\n.decl a(x: number)\n.decl b(x: number)\nb(x) :- a(x), on().\n",
         ["on: whole in every shard", "a: by x", "b: by x"]),
    ],
)  # fmt: skip
def test_where_rows_are(text: str, lines: list[str]) -> None:
    title, *others = found(text)
    assert others == lines
    assert title == ("4 shards, 2 stages" if "stage 2" in lines else "4 shards")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            ".decl a(x: number)\n.decl n(n: number)\nn(n) :- n = count x : { a(x) }.\n",
            "none of the grouping columns of its aggregates shards everything that they read",
        ),
        (
            ".decl e(x: number, y: number)\n.decl r(x: number, y: number)\n"
            "r(x, y) :- e(x, y).\nr(x, z) :- r(x, y), r(y, z).\n",
            "no column has the same variable throughout its recursive rules",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_sharded(text: str, why: str) -> None:
    (line,) = found(text)
    assert line.startswith("not sharded: every shard would need all rows of all relations")
    assert why in line


def test_triangles_on_a_box() -> None:
    program = Program.parse(TRIANGLES)
    for shards, sides in ((2, (2,)), (4, (2, 2)), (8, (2, 2, 2))):
        layout = lay_out(program, shards)
        assert isinstance(layout, ShardLayout)
        (sharding,) = layout.shardings
        assert sharding.grid.sides == sides
        rng = seeded(f"triangles {shards}")
        rows = {(rng.randrange(12), rng.randrange(12)) for _ in range(60)}
        engines = InShards(program, sharding, {"e": rows})
        assert engines.rows("t") == evaluate(program, {"e": rows})["t"]
        largest = max(sum(len(e.rows(n)) for n in e._program.relations if n != "t")
                      for e in engines.engines)  # fmt: skip
        assert largest < 3 * len(rows)
        new = {(1, 2), (2, 3), (3, 1)}
        gone = set(list(rows)[::3]) - new  # an engine gets net changes: no row is in both
        engines.apply({"e": new}, {"e": gone})
        now = (rows - gone) | new
        assert engines.rows("t") == evaluate(program, {"e": now})["t"]


def test_the_same_program_is_always_sharded_alike() -> None:
    for text in (REACH, TRIANGLES):
        for sides in ((5,), (2, 2), (4, 2, 1)):
            made = [layout_on(Program.parse(text), Grid(sides)) for _ in range(3)]
            assert made[0] == made[1] == made[2]


def test_shares_of_rows_are_even_and_hashes_are_those_of_values() -> None:
    import pyarrow as pa

    texts = ["", "a", "b", "ab", "ba", "ä€", *(f"key {n}" for n in range(2000))]
    hashes = hash_column(texts, SYMBOL)
    assert len(set(hashes.tolist())) == len(texts)
    assert (hash_symbols(pa.array(texts)[3:]) == hashes[3:]).all()
    # Written down: a state that is there has its rows in these shards.
    assert hash_column([0, 1, -1], NUMBER).tolist() == NUMBERS
    assert hash_column(["", "a", "ab"], SYMBOL).tolist() == TEXTS
    program = Program.parse(REACH)
    (sharding,) = layout_on(program, Grid((4,))).shardings
    edges = {"edge": {(n, n % 3) for n in range(4000)}}
    parts = routed(program, Router(program, sharding), edges)
    assert all(800 < len(part["edge"]) < 1200 for part in parts)
    assert all(len(part["edge@by_all"]) == 4000 for part in parts)


NUMBERS = [16294208416658607535, 10451216379200822465, 16490336266968443936]
TEXTS = [16294208416658607535, 15154452856141135343, 15470777570142415188]


@pytest.mark.parametrize("strategy", ["elastic", "recompute"])
def test_a_forced_strategy_is_that_of_every_shard(strategy: str) -> None:
    program = Program.parse(REACH + f'.view reach(strategy="{strategy}")\n')
    layout = lay_out(program, 3)
    assert isinstance(layout, ShardLayout)
    (sharding,) = layout.shardings
    edges = {(n, n + 1) for n in range(20)}
    shards = InShards(program, sharding, {"edge": edges})
    for engine in shards.engines:
        assert [s.name for layer, s in engine.layers if "reach" in layer.relations] == [strategy]
    shards.apply({}, {"edge": {(9, 10)}})
    assert shards.rows("reach") == evaluate(program, {"edge": edges - {(9, 10)}})["reach"]
