"""Pipelines on Spark: epochs of the placement `driver`, beside what Spark itself takes.

Those of the placement `sharded` are in sharded.py.

All is measured in one process and in turns: an epoch, then each peer on the same rows. Peers are
an empty micro-batch (a `foreachBatch` that does nothing, so not even its rows are read), a plain
read of the rows, Spark's recompute of the view, and Spark's own streaming aggregation. Of what
Spark streams the time is what it says of the batch itself, without waiting for the next one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.bench.model import OURS, Case, Figure, Found, Request, Suite, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites import sharded
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

PROGRAM = """
.decl payment(id: number, account: number, amount: number)
.decl spent(account: number, n: number, total: number)
spent(a, n, t) :- payment(_, a, _), n = count : { payment(_, a, _) },
    t = sum x : { payment(_, a, x) }.
"""
SCHEMA = "op string, id long, account long, amount long"
ACCOUNTS = 10_000
# Both are read by Arrow where the files are small and plain, else by Spark.
FORMATS = ("parquet", "json")
EMPTY, READ = "empty foreachBatch", "plain read"


class Payments:
    """Makes payments that are all different."""

    def __init__(self, accounts: int) -> None:
        self._accounts = accounts
        self._rng = np.random.default_rng(17)
        self._next = 0

    def rows(self, n: int) -> pa.Table:
        """Return n payments that come."""
        import pyarrow as pa

        first, self._next = self._next, self._next + n
        return pa.table({
            "op": pa.array(["+"] * n),
            "id": np.arange(first, first + n),
            "account": self._rng.integers(0, self._accounts, n),
            "amount": self._rng.integers(1, 500, n),
        })  # fmt: skip


def _aggregated(frame: Any) -> Any:
    from pyspark.sql import functions as F

    return frame.groupBy("account").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def _driver(format: str, request: Request) -> Iterator[Figure]:
    """Measure epochs of few and of many rows, in turns with everything else."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Sink, Source, open_session

    warm_up()
    payments = Payments(ACCOUNTS if request.is_full else ACCOUNTS // 10)
    rounds, to_get_warm = (15, 3) if request.is_full else (1, 1)
    spark = open_session("bench")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        source, out = folder / "in", str(folder / "recomputed")
        base = payments.rows(1_000_000 if request.is_full else 20_000)
        pipeline = Pipeline(
            PROGRAM,
            state=folder / "state",
            sources=[Source("payment", format, str(source), mode="changes")],
            sinks=[Sink("spent", "changes", path=str(folder / "out"))],
        )

        def write(frame: Any, number: int) -> None:
            frame.write.parquet(str(folder / "streamed" / str(number)))

        empty = Stream(
            spark, folder / "empty", format, SCHEMA,
            lambda frame: frame.writeStream.foreachBatch(lambda rows, number: None),
        )  # fmt: skip
        streaming = Stream(
            spark, folder / "streaming", format, SCHEMA,
            lambda frame: _aggregated(frame).writeStream.outputMode("update").foreachBatch(write),
        )  # fmt: skip
        put(source, "base", format, base)
        start = time.perf_counter()
        pipeline.start(spark)
        first = pipeline.step(spark, tables=False)
        assert first is not None
        yield Figure("bootstrap", time.perf_counter() - start, first.received)
        streaming.batch("base", base)
        for size in (100, 100_000) if request.is_full else (100, 2_000):
            times: dict[str, list[float]] = {}
            for number in range(-to_get_warm, rounds):
                rows = payments.rows(size)
                file = f"{size}-{number}"
                put(source, file, format, rows)
                only = str(source / f"{file}.{format}")
                reader = spark.read.schema(SCHEMA).format(format)
                measured = {
                    EPOCH: timed(partial(pipeline.step, spark, tables=False)),
                    EMPTY: empty.batch(file, rows),
                    READ: timed(reader.load(only).toArrow),
                    STREAMING: streaming.batch(file, rows),
                }
                if number % 4 == rounds % 4 - 1:  # it takes long; the last round is one of those
                    measured[RECOMPUTE] = timed(partial(_recompute, reader, str(source), out))
                for what, seconds in measured.items():
                    if number >= 0:
                        times.setdefault(what, []).append(seconds)
            for what, found in times.items():
                note = f"median of {len(found)}"
                yield Figure(of(what, size), percentile(found, 50), size, note=note)
        theirs = sorted(map(tuple, spark.read.parquet(out).collect()))
        same = theirs == list(pipeline.database.view("spent"))
        yield Figure("the view at the end", rows=len(theirs), note=verdict(same))
        empty.stop()
        streaming.stop()
        pipeline.close()
    spark.stop()


def _recompute(reader: Any, source: str, out: str) -> None:
    _aggregated(reader.load(source)).write.mode("overwrite").parquet(out)


def _against(what: str, size: int, format: str, found: Found) -> float:
    mine = found.seconds(of(EPOCH, size), f"driver, {format}")
    return mine / found.seconds(of(what, size), f"driver, {format}")


SUITE = Suite(
    "spark",
    "pipelines on Spark: epochs beside an empty micro-batch, and Spark's recompute and streaming",
    (
        *(
            Case(OURS, partial(_driver, format), f"driver, {format}", module="pyspark")
            for format in FORMATS
        ),
        sharded.CASE,
    ),
    tuple(
        Target(
            f"driver, {format}: an epoch of {size:,} rows, against an empty foreachBatch",
            limit,
            "x",
            partial(_against, EMPTY, size, format),
        )
        for format in FORMATS
        for size, limit in ((100, 2.0), (100_000, 2.5))
    )
    + sharded.TARGETS,
)
