"""A keyed join of two tables with count and sum for each key, in two shards on two cores.

A change of n rows inserts n/4 rows in each table and deletes n/4. Spark reads the change, the
shuffle routes it, the shards apply it, and Spark writes the changes of the view to a sink. The time
is from the trigger to the end of the batch, sink included, as Spark reports it. The peer is Spark's
recompute of the view from Parquet files with the current rows, and it writes the view as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
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

DATA_SET = "sharded, join"
TABLES = ("bought", "returned")
PROGRAM = (
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
"""
)
SCHEMA = "key long, id long, amount long, op string"
ROWS, KEYS = 10_000_000, 1_000_000
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


def _measure(request: Request) -> Iterator[Figure]:
    """Measure the first epoch, and epochs of few and of many rows, with the recompute."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Sink, Source, open_session

    warm_up()
    smaller = 1 if request.is_full else _SMALLER
    tables = {
        name: ChangingTable(ROWS // smaller // 2, KEYS // smaller, i)
        for i, name in enumerate(TABLES)
    }
    spark = open_session("bench", master="local[2, 4]", settings={"spark.driver.memory": "3g"})
    spark.range(10).count()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        folders = {table: folder / table for table in TABLES}
        for path in folders.values():
            path.mkdir()
        pipeline = Pipeline(
            PROGRAM,
            name="bench",
            state=folder / "state",
            sources=[
                Source(table, "parquet", str(path), mode="changes")
                for table, path in folders.items()
            ],
            sinks=[Sink("both", "changes", path=str(folder / "out"))],
            placement="sharded",
            shards=2,
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
                changes = {table: rows.change(own_size // 2) for table, rows in tables.items()}
                times[EPOCH].append(mine.batch(f"{size}-{number}", changes))
                if size != FEW:  # compared engines take turns: the speed of a machine varies
                    times[RECOMPUTE].append(_recomputed(spark, folder, tables))
            if size == FEW:  # it would disturb epochs of a tenth of a second
                for _ in range(to_get_warm + _RECOMPUTED):
                    times[RECOMPUTE].append(_recomputed(spark, folder, tables))
            for what, found in times.items():
                kept = found[to_get_warm:]
                note = f"median of {len(kept)}"
                yield Figure(of(what, own_size), percentile(kept, 50), own_size, note=note)
        theirs = sorted(map(tuple, spark.read.parquet(str(folder / "recomputed")).collect()))
        mine.stop()
        own = pipeline.table("both")
        same = theirs == sorted(zip(*(column.to_pylist() for column in own.columns), strict=True))
        yield Figure("the view at the end", rows=own.num_rows, note=verdict(same))
        sent = spark.read.parquet(str(folder / "out"))
        net = sent.selectExpr("sum(if(op = '+', 1, -1))").collect()[0][0]
        yield Figure("rows in the sink", rows=net, note="inserted less deleted")
        pipeline.close()
    spark.stop()


def _sizes(request: Request) -> tuple[int, ...]:
    return (FEW, HUNDREDTH, TENTH) if request.is_full else (FEW, TENTH)


def _recompute(spark: Any, folder: Path) -> None:
    from pyspark.sql import functions as F

    one, other = (
        spark.read.parquet(str(folder / "now" / f"{table}.parquet"))
        .groupBy("key")
        .agg(F.count("*").alias(f"n_{table}"), F.sum("amount").alias(f"total_{table}"))
        for table in TABLES
    )
    one.join(other, "key").write.mode("overwrite").parquet(str(folder / "recomputed"))


def _warm_workers(spark: Any) -> None:
    """Load the kernels in two tasks, in the processes in which later tasks run."""
    spark.range(0, 2, 1, 2).mapInArrow(_warm, "id long").collect()


def _warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from tidelog.bench.exercises import warm_up

    warm_up()
    yield from batches


def _recomputed(spark: Any, folder: Path, tables: Mapping[str, ChangingTable]) -> float:
    """Write the current rows for Spark; return the time of its recompute."""
    for table, rows in tables.items():
        put(folder / "now", table, "parquet", rows.table())
    return timed(partial(_recompute, spark, folder))


def _speed(what: str, found: SuiteFigures) -> float:
    figure = found.figure(what, DATA_SET)
    return (figure.rows or 0) / found.seconds(what, DATA_SET)


def _times_faster(size: int, found: SuiteFigures) -> float:
    theirs = found.seconds(of(RECOMPUTE, size), DATA_SET)
    return theirs / found.seconds(of(EPOCH, size), DATA_SET)


CASE = BenchCase(OURS, _measure, DATA_SET, module="pyspark")
TARGETS = (
    Target(
        f"{DATA_SET}: bootstrap of {ROWS:,} rows",
        1_000_000, "rows/s", partial(_speed, "bootstrap"), at_least=True,
    ),
    Target(
        f"{DATA_SET}: Spark's recompute, against an epoch with 1% of the rows",
        10, "x", partial(_times_faster, HUNDREDTH), at_least=True,
    ),
    Target(
        f"{DATA_SET}: Spark's recompute, against an epoch with 10% of the rows",
        3, "x", partial(_times_faster, TENTH), at_least=True,
    ),
)  # fmt: skip
