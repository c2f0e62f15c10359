"""Large states in shards, on two cores: epochs with a sink, against Spark's recompute.

- *join*: a keyed join of two tables with count and sum for each key, in two shards.
- *stages*: orders of some customers, with the sum of their lines, in four shards. Customers are
  joined by one column and lines by another, so shards exchange rows.

A change of n rows inserts n/2 rows and deletes n/2, in all tables alike. Spark reads the change,
the shuffle routes it, the shards apply it, and Spark writes the changes of the view to a sink. The
time is from the trigger to the end of the batch, sink included, as Spark reports it. The peer is
Spark's recompute of the view from Parquet files with the current rows, and it writes the view too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.bench.model import OURS, BenchCase, Figure, Request, SuiteFigures, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites.spark_peers import (
    EPOCH,
    RECOMPUTE,
    RunningPipeline,
    of,
    put,
    timed,
    verdict,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

ROWS = 10_000_000


@dataclass(frozen=True)
class Scenario:
    """A program over tables with the columns key, id and amount, and Spark's query for its view."""

    data_set: str
    program: str
    view: str
    shards: int
    tables: Mapping[str, tuple[int, int]]
    """The rows of each table, and the number of different keys. Numbers of rows start at 0."""
    query: Callable[[Mapping[str, Any]], Any]
    """Returns the view of frames with the rows of the tables."""


def _join(frames: Mapping[str, Any]) -> Any:
    from pyspark.sql import functions as F

    one, other = (
        frame.groupBy("key").agg(
            F.count("*").alias(f"n_{table}"), F.sum("amount").alias(f"total_{table}")
        )
        for table, frame in frames.items()
    )
    return one.join(other, "key")


def _revenue(frames: Mapping[str, Any]) -> Any:
    from pyspark.sql import functions as F

    customer = frames["customer"].where("key = 1").selectExpr("id AS c")
    orders = frames["orders"].where("amount < 500").selectExpr("id AS o", "key AS c", "amount AS d")
    lines = frames["lineitem"].selectExpr("key AS o", "amount AS x")
    joined = orders.join(customer, "c").join(lines, "o", "left")
    return joined.groupBy("o", "d").agg(F.coalesce(F.sum("x"), F.lit(0)).alias("revenue"))


