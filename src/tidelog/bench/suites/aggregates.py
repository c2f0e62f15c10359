"""Aggregates under changes of one row, in small and large groups, compared with other engines."""

from __future__ import annotations

import math
import operator
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import tidelog
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import Changes, bootstrap, bootstrap_figure, change, percentile, quietest

if TYPE_CHECKING:
    from tidelog.database.database import Database

PROGRAM = """
.decl r(g: number, k: number, v: {value})
.decl a(g: number, x: {result})
a(g, x) :- r(g, _, _), x = {aggregate} : {{ r(g, _, v) }}.
"""

# For each: how it is written, the type of the values, and that of the result.
AGGREGATES = {
    "count": ("count", "number", "number"),
    "sum": ("sum v", "number", "number"),
    "count distinct": ("count v", "number", "number"),
    "mean": ("mean v", "number", "float"),
    "total": ("total v", "float", "float"),
    "min": ("min v", "number", "number"),
    "max": ("max v", "number", "number"),
    "concat": ("concat v", "symbol", "symbol"),
    "setof": ("setof v", "number", "set(number)"),
    "semigroup": ("some_bit v", "number", "number"),
}
FLAT = ("count", "sum", "count distinct", "mean", "total", "min", "max")
LOGARITHMIC = ("setof", "semigroup")  # without `concat`, whose text grows with the group
MANY = "1,000 groups"
BULK = "exact sums"
DUCKDB = ("duckdb, 1 thread", "duckdb")
QUERIES = {"count": "count(*)", "sum": "sum(v)", "mean": "avg(v)", "total": "fsum(w)"}
MOST_SECONDS = 12.0  # for the changes of one aggregate
ROUNDS, LEAST = 6, 2  # and the least number of changes in a round, however long they take


def _program(name: str) -> str:
    aggregate, value, result = AGGREGATES[name]
    return PROGRAM.format(aggregate=aggregate, value=value, result=result)


def _value(name: str, rng: random.Random) -> object:
    kind = AGGREGATES[name][1]
    number = rng.randrange(1_000_000)
    return {"number": number, "float": number / 7, "symbol": str(number % 10)}[kind]


def _sizes(request: Request) -> tuple[int, ...]:
    return (1_000, 10_000, 100_000, 1_000_000) if request.is_full else (10, 100, 1_000)


def _one_size(name: str, request: Request) -> Iterator[Figure]:
    """Measure inserts and deletes of one row, in a group of each size."""
    if name == "semigroup":
        tidelog.aggregate(
            "some_bit", tidelog.Semigroup(operator.or_), takes="number", gives="number",
            replace=True,
        )  # fmt: skip
    rng = random.Random(3)
    sizes = _sizes(request)
    rows = [(size, k, _value(name, rng)) for size in sizes for k in range(size)]
    database, seconds = bootstrap(_program(name), {"r": rows})
    yield bootstrap_figure(database, seconds)
    changes = {size: (Changes(), Changes()) for size in sizes}
    end = time.perf_counter() + MOST_SECONDS
    for _ in range(ROUNDS if request.is_full else 1):
        for size, (inserts, deletes) in changes.items():
            inserts.next_round()
            deletes.next_round()
            for i in range(200 if request.is_full else 20):
                row = (size, size + i, _value(name, rng))
                inserts.add(database, change(database, inserted=[("r", row)]))
                deletes.add(database, change(database, deleted=[("r", row)]))
                if time.perf_counter() > end and i >= LEAST:
                    break
    for size, (inserts, deletes) in changes.items():
        yield from inserts.figures(_insert(size), shares=(50,))
        yield from deletes.figures(_delete(size), shares=(50,))
    if name == "max":
        yield from _delete_maximum(database, sizes[-1], 200 if request.is_full else 20)


def _insert(size: int) -> str:
    return f"insert, {size:,} rows"


def _delete(size: int) -> str:
    return f"delete, {size:,} rows"


def _delete_maximum(database: Database, size: int, rounds: int) -> Iterator[Figure]:
    """Measure deletes of the largest value, each larger than the one that is left."""
    inserts, deletes = Changes(), Changes()
    at_a_time = 20  # in turns, so that both see the machine as it is
    for start in range(0, rounds, at_a_time):
        numbers = range(start, start + at_a_time)
        above = [(size, 2 * size + i, 2_000_000 + i) for i in numbers]
        for row in above:
            inserts.add(database, change(database, inserted=[("r", row)]))
        for row in reversed(above):
            deletes.add(database, change(database, deleted=[("r", row)]))
    yield from inserts.figures("insert a new maximum", shares=(50,))
    yield from deletes.figures("delete the maximum", shares=(50,))


