"""Triangles of real graphs: a cyclic join, for which pairwise joins are inefficient."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from tidelog.bench.facts import Pair, read_pairs
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite
from tidelog.bench.ours import all_facts, bootstrap, bootstrap_figure, delete_and_insert

PROGRAM = """
.decl edge(x: number, y: number)
.decl triangle(x: number, y: number, z: number)
triangle(x, y, z) :- edge(x, y), edge(y, z), edge(x, z).
"""

QUERY = """
CREATE TABLE triangle AS
SELECT a.x, a.y, b.y AS z
FROM edge a JOIN edge b ON a.y = b.x JOIN edge c ON a.x = c.x AND b.y = c.y
"""

GRAPHS = ("wiki-Vote", "ca-GrQc", "p2p-Gnutella31", "usroad")


def _edges(request: Request, name: str) -> list[Pair]:
    """Return the undirected graph: each edge once, from the smaller node to the larger."""
    pairs = read_pairs(request.folder("graphs") / f"{name}.tsv.gz")
    return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def _ours(name: str, request: Request) -> Iterator[Figure]:
    facts = {"edge": _edges(request, name)}
    database, seconds = bootstrap(PROGRAM, facts)
    yield bootstrap_figure(database, seconds)
    rounds = 50 if request.is_full else 5
    yield from delete_and_insert(database, all_facts(facts), 10, rounds, 41).figures("ten edges")


def _duckdb(name: str, request: Request) -> Iterator[Figure]:
    import duckdb
    import pyarrow as pa

    xs, ys = zip(*_edges(request, name), strict=True)
    connection = duckdb.connect()
    connection.register("given", pa.table({"x": xs, "y": ys}))
    connection.execute("CREATE TABLE edge AS SELECT * FROM given")
    start = time.perf_counter()
    connection.execute(QUERY)
    seconds = time.perf_counter() - start
    (rows,) = connection.execute("SELECT count(*) FROM triangle").fetchall()[0]
    yield Figure("bootstrap", seconds, rows)


def _cases() -> Iterator[BenchCase]:
    for name in GRAPHS:
        files = (f"graphs/{name}.tsv.gz",)
        yield BenchCase(OURS, partial(_ours, name), name, files=files)
        yield BenchCase("duckdb", partial(_duckdb, name), name, module="duckdb", files=files)


SUITE = Suite(
    "graphs",
    "triangles of real graphs (needs facts): bootstrap, then ten edges deleted and inserted again",
    tuple(_cases()),
)