TABLES = ("bought", "returned")
JOIN = Scenario(
    "sharded, join",
    "".join(
        f"""
.decl {table}(key: number, id: number, amount: number)
.decl of_{table}(key: number, n: number, total: number)
of_{table}(k, n, t) :- {table}(k, _, _), n = count : {{ {table}(k, _, _) }},
    t = sum x : {{ {table}(k, _, x) }}.
"""
        for table in TABLES
    )
    + """
.decl both(key: number, n: number, total: number, m: number, back: number)
both(k, n, t, m, b) :- of_bought(k, n, t), of_returned(k, m, b).
""",
    "both", 2, dict.fromkeys(TABLES, (ROWS // 2, 1_000_000)), _join,
)  # fmt: skip
STAGES = Scenario(
    "sharded, stages",
    """
.decl customer(key: number, id: number, amount: number)    // its segment
.decl orders(key: number, id: number, amount: number)      // its customer, and the day
.decl lineitem(key: number, id: number, amount: number)    // its order
.decl revenue(order: number, day: number, amount: number)
revenue(o, d, s) :-
    customer(1, c, _), orders(c, o, d), d < 500, s = sum x : { lineitem(o, _, x) }.
""",
    "revenue", 4,
    {
        "customer": (ROWS // 20, 5),
        "orders": (ROWS // 5, ROWS // 20),
        "lineitem": (3 * ROWS // 4, ROWS // 5),
    },
    _revenue,
)  # fmt: skip
SCHEMA = "key long, id long, amount long, op string"
FEW, HUNDREDTH, TENTH = 100, ROWS // 100, ROWS // 10
_SMALLER = 250  # times smaller at the small scale
_ROUNDS = {
    FEW: (15, 3),
    HUNDREDTH: (7, 5),
    TENTH: (5, 3),
}  # the second number: rounds before the measured ones, to warm up; the JVM compiles in all of them
_RECOMPUTED = 2  # for epochs of few rows


class ChangingTable:
    """The current rows of one table, and random changes to them."""

    def __init__(self, rows: int, keys: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._keys, self._next = keys, 0
        self._live = self._new(rows)

    def _new(self, n: int) -> NDArray[np.int64]:
        first, self._next = self._next, self._next + n
        keys, amounts = self._rng.integers(0, self._keys, n), self._rng.integers(1, 1000, n)
        return np.array([keys, np.arange(first, first + n), amounts])

    def table(self) -> pa.Table:
        """Return the current rows as insertions."""
        return _changes(self._live, self._live[:, :0])

    def change(self, n: int) -> pa.Table:
        """Insert n/2 rows and delete as many; return the changes."""
        inserted = self._new(n // 2)
        which = self._rng.choice(self._live.shape[1], n // 2, replace=False)
        deleted = self._live[:, which]
        self._live[:, which] = inserted
        return _changes(inserted, deleted)


def _changes(inserted: NDArray[np.int64], deleted: NDArray[np.int64]) -> pa.Table:
    import pyarrow as pa

    both = np.concatenate([deleted, inserted], axis=1)
    signs = np.repeat(np.array([0, 1], np.int8), [deleted.shape[1], inserted.shape[1]])
    ops = pa.DictionaryArray.from_arrays(pa.array(signs), ["-", "+"]).cast(pa.string())
    return pa.table({"key": both[0], "id": both[1], "amount": both[2], "op": ops})


def _measure(scenario: Scenario, request: Request) -> Iterator[Figure]:
    """Measure the first epoch, and epochs of few and of many rows, with the recompute."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Sink, Source, open_session

    warm_up()
    smaller = 1 if request.is_full else _SMALLER
    tables = {
        name: ChangingTable(rows // smaller, max(keys // smaller, min(keys, 5)), i)
        for i, (name, (rows, keys)) in enumerate(scenario.tables.items())
    }
    spark = open_session("bench", master="local[2, 4]", settings={"spark.driver.memory": "3g"})
    spark.range(10).count()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        folders = {table: folder / table for table in tables}
        for path in folders.values():
            path.mkdir()
        pipeline = Pipeline(
            scenario.program,
            name="bench",
            state=folder / "state",
            sources=[
                Source(table, "parquet", str(path), mode="changes")
                for table, path in folders.items()
            ],
            sinks=[Sink(scenario.view, "changes", path=str(folder / "out"))],
            placement="sharded",
            shards=scenario.shards,
        )
        mine = RunningPipeline(spark, pipeline, folders, "parquet")
        yield Figure(
            "workers start", timed(partial(_warm_workers, spark)),
            note="Python's processes, kernels loaded; the bootstrap follows",
        )  # fmt: skip
        seconds = mine.batch("base", {table: rows.table() for table, rows in tables.items()})
        yield Figure("bootstrap", seconds, pipeline.totals().accepted)
        for size in _sizes(request):
            rounds, to_get_warm = _ROUNDS[size] if request.is_full else (1, 1)
            own_size = size if size == FEW else size // smaller
            times: dict[str, list[float]] = {EPOCH: [], RECOMPUTE: []}
            for number in range(-to_get_warm, rounds):
                changes = {
                    name: rows.change(max(2, own_size * scenario.tables[name][0] // ROWS))
                    for name, rows in tables.items()
                }
                times[EPOCH].append(mine.batch(f"{size}-{number}", changes))
                if size != FEW:  # compared engines take turns: the speed of a machine varies
                    times[RECOMPUTE].append(_recomputed(scenario, spark, folder, tables))
            if size == FEW:  # it would disturb epochs of a tenth of a second
                for _ in range(to_get_warm + _RECOMPUTED):
                    times[RECOMPUTE].append(_recomputed(scenario, spark, folder, tables))
            for what, found in times.items():
                kept = found[to_get_warm:]
                note = f"median of {len(kept)}"
                yield Figure(of(what, own_size), percentile(kept, 50), own_size, note=note)
        theirs = sorted(map(tuple, spark.read.parquet(str(folder / "recomputed")).collect()))
        mine.stop()
        own = pipeline.table(scenario.view)
        same = theirs == sorted(zip(*(column.to_pylist() for column in own.columns), strict=True))
        yield Figure("the view at the end", rows=own.num_rows, note=verdict(same))
        sent = spark.read.parquet(str(folder / "out"))
        net = sent.selectExpr("sum(if(op = '+', 1, -1))").collect()[0][0]
        yield Figure("rows in the sink", rows=net, note="inserted less deleted")
        pipeline.close()
    spark.stop()


def _sizes(request: Request) -> tuple[int, ...]:
    return (FEW, HUNDREDTH, TENTH) if request.is_full else (FEW, TENTH)


def _recompute(scenario: Scenario, spark: Any, folder: Path) -> None:
    frames = {
        table: spark.read.parquet(str(folder / "now" / f"{table}.parquet"))
        for table in scenario.tables
    }
    scenario.query(frames).write.mode("overwrite").parquet(str(folder / "recomputed"))


def _warm_workers(spark: Any) -> None:
    """Load the kernels in two tasks, in the processes in which later tasks run."""
    spark.range(0, 2, 1, 2).mapInArrow(_warm, "id long").collect()


def _warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from tidelog.bench.exercises import warm_up

    warm_up()
    yield from batches


def _recomputed(
    scenario: Scenario, spark: Any, folder: Path, tables: Mapping[str, ChangingTable]
) -> float:
    """Write the current rows for Spark; return the time of its recompute."""
    for table, rows in tables.items():
        put(folder / "now", table, "parquet", rows.table())
    return timed(partial(_recompute, scenario, spark, folder))


def _speed(scenario: Scenario, what: str, found: SuiteFigures) -> float:
    figure = found.figure(what, scenario.data_set)
    return (figure.rows or 0) / found.seconds(what, scenario.data_set)


def _times_faster(scenario: Scenario, size: int, found: SuiteFigures) -> float:
    theirs = found.seconds(of(RECOMPUTE, size), scenario.data_set)
    return theirs / found.seconds(of(EPOCH, size), scenario.data_set)


CASES = tuple(
    BenchCase(OURS, partial(_measure, scenario), scenario.data_set, module="pyspark")
    for scenario in (JOIN, STAGES)
)
TARGETS = (
    Target(
        f"{JOIN.data_set}: bootstrap of {ROWS:,} rows",
        1_000_000, "rows/s", partial(_speed, JOIN, "bootstrap"), at_least=True,
    ),
    *(
        Target(
            f"{scenario.data_set}: Spark's recompute, against an epoch with {share} of the rows",
            limit, "x", partial(_times_faster, scenario, size), at_least=True,
        )
        for scenario, share, size, limit in (
            (JOIN, "1%", HUNDREDTH, 10), (JOIN, "10%", TENTH, 3), (STAGES, "1%", HUNDREDTH, 8),
        )
    ),
)  # fmt: skip