def _bulk(request: Request) -> Iterator[Figure]:
    """Measure exact sums of floats of all sizes, against sums that are not exact."""
    from tidelog.bench.exercises import warm_up
    from tidelog.store.accumulators import Accumulators, Operation
    from tidelog.store.codec import float_ordinals, float_value

    warm_up()
    n = 1_000_000 if request.is_full else 20_000
    rng = np.random.default_rng(9)
    groups = rng.integers(0, 1000, n)
    values = rng.uniform(-1, 1, n) * 10.0 ** rng.integers(-300, 300, n)
    rows = np.ascontiguousarray(np.vstack([groups, float_ordinals(values)]))
    plain, ours, undo = [], [], []
    for _ in range(5):
        sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
        start = time.perf_counter()
        _, come = sums.add(rows, np.arange(1), 1, n)
        sums.commit()
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        sums.add(rows, np.arange(1), 1, 0)
        sums.commit()
        undo.append(time.perf_counter() - start)
        rounded = np.zeros(1000)
        start = time.perf_counter()
        np.add.at(rounded, groups, values)
        plain.append(time.perf_counter() - start)
    order = np.argsort(groups, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(groups[order])) + 1)
    lists = [part.tolist() for part in parts]
    start = time.perf_counter()
    exact = [math.fsum(part) for part in lists]
    seconds = time.perf_counter() - start
    found = dict(come.T.tolist())
    same = [float_value(found[g]) for g in sorted(found)] == exact
    note = "equal to fsum, bit for bit" if same else "NOT equal to fsum"
    yield Figure("add up", percentile(ours, 50), n, note=note)
    yield Figure("take away", percentile(undo, 50), n)
    yield Figure("plain sum", percentile(plain, 50), n, note="`np.add.at`, groups numbered before")
    yield Figure("fsum", seconds, n, note="on lists by group, made before")


def _many_rows(request: Request) -> list[tuple[int, int, int, float]]:
    rng = random.Random(4)
    n = 1_000_000 if request.is_full else 20_000
    return [(i % 1000, i, v := rng.randrange(1_000_000), v / 7) for i in range(n)]


def _many(request: Request) -> Iterator[Figure]:
    """Measure one row in 1,000 groups, aggregate by aggregate."""
    given = _many_rows(request)
    databases = {}
    for name in QUERIES:
        is_float = AGGREGATES[name][1] == "float"
        rows = [(g, k, w if is_float else v) for g, k, v, w in given]
        database, seconds = bootstrap(_program(name), {"r": rows})
        yield bootstrap_figure(database, seconds, f"{name}: bootstrap")
        databases[name] = database, Changes()
    rng = random.Random(5)
    for _ in range(ROUNDS if request.is_full else 1):
        for name, (database, changes) in databases.items():
            changes.next_round()
            for i in range(500 if request.is_full else 20):
                row = (rng.randrange(1000), len(given) + i, _value(name, rng))
                changes.add(database, change(database, inserted=[("r", row)]))
                changes.add(database, change(database, deleted=[("r", row)]))
    for name, (_, changes) in databases.items():
        yield from changes.figures(f"{name}: one row")


def _duckdb(threads: int | None, request: Request) -> Iterator[Figure]:
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect()
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    columns = zip("gkvw", zip(*_many_rows(request), strict=True), strict=True)
    connection.register("given", pa.table({name: pa.array(values) for name, values in columns}))
    connection.execute("CREATE TABLE r AS SELECT * FROM given")
    rounds: dict[str, list[list[float]]] = {name: [] for name in QUERIES}
    for _ in range(ROUNDS if request.is_full else 1):
        for name, query in QUERIES.items():
            rounds[name].append([])
            for _ in range(9):
                start = time.perf_counter()
                connection.execute(
                    f"CREATE OR REPLACE TABLE a AS SELECT g, {query} AS x FROM r GROUP BY g"
                )
                rounds[name][-1].append(time.perf_counter() - start)
    (rows,) = connection.execute("SELECT count(*) FROM a").fetchall()[0]
    for name, times in rounds.items():
        note = f"GROUP BY once more, the quietest of {len(times)} rounds"
        seconds = percentile(quietest(times), 50)
        yield Figure(
            f"{name}: recompute", seconds, rows, note=note, against=f"{name}: one row, median"
        )


