"""Pipelines on Spark: micro-batches, compared with Spark itself.

A pipeline reads two folders of files, keeps a view of each, and commits: no sink is written, so the
time is from the trigger to the commit. The peer is an empty `foreachBatch` over the same two
sources, which does not even read its rows. Its checkpoint is written by Spark's default class, and
not by that which pipelines choose (spark/stream.py). Both are measured in one process and in turns,
each by the times that Spark reports for its batches. Spark's recompute of both views is measured
beside them. Epochs with sinks, and large states, are in sharded.py; connectors are in
spark_kafka.py and spark_delta.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites import sharded, spark_delta, spark_kafka
from tidelog.bench.suites.spark_peers import (
    EPOCH,
    RECOMPUTE,
    RunningPipeline,
    of,
    peer,
    timed,
    verdict,
)

if TYPE_CHECKING:
    import pyarrow as pa

RELATIONS = ("payment", "refund")
PROGRAM = "".join(
    f"""
.decl {name}(id: number, account: number, amount: number)
.decl {name}s(account: number, n: number, total: number)
{name}s(a, n, t) :- {name}(_, a, _), n = count : {{ {name}(_, a, _) }},
    t = sum x : {{ {name}(_, a, x) }}.
"""
    for name in RELATIONS
)
SCHEMA = "op string, id long, account long, amount long"
ACCOUNTS = 10_000
FORMATS = ("parquet", "json")
PLACEMENTS = ("driver", "sharded")
EMPTY = "empty foreachBatch"
LIMITS = {
    ("driver", 100): 1.5,
    ("driver", 100_000): 2.0,
    ("sharded", 100): 2.0,
    ("sharded", 100_000): 2.5,
}


class Payments:
    """Makes distinct rows of one relation."""

    def __init__(self, accounts: int, seed: int) -> None:
        self._accounts = accounts
        self._rng = np.random.default_rng(seed)
        self._next = 0

    def rows(self, n: int) -> pa.Table:
        """Return n new rows."""
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


def _measure(placement: str, format: str, request: Request) -> Iterator[Figure]:
    """Measure epochs of few and of many rows, in turns with an empty micro-batch."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Source, open_session

    warm_up()
    accounts = ACCOUNTS if request.is_full else ACCOUNTS // 10
    rows = {name: Payments(accounts, i) for i, name in enumerate(RELATIONS)}
    rounds, to_get_warm = (15, 10) if request.is_full else (1, 1)
    spark = open_session("bench")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        folders = {relation: folder / relation for relation in RELATIONS}
        for path in folders.values():
            path.mkdir()
        pipeline = Pipeline(
            PROGRAM,
            name="bench",
            state=folder / "state",
            sources=[
                Source(relation, format, str(path), mode="changes")
                for relation, path in folders.items()
            ],
            placement=placement,
            shards=2 if placement == "sharded" else None,
        )
        mine = RunningPipeline(spark, pipeline, folders, format)
        theirs = peer(
            spark, folder / "empty", dict.fromkeys(RELATIONS, SCHEMA), format,
            lambda frame: frame.writeStream.foreachBatch(lambda rows, number: None),
        )  # fmt: skip

        def change(size: int) -> dict[str, pa.Table]:
            return {name: made.rows(size // len(RELATIONS)) for name, made in rows.items()}

        base = 1_000_000 if request.is_full else 20_000
        yield Figure("bootstrap", mine.batch("base", change(base)), base)
        for size in (100, 100_000) if request.is_full else (100, 2_000):
            times: dict[str, list[float]] = {EPOCH: [], EMPTY: []}
            for number in range(-to_get_warm, rounds):
                changes, file = change(size), f"{size}-{number}"
                times[EPOCH].append(mine.batch(file, changes))
                times[EMPTY].append(theirs.batch(file, changes))
            for what, found in times.items():
                kept = found[to_get_warm:]
                note = f"median of {len(kept)}"
                yield Figure(of(what, size), percentile(kept, 50), size, note=note)
        theirs.stop()
        mine.stop()
        out = str(folder / "recomputed")
        reader = spark.read.schema(SCHEMA).format(format)
        work = partial(_recompute, reader, str(folders[RELATIONS[0]]), out)
        yield Figure(RECOMPUTE, timed(work), note="of one of the two views")
        theirs_rows = sorted(map(tuple, spark.read.parquet(out).collect()))
        own = pipeline.table(f"{RELATIONS[0]}s")
        own_rows = sorted(zip(*(column.to_pylist() for column in own.columns), strict=True))
        same = verdict(theirs_rows == own_rows)
        yield Figure("the view at the end", rows=len(own_rows), note=same)
        pipeline.close()
    spark.stop()


def _recompute(reader: Any, source: str, out: str) -> None:
    _aggregated(reader.load(source)).write.mode("overwrite").parquet(out)


def data_set(placement: str, format: str) -> str:
    """Return the name of a case."""
    return f"{placement}, {format}"


def _against(size: int, placement: str, format: str, found: SuiteFigures) -> float:
    case = data_set(placement, format)
    return found.seconds(of(EPOCH, size), case) / found.seconds(of(EMPTY, size), case)


SUITE = Suite(
    "spark",
    "pipelines on Spark: epochs beside an empty micro-batch, and beside Spark's recompute",
    (
        *(
            BenchCase(
                OURS, partial(_measure, placement, format), data_set(placement, format),
                module="pyspark",
            )
            for placement in PLACEMENTS
            for format in FORMATS
        ),
        *sharded.CASES,
        *spark_kafka.CASES,
        spark_delta.CASE,
    ),
    (
        *(
            Target(
                f"{data_set(placement, format)}: a micro-batch of {size:,} rows, against an empty"
                " one",
                limit,
                "x",
                partial(_against, size, placement, format),
            )
            for format in FORMATS
            for (placement, size), limit in LIMITS.items()
        ),
        *sharded.TARGETS,
        *spark_kafka.TARGETS,
        *spark_delta.TARGETS,
    ),
)  # fmt: skip
