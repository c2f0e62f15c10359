"""Transitive closure of a random graph: the simplest recursion."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from tidelog.bench import differential
from tidelog.bench.facts import Pair, random_graph
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import Changes, bootstrap, bootstrap_figure, change, percentile

PROGRAM = """
.decl edge(x: number, y: number)
.decl path(x: number, y: number)
path(x, y) :- edge(x, y).
path(x, z) :- path(x, y), edge(y, z).
"""

RECURSIVE_QUERY = """
WITH RECURSIVE path(x, y) AS (
    SELECT x, y FROM edge
    UNION
    SELECT path.x, edge.y FROM path JOIN edge ON path.y = edge.x
)
SELECT * FROM path
"""

UPDATE = "one edge"
UPDATES = 20
DUCKDB = ("duckdb, 1 thread", "duckdb")
LARGE, MEDIUM = "large graph", "medium graph"


def _large(request: Request) -> list[Pair]:
    """Return a graph with 5,576,465 paths, or with 97,993."""
    return random_graph(6800, 8160, 2) if request.is_full else random_graph(1500, 1750, 2)


def _medium(request: Request) -> list[Pair]:
    """Return a graph with 540,645 paths, or with fewer: pathway takes minutes for the large one."""
    return random_graph(3000, 3500, 2) if request.is_full else random_graph(600, 690, 2)


def _changed(edges: list[Pair]) -> list[Pair]:
    """Return the edges to delete and to insert again: the same ones for every engine."""
    return random.Random(7).sample(edges, UPDATES)


def _ours(edges: list[Pair]) -> Iterator[Figure]:
    database, seconds = bootstrap(PROGRAM, {"edge": edges})
    yield bootstrap_figure(database, seconds)
    changes = Changes()
    for edge in _changed(edges):
        changes.add(database, change(database, deleted=[("edge", edge)]))
        changes.add(database, change(database, inserted=[("edge", edge)]))
    yield from changes.figures(UPDATE)


def measure_duckdb(request: Request, threads: int | None) -> Iterator[Figure]:
    """Measure duckdb's closure of the large graph; the suite `program` does, too."""
    import duckdb
    import pyarrow as pa

    edges = _large(request)
    connection = duckdb.connect()
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    xs, ys = zip(*edges, strict=True)
    given = pa.table({"x": pa.array(xs, pa.int64()), "y": pa.array(ys, pa.int64())})
    connection.register("given", given)
    connection.execute("CREATE TABLE edge AS SELECT * FROM given")
    start = time.perf_counter()
    connection.execute(f"CREATE TABLE path AS {RECURSIVE_QUERY}")
    seconds = time.perf_counter() - start
    (rows,) = connection.execute("SELECT count(*) FROM path").fetchall()[0]
    yield Figure("bootstrap", seconds, rows, note="recursive CTE; a change means the same again")


def _pathway(edges: list[Pair]) -> Iterator[Figure]:
    """Measure a streaming `pw.iterate`: insert an edge, and wait for the change of the paths.

    The output includes the edges, so that an edge that changes no path can be awaited, too.
    """
    import pathway as pw

    ended = threading.Event()
    size = 0
    times: list[float] = []
    paths: list[int] = []

    class Edge(pw.Schema):  # type: ignore[misc]
        x: int = pw.column_definition(primary_key=True)
        y: int = pw.column_definition(primary_key=True)

    class Edges(pw.io.python.ConnectorSubject):  # type: ignore[misc]
        def run(self) -> None:
            start = time.perf_counter()
            for x, y in edges:
                self.next(x=x, y=y)
            self._settle(start)
            paths.append(size - len(edges))
            for x, y in _changed(edges):
                start = time.perf_counter()
                self.delete(x=x, y=y)
                self._settle(start)
                start = time.perf_counter()
                self.next(x=x, y=y)
                self._settle(start)

        def _settle(self, start: float) -> None:
            self.commit()
            ended.wait()
            times.append(time.perf_counter() - start)
            ended.clear()

    def step(path: pw.Table, edge: pw.Table) -> dict[str, pw.Table]:
        longer = path.join(edge, path.y == edge.x).select(x=path.x, y=edge.y)
        both = edge.concat_reindex(longer)
        return {"path": both.groupby(both.x, both.y).reduce(both.x, both.y)}

    def count(key: object, row: object, time: int, is_addition: bool) -> None:
        nonlocal size
        size += 1 if is_addition else -1

    edge = pw.io.python.read(Edges(), schema=Edge, autocommit_duration_ms=None)
    first = edge.groupby(edge.x, edge.y).reduce(edge.x, edge.y)
    path = pw.iterate(step, path=pw.iterate_universe(first), edge=edge).path
    shown = path.concat_reindex(edge.select(x=-1 - edge.x, y=edge.y))
    pw.io.subscribe(shown, on_change=count, on_time_end=lambda _: ended.set())
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    yield Figure("bootstrap", times[0], paths[0], note="a stream through `pw.iterate`")
    for name, share in (("median", 50), ("p99", 99)):
        yield Figure(f"{UPDATE}, {name}", percentile(times[1:], share))


def _differential(edges: list[Pair]) -> Iterator[Figure]:
    changed = [(0, edge) for edge in _changed(edges)]
    rows = [(0, edge) for edge in edges]
    yield from differential.measure("closure", rows, changed, "delete", ("bootstrap", UPDATE))


def _recompute(found: SuiteFigures) -> float:
    """Return the better of the times of duckdb with one and with all threads."""
    return min(found.seconds("bootstrap", LARGE, engine) for engine in DUCKDB)


def _state(found: SuiteFigures) -> float:
    return found.figure("bootstrap", LARGE).bytes_per_row or 0.0


SUITE = Suite(
    "closure",
    "transitive closure of a random graph; then 20 random edges deleted and inserted again",
    (
        BenchCase(OURS, lambda request: _ours(_large(request)), LARGE),
        BenchCase(
            DUCKDB[0],
            lambda request: measure_duckdb(request, 1),
            LARGE,
            module="duckdb",
        ),
        BenchCase(DUCKDB[1], lambda request: measure_duckdb(request, None), LARGE, module="duckdb"),
        BenchCase(
            differential.NAME,
            lambda request: _differential(_large(request)),
            LARGE,
            commands=differential.TOOLS,
        ),
        BenchCase(OURS, lambda request: _ours(_medium(request)), MEDIUM),
        BenchCase(
            differential.NAME,
            lambda request: _differential(_medium(request)),
            MEDIUM,
            commands=differential.TOOLS,
        ),
        BenchCase(
            "pathway",
            lambda request: _pathway(_medium(request)),
            MEDIUM,
            module="pathway",
            seconds=900.0,
        ),
    ),
    (
        Target(
            "bootstrap, against duckdb's",
            1.0,
            "x",
            lambda found: found.seconds("bootstrap", LARGE) / _recompute(found),
        ),
        Target("state of a derived row", 40.0, " B", _state),
        Target(
            "duckdb's recompute, against one edge (median)",
            100.0,
            "x",
            lambda found: _recompute(found) / found.seconds(f"{UPDATE}, median", LARGE),
            at_least=True,
        ),
        Target(
            "pathway's one edge, against ours (medians)",
            20.0,
            "x",
            lambda found: (
                found.seconds(f"{UPDATE}, median", MEDIUM, "pathway")
                / found.seconds(f"{UPDATE}, median", MEDIUM)
            ),
            at_least=True,
        ),
    ),
)