def _pathway(request: Request) -> Iterator[Figure]:
    """Measure a streaming `groupby`: insert a row, and wait for the change of its group."""
    import pathway as pw

    ended = threading.Event()
    times: list[float] = []
    rows = [(g, k, v) for g, k, v, _ in _many_rows(request)]
    rng = random.Random(5)

    class RowSchema(pw.Schema):  # type: ignore[misc]
        g: int
        k: int = pw.column_definition(primary_key=True)
        v: int

    class RowSubject(pw.io.python.ConnectorSubject):  # type: ignore[misc]
        def run(self) -> None:
            start = time.perf_counter()
            for g, k, v in rows:
                self.next(g=g, k=k, v=v)
            self._settle(start)
            for i in range(200 if request.is_full else 5):
                row = {"g": rng.randrange(1000), "k": len(rows) + i, "v": rng.randrange(1000)}
                start = time.perf_counter()
                self.next(**row)
                self._settle(start)
                start = time.perf_counter()
                self.delete(**row)  # by this name: pathway looks for it in the code
                self._settle(start)

        def _settle(self, start: float) -> None:
            self.commit()
            ended.wait()
            times.append(time.perf_counter() - start)
            ended.clear()

    given = pw.io.python.read(RowSubject(), schema=RowSchema, autocommit_duration_ms=None)
    sums = given.groupby(given.g).reduce(given.g, x=pw.reducers.sum(given.v))
    pw.io.subscribe(sums, on_change=lambda **_: None, on_time_end=lambda _: ended.set())
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    yield Figure("sum: bootstrap", times[0], 1000, note="a stream through `groupby`")
    told = quietest([times[i : i + 100] for i in range(1, len(times), 100)])
    for what, share in (("median", 50), ("p99", 99)):
        yield Figure(f"sum: one row, {what}", percentile(told, share))


def _growth(name: str, found: SuiteFigures) -> float:
    """Return how much longer a row takes in the largest group than in the smallest."""
    ratios = [
        found.seconds(f"{what(1_000_000)}, median", name)
        / found.seconds(f"{what(1_000)}, median", name)
        for what in (_insert, _delete)
    ]
    return max(ratios)


def _speed_up(found: SuiteFigures) -> float:
    """Return the least ratio of duckdb's time to ours over all aggregates."""
    return min(
        min(found.seconds(f"{name}: recompute", MANY, engine) for engine in DUCKDB)
        / found.seconds(f"{name}: one row, median", MANY)
        for name in QUERIES
    )


SUITE = Suite(
    "aggregates",
    "views of one aggregate: rows inserted and deleted in groups of 1,000 to 1,000,000 rows",
    (
        *(BenchCase(OURS, partial(_one_size, name), name) for name in AGGREGATES),
        BenchCase(OURS, _bulk, BULK),
        BenchCase(OURS, _many, MANY),
        BenchCase(DUCKDB[0], partial(_duckdb, 1), MANY, module="duckdb"),
        BenchCase(DUCKDB[1], partial(_duckdb, None), MANY, module="duckdb"),
        BenchCase("pathway", _pathway, MANY, module="pathway", seconds=900.0),
    ),
    (
        *(
            Target(f"{name}: a row of 1,000,000, against one of 1,000", most, "x", measure)
            for names, most in ((FLAT, 1.5), (LOGARITHMIC, 3.0))
            for name, measure in ((name, partial(_growth, name)) for name in names)
        ),
        Target(
            "max: deleting the maximum, against inserting it",
            1.0,
            "x",
            lambda found: (
                found.seconds("delete the maximum, median", "max")
                / found.seconds("insert a new maximum, median", "max")
            ),
        ),
        Target(
            "exact sums, against a plain one",
            5.0,
            "x",
            lambda found: found.seconds("add up", BULK) / found.seconds("plain sum", BULK),
        ),
        Target(
            "sum: one row, median",
            30.0,
            " µs",
            lambda found: found.seconds("sum: one row, median", MANY) * 1e6,
        ),
        Target("duckdb's recompute, against one row", 50.0, "x", _speed_up, at_least=True),
        Target(
            "pathway's one row, against ours (medians)",
            1.0,
            "x",
            lambda found: (
                found.seconds("sum: one row, median", MANY, "pathway")
                / found.seconds("sum: one row, median", MANY)
            ),
            at_least=True,
        ),
    ),
)
