"""Questions that are answered on demand, and views that are watched without storing them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from tidelog.bench.facts import Pair
from tidelog.bench.machine import resident_bytes
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import Changes, bootstrap, change

EDGE = ".decl edge(x: number, y: number)\n"
REACH = f"""
{EDGE}
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""
SAME_GENERATION = """
.decl parent(child: number, parent: number)
.decl same(x: number, y: number)
same(x, x) :- parent(_, x).
same(x, y) :- parent(x, p), parent(y, q), same(p, q).
"""
QUERIES, TREE, WATCHED = "a closure", "a binary tree", "a watched closure"
EVALUATE, FORWARD, BACKWARD = "evaluate the view", "from one node", "to one node"
STORED = "from one node, of the stored view"
PAIR = "one pair of the same generation"
FACT = "one fact, without storing the view"
PROOF = "the rows of one fact, proved"
VIEW_BYTES, FACT_BYTES = "bytes of the view", "bytes of the facts"
ALONE = "bytes of the facts without the view"
GROWTH = "bytes that the epochs have added"


def _random_graph(nodes: int, edges: int, seed: int) -> list[Pair]:
    rng = random.Random(seed)
    return sorted({(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(edges)})


def _median(ask: Callable[[int], object], values: Sequence[int]) -> float:
    """Return the median time of a question about each of some values."""
    ask(values[0])  # plans it
    times = []
    for value in values:
        start = time.perf_counter()
        ask(value)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _closure(request: Request) -> Iterator[Figure]:
    from tidelog.database.core import Options
    from tidelog.database.database import open_database

    nodes = 3_000 if request.is_full else 300
    edges = _random_graph(nodes, 2 * nodes, 7)
    evaluations = [bootstrap(REACH, {"edge": edges})[1] for _ in range(2)]
    stored, seconds = bootstrap(REACH, {"edge": edges})
    seconds = statistics.median([*evaluations, seconds])
    yield Figure(EVALUATE, seconds, len(stored.view("reach")))
    facts = open_database(REACH, Options(on_demand=True), {"edge": edges})
    values = random.Random(8).sample(range(nodes), 50)
    found = len(facts.query(f"reach({values[0]}, x)"))
    yield Figure(FORWARD, _median(lambda v: facts.query(f"reach({v}, x)"), values), found)
    yield Figure(BACKWARD, _median(lambda v: facts.query(f"reach(x, {v})"), values))
    yield Figure(STORED, _median(lambda v: stored.query(f"reach({v}, x)"), values))


def _tree(request: Request) -> Iterator[Figure]:
    from tidelog.bench.exercises import warm_up
    from tidelog.database.core import Options
    from tidelog.database.database import open_database

    warm_up()
    depth = 15 if request.is_full else 8
    tree = [(i, i // 2) for i in range(2, 2 ** (depth + 1))]
    facts = open_database(SAME_GENERATION, Options(on_demand=True), {"parent": tree})
    start = time.perf_counter()
    assert facts.query(f"same({2**depth}, {2 ** (depth + 1) - 1})")
    yield Figure(PAIR, time.perf_counter() - start, note="with its planning")


def _watched(request: Request) -> Iterator[Figure]:
    """Trees of a thousand nodes: an edge near a leaf changes few rows of a closure of millions."""
    size = 1_000_000 if request.is_full else 10_000
    edges = [(i // 2 if i % 1000 > 1 else i - 1, i) for i in range(1, size + 1)]
    yield Figure(ALONE, None, _bytes_alone(edges), note="in one order")
    program = REACH + ".view reach(virtual=true)\n"
    database, seconds = bootstrap(program, {"edge": edges})
    yield Figure("load the facts", seconds, size)
    changes = Changes()
    rng = random.Random(9)
    proved: list[float] = []
    touched: list[float] = []
    resident = 0  # after the first epoch, which has planned the questions
    for _ in range(100 if request.is_full else 20):
        edge = edges[rng.randrange(size // 2, size)]
        for kind in ("deleted", "inserted"):
            if kind == "inserted" and not resident:
                resident = resident_bytes()
            changes.add(database, change(database, **{kind: [("edge", edge)]}))
            layer = database.last_epoch.layer("reach")
            assert layer is not None
            proved.append(layer.filtered)
            touched.append(layer.touched / max(1, layer.filtered))
    yield from changes.figures(FACT)
    yield Figure(
        PROOF, None, round(statistics.mean(proved)),
        note=f"{statistics.mean(touched):.1f} instantiations each",
    )  # fmt: skip
    view, facts = database.memory["reach"], database.memory["edge"]
    yield Figure(VIEW_BYTES, None, view, note="in its relation")
    yield Figure(FACT_BYTES, None, facts, note="in the orders that are read")
    yield Figure(GROWTH, None, max(0, resident_bytes() - resident), note="of the process")


def _bytes_alone(edges: list[Pair]) -> int:
    """Return the memory of facts that no view watches, after a change as the others have it."""
    database, _ = bootstrap(EDGE, {"edge": edges})
    change(database, deleted=[("edge", edges[0])])
    change(database, inserted=[("edge", edges[0])])
    return database.memory["edge"]


def _times_faster(figures: SuiteFigures, what: str) -> float:
    return figures.seconds(EVALUATE, QUERIES) / figures.seconds(what, QUERIES)


def _rows(figures: SuiteFigures, what: str) -> int:
    return figures.figure(what, WATCHED).rows or 0


SUITE = Suite(
    "virtual",
    "questions that are answered on demand, and a view that is watched and not stored",
    (
        BenchCase(OURS, _closure, QUERIES),
        BenchCase(OURS, _tree, TREE),
        BenchCase(OURS, _watched, WATCHED),
    ),
    (
        Target(
            "from one node, against an evaluation", 100.0, "x",
            lambda found: _times_faster(found, FORWARD), at_least=True,
        ),
        Target(
            "to one node, against an evaluation", 100.0, "x",
            lambda found: _times_faster(found, BACKWARD), at_least=True,
        ),
        Target(
            "memory that epochs have added, part of the facts", 10.0, " %",
            lambda found: 100 * _rows(found, GROWTH) / _rows(found, FACT_BYTES),
        ),
        Target(
            "memory of facts and view, part of the facts without the view", 110.0, " %",
            lambda found: 100 * (_rows(found, FACT_BYTES) + _rows(found, VIEW_BYTES))
            / _rows(found, ALONE),
        ),
        Target("one pair of the same generation", 1.0, " s", lambda f: f.seconds(PAIR, TREE)),
    ),
)  # fmt: skip
