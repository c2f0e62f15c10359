"""An epoch of many JSON messages of a Kafka topic, compared with Spark's reading them.

A pipeline without a state takes all messages of a topic in its first epoch, keeps count and sum for
each account, and commits. The peer is a streaming query that reads the same messages into columns,
by `from_json` with the declared types, and writes them to `noop`. Both begin at the first message
in every round, take turns in one process, and are measured by the times that Spark reports for
their first batch. The broker is a process of its own on the same machine.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.bench.model import OURS, BenchCase, Figure, Request, SuiteFigures, Target
from tidelog.bench.ours import percentile
from tidelog.bench.suites.spark_peers import EPOCH, Batches, RunningPipeline, of, verdict

if TYPE_CHECKING:
    from tidelog.bench.kafka_broker import Broker

PROGRAM = """
.decl payment(id: number, account: number, amount: number)
.decl paid(account: number, n: number, total: number)
paid(a, n, t) :- payment(_, a, _), n = count : { payment(_, a, _) },
    t = sum x : { payment(_, a, x) }.
"""
SCHEMA = "id long, account long, amount long"
MESSAGES, SMALL_MESSAGES = 1_000_000, 2_000
PARTITIONS, ACCOUNTS = 4, 10_000
PLACEMENTS = ("driver", "sharded")
READ = "Spark's read to noop"
LIMIT = 1.3


def _fill(spark: Any, kafka: Broker, topic: str, messages: int) -> None:
    from tidelog.bench.kafka_broker import send_frame

    kafka.create(topic, PARTITIONS)
    rows = spark.range(0, messages, 1, PARTITIONS).selectExpr(
        "id", f"(id * 7919) % {ACCOUNTS} AS account", "id * 31 % 499 + 1 AS amount"
    )
    send_frame(rows, kafka, topic)


def _messages(spark: Any, kafka: Broker, topic: str, *, stream: bool) -> Any:
    """Return the messages of a topic as Spark reads them by itself."""
    from pyspark.sql import functions as F

    reader = (spark.readStream if stream else spark.read).format("kafka")
    frame = reader.options(**kafka.options(topic, startingOffsets="earliest")).load()
    row = F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")
    return frame.select(row).select("row.*")


def _read(spark: Any, kafka: Broker, topic: str, folder: Path) -> float:
    """Return the time in which Spark reads a topic."""
    frame = _messages(spark, kafka, topic, stream=True)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    batches = Batches(writer.start())
    seconds = batches.first()
    batches.stop()
    return seconds


def _taken(
    spark: Any, kafka: Broker, topic: str, folder: Path, placement: str
) -> tuple[float, Any, int]:
    """Return the time in which a new pipeline takes a topic, the view, and the rows accepted."""
    from tidelog.spark import Pipeline, Source

    options = {"kafka.bootstrap.servers": kafka.servers}
    with Pipeline(
        PROGRAM,
        name="bench",
        state=folder,
        sources=[Source("payment", "kafka", topic, options=options)],
        placement=placement,
        shards=2 if placement == "sharded" else None,
    ) as pipeline:
        running = RunningPipeline(spark, pipeline)
        seconds = running.first()
        running.stop()
        return seconds, pipeline.table("paid"), pipeline.totals().accepted


def _measure(placement: str, request: Request) -> Iterator[Figure]:
    """Measure the epoch of all messages, in turns with Spark's reading them."""
    from tidelog.bench.exercises import warm_up
    from tidelog.bench.kafka_broker import broker
    from tidelog.spark import Source, open_session
    from tidelog.spark.connectors import settings_for

    warm_up()
    messages = MESSAGES if request.is_full else SMALL_MESSAGES
    few = messages // 10  # in a topic to get warm
    warming, rounds = (["few"] * 4 + ["all"], 5) if request.is_full else (["few"], 1)
    settings = settings_for(
        [Source("payment", "kafka", "all")], given={"spark.driver.memory": "3g"}
    )
    with (
        broker() as kafka,
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name,
    ):
        spark = open_session("bench", master="local[2, 4]", settings=settings)
        _fill(spark, kafka, "all", messages)
        _fill(spark, kafka, "few", few)
        times: dict[str, list[float]] = {EPOCH: [], READ: []}
        for number, topic in enumerate([*warming, *["all"] * rounds]):
            folder = Path(name) / str(number)
            seconds, view, accepted = _taken(spark, kafka, topic, folder / "state", placement)
            times[EPOCH].append(seconds)
            times[READ].append(_read(spark, kafka, topic, folder / "checkpoint"))
            shutil.rmtree(folder)
        for what, found in times.items():
            kept = found[len(warming) :]
            note = f"median of {len(kept)}"
            yield Figure(of(what, messages), percentile(kept, 50), messages, note=note)
        theirs = _messages(spark, kafka, "all", stream=False).groupBy("account")
        recomputed = theirs.agg({"id": "count", "amount": "sum"})
        wanted = {(r["account"], r["count(id)"], r["sum(amount)"]) for r in recomputed.collect()}
        own = set(zip(*(column.to_pylist() for column in view.columns), strict=True))
        same = verdict(wanted == own and accepted == messages)
        yield Figure("the view at the end", rows=len(own), note=same)
        spark.stop()


def data_set(placement: str) -> str:
    """Return the name of a case."""
    return f"{placement}, kafka"


def _against(placement: str, found: SuiteFigures) -> float:
    case = data_set(placement)
    return found.seconds(of(EPOCH, MESSAGES), case) / found.seconds(of(READ, MESSAGES), case)


CASES = tuple(
    BenchCase(OURS, partial(_measure, placement), data_set(placement), module="pyspark")
    for placement in PLACEMENTS
)
TARGETS = tuple(
    Target(
        f"{data_set(placement)}: an epoch of {MESSAGES:,} JSON messages, against Spark's read",
        LIMIT,
        "x",
        partial(_against, placement),
    )
    for placement in PLACEMENTS
)
