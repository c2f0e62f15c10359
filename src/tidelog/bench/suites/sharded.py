"""A keyed join of two tables with count and sum for each key, in two shards on two cores.

A change of n rows has a quarter of them come to each table and a quarter go. Peers are Spark's
recompute of the view from Parquet files with the rows that are there, and Spark's own streaming
aggregation of one of the tables, without the join, which gets that table's half of the change.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.bench.model import OURS, Case, Figure, Found, Request, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites.spark_peers import (
    EPOCH,
    RECOMPUTE,
    STREAMING,
    Stream,
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
_SMALLER = 250  # so many times, at the small scale
_ROUNDS = {FEW: (15, 3), HUNDREDTH: (7, 1), TENTH: (5, 1)}  # and rounds before, to get warm
_RECOMPUTED = 2  # beside the epochs of few rows


class Rows:
    """The rows of one table that are there, and changes of them."""

    def __init__(self, rows: int, keys: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._keys, self._next = keys, 0
        self._live = self._new(rows)

    def _new(self, n: int) -> NDArray[np.int64]:
        first, self._next = self._next, self._next + n
        keys, amounts = self._rng.integers(0, self._keys, n), self._rng.integers(1, 1000, n)
        return np.array([keys, np.arange(first, first + n), amounts])

    def table(self) -> pa.Table:
        """Return the rows that are there, as changes."""
        return _changes(self._live, self._live[:, :0])

    def change(self, n: int) -> pa.Table:
        """Have a half of n rows come, and the other half go."""
        come = self._new(n // 2)
        which = self._rng.choice(self._live.shape[1], n // 2, replace=False)
        go = self._live[:, which]
        self._live[:, which] = come
        return _changes(come, go)


def _changes(come: NDArray[np.int64], go: NDArray[np.int64]) -> pa.Table:
    import pyarrow as pa

    both = np.concatenate([go, come], axis=1)
    signs = np.repeat(np.array([0, 1], np.int8), [go.shape[1], come.shape[1]])
    ops = pa.DictionaryArray.from_arrays(pa.array(signs), ["-", "+"]).cast(pa.string())
    return pa.table({"key": both[0], "id": both[1], "amount": both[2], "op": ops})


def _measure(request: Request) -> Iterator[Figure]:
    """Measure the first epoch, and epochs of few and of many rows beside the peers."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Source, open_session

    warm_up()
    smaller = 1 if request.is_full else _SMALLER
    tables = {name: Rows(ROWS // smaller // 2, KEYS // smaller, i) for i, name in enumerate(TABLES)}
    spark = open_session("bench", master="local[2, 4]", settings={"spark.driver.memory": "3g"})
    spark.range(10).count()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        streaming = Stream(
            spark, folder / "streaming", "parquet", SCHEMA, partial(_streamed, folder)
        )
        sources = [
            Source(table, "parquet", str(folder / table), mode="changes", files_per_epoch=1)
            for table in TABLES
        ]
        for table, rows in tables.items():
            put(folder / table, "base", "parquet", rows.table())
        pipeline = Pipeline(
            PROGRAM, state=folder / "state", sources=sources, placement="sharded", shards=2
        )
        pipeline.start(spark)
        yield Figure(
            "workers start", timed(partial(_warm_workers, spark)),
            note="Python's processes, kernels loaded; the bootstrap follows",
        )  # fmt: skip
        seconds = timed(partial(pipeline.step, spark))
        yield Figure("bootstrap", seconds, pipeline.totals().accepted)
        streaming.batch("base", tables[TABLES[0]].table())
        for size in _sizes(request):
            rounds, to_get_warm = _ROUNDS[size] if request.is_full else (1, 1)
            own_size = size if size == FEW else size // smaller
            times: dict[str, list[float]] = {EPOCH: [], STREAMING: [], RECOMPUTE: []}
            for number in range(-to_get_warm, rounds):
                changes = {table: rows.change(own_size // 2) for table, rows in tables.items()}
                file = f"{size}-{number}"
                for table, rows in changes.items():
                    put(folder / table, file, "parquet", rows)
                times[EPOCH].append(timed(partial(pipeline.step, spark)))
                times[STREAMING].append(streaming.batch(file, changes[TABLES[0]]))
                if size != FEW:  # what is compared takes turns: machines change their speed
                    times[RECOMPUTE].append(_recomputed(spark, folder, tables))
            if size == FEW:  # epochs of a tenth of a second would be disturbed
                for _ in range(to_get_warm + _RECOMPUTED):
                    times[RECOMPUTE].append(_recomputed(spark, folder, tables))
            for what, found in times.items():
                kept = found[to_get_warm:]
                note = f"median of {len(kept)}"
                if what == STREAMING:
                    note += "; one table, without the join"
                yield Figure(of(what, own_size), percentile(kept, 50), own_size, note=note)
        theirs = sorted(map(tuple, spark.read.parquet(str(folder / "recomputed")).collect()))
        own = pipeline.table("both")
        same = theirs == sorted(zip(*(column.to_pylist() for column in own.columns), strict=True))
        yield Figure("the view at the end", rows=own.num_rows, note=verdict(same))
        streaming.stop()
        pipeline.close()
    spark.stop()


def _sizes(request: Request) -> tuple[int, ...]:
    return (FEW, HUNDREDTH, TENTH) if request.is_full else (FEW, TENTH)


def _aggregated(frame: Any, sign: Any) -> Any:
    from pyspark.sql import functions as F

    return frame.groupBy("key").agg(
        F.sum(sign).alias("n"), F.sum(sign * F.col("amount")).alias("total")
    )


def _streamed(folder: Path, frame: Any) -> Any:
    """Return the writer of Spark's own aggregation; a row that goes is counted with minus one."""
    from pyspark.sql import functions as F

    def write(changed: Any, number: int) -> None:
        changed.write.parquet(str(folder / "streamed" / str(number)))

    sign = F.when(F.col("op") == "+", 1).otherwise(-1)
    return _aggregated(frame, sign).writeStream.outputMode("update").foreachBatch(write)


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
    """Have two tasks load the kernels, in the processes that later ones run in."""
    spark.range(0, 2, 1, 2).mapInArrow(_warm, "id long").collect()


def _warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from tidelog.bench.exercises import warm_up

    warm_up()
    yield from batches


def _recomputed(spark: Any, folder: Path, tables: Mapping[str, Rows]) -> float:
    """Write the rows that are there for Spark to read; return how long its recompute takes."""
    for table, rows in tables.items():
        put(folder / "now", table, "parquet", rows.table())
    return timed(partial(_recompute, spark, folder))


def _speed(what: str, found: Found) -> float:
    figure = found.figure(what, DATA_SET)
    return (figure.rows or 0) / found.seconds(what, DATA_SET)


def _milliseconds(size: int, found: Found) -> float:
    return 1000 * found.seconds(of(EPOCH, size), DATA_SET)


def _times_faster(size: int, found: Found) -> float:
    theirs = found.seconds(of(RECOMPUTE, size), DATA_SET)
    return theirs / found.seconds(of(EPOCH, size), DATA_SET)


CASE = Case(OURS, _measure, DATA_SET, module="pyspark")
TARGETS = (
    Target(
        f"{DATA_SET}: bootstrap of {ROWS:,} rows",
        1_000_000, "rows/s", partial(_speed, "bootstrap"), at_least=True,
    ),
    Target(f"{DATA_SET}: an epoch of {FEW} rows", 300, "ms", partial(_milliseconds, FEW)),
    Target(
        f"{DATA_SET}: changed rows in epochs of {TENTH:,}",
        400_000, "rows/s", partial(_speed, of(EPOCH, TENTH)), at_least=True,
    ),
    Target(
        f"{DATA_SET}: Spark's recompute, against an epoch with 1% of the rows",
        20, "x", partial(_times_faster, HUNDREDTH), at_least=True,
    ),
    Target(
        f"{DATA_SET}: Spark's recompute, against an epoch with 10% of the rows",
        4, "x", partial(_times_faster, TENTH), at_least=True,
    ),
)  # fmt: skip
