"""A large view in a Delta table that follows small changes, compared with the MERGE alone.

A pipeline, with its state in the driver, keeps count and sum for each account, and a Delta table
has the view. An epoch pays 50 accounts once more, which deletes 50 rows of the view and inserts 50.
The time is from the trigger to the end of the batch, with the sink, as Spark reports it. The peer
is the same statement on a copy of the same table: a MERGE of the 100 changes, which are in a frame
before the clock starts. They take turns.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.bench.model import OURS, BenchCase, Figure, Request, SuiteFigures, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites.spark_peers import EPOCH, RunningPipeline, of, timed

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

DATA_SET = "driver, delta"
PROGRAM = """
.decl payment(id: number, account: number, amount: number)
.decl paid(account: number, n: number, total: number)
paid(a, n, t) :- payment(_, a, _), n = count : { payment(_, a, _) },
    t = sum x : { payment(_, a, x) }.
"""
COLUMNS = ("account", "n", "total")
ROWS, SMALL_ROWS = 10_000_000, 20_000
ROUNDS, SMALL_ROUNDS = (7, 3), (1, 1)  # the second number: rounds before, to get warm
CHANGES = 100
MERGE = "MERGE alone"
LIMIT = 1.5


class Accounts:
    """What was paid to each account: one payment at first."""

    def __init__(self, accounts: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._n = np.ones(accounts, np.int64)
        self._total = self._rng.integers(1, 1000, accounts)
        self._next = accounts

    def first(self) -> pa.Table:
        """Return the first payment to each account."""
        import pyarrow as pa

        everyone = np.arange(len(self._n))
        return pa.table({"id": everyone, "account": everyone, "amount": self._total})

    def pay(self, changes: int) -> tuple[pa.Table, pa.Table]:
        """Pay some accounts once more; return the payments, and the changes of the view."""
        import pyarrow as pa

        which = self._rng.choice(len(self._n), changes // 2, replace=False)
        amounts = self._rng.integers(1, 1000, len(which))
        ids = np.arange(self._next, self._next + len(which))
        self._next += len(which)
        before = self._rows(which)
        self._n[which] += 1
        self._total[which] += amounts
        rows = np.concatenate([before, self._rows(which)], axis=1)
        ops = ["-"] * len(which) + ["+"] * len(which)
        return (
            pa.table({"id": ids, "account": which, "amount": amounts}),
            pa.table([*rows, pa.array(ops)], names=[*COLUMNS, "op"]),
        )

    def _rows(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([which, self._n[which], self._total[which]])

    def view(self) -> pa.Table:
        """Return what the view should be, in the order of the accounts."""
        import pyarrow as pa

        return pa.table([*self._rows(np.arange(len(self._n)))], names=[*COLUMNS])


def _is_same(found: pa.Table, wanted: pa.Table) -> bool:
    found = found.sort_by(COLUMNS[0])
    return all(found[name].equals(wanted[name]) for name in COLUMNS)


def _measure(request: Request) -> Iterator[Figure]:
    """Measure epochs of few rows, in turns with the MERGE of their changes."""
    from tidelog.bench.exercises import warm_up
    from tidelog.spark import Pipeline, Sink, Source, open_session
    from tidelog.spark.connectors import settings_for

    warm_up()
    accounts = Accounts(ROWS if request.is_full else SMALL_ROWS, 1)
    rounds, to_get_warm = ROUNDS if request.is_full else SMALL_ROUNDS
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        payments, table, copy = folder / "payment", folder / "table", folder / "copy"
        payments.mkdir()
        sources = [Source("payment", "parquet", str(payments))]
        sinks = [Sink("paid", format="delta", path=str(table))]
        settings = settings_for(sources, sinks, {"spark.driver.memory": "3g"})
        spark = open_session("bench", master="local[2, 4]", settings=settings)
        pipeline = Pipeline(
            PROGRAM, name="bench", state=folder / "state", sources=sources, sinks=sinks,
            placement="driver",
        )  # fmt: skip
        mine = RunningPipeline(spark, pipeline, {"payment": payments}, "parquet")
        seconds = mine.batch("first", {"payment": accounts.first()})
        yield Figure("bootstrap", seconds, pipeline.totals().accepted, note="with the table")
        shutil.copytree(table, copy)
        times: dict[str, list[float]] = {EPOCH: [], MERGE: []}
        for number in range(-to_get_warm, rounds):
            paid, changes = accounts.pay(CHANGES)
            times[EPOCH].append(mine.batch(str(number), {"payment": paid}))
            times[MERGE].append(_merged(spark, copy, changes))
        for what, found in times.items():
            kept = found[to_get_warm:]
            note = f"median of {len(kept)}"
            yield Figure(of(what, CHANGES), percentile(kept, 50), CHANGES, note=note)
        mine.stop()
        wanted = accounts.view()
        same = _is_same(pipeline.table("paid"), wanted)
        for path in (table, copy):
            same = same and _is_same(spark.read.format("delta").load(str(path)).toArrow(), wanted)
        note = "equal to the view" if same else "NOT equal to the view"
        yield Figure("the table at the end", rows=wanted.num_rows, note=note)
        pipeline.close()
        spark.stop()


def _merged(spark: Any, table: Path, changes: pa.Table) -> float:
    """Return the time of the statement of the sink."""
    from tidelog.spark.table_sql import merge_statement

    frame = spark.createDataFrame(changes).coalesce(1)
    with merge_statement(frame, f"delta.`{table}`", COLUMNS) as statement:
        return timed(lambda: spark.sql(statement).collect())


def _against(found: SuiteFigures) -> float:
    ours, theirs = (found.seconds(of(what, CHANGES), DATA_SET) for what in (EPOCH, MERGE))
    return ours / theirs


CASE = BenchCase(OURS, _measure, DATA_SET, module="pyspark")
TARGETS = (
    Target(
        f"{DATA_SET}: a view of {ROWS:,} rows follows {CHANGES} changes, against the MERGE",
        LIMIT,
        "x",
        _against,
    ),
)
