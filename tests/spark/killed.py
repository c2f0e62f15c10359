"""The driver that is killed: a process with a Spark session of its own, which does as it is told.

    python -m tests.spark.killed MASTER FOLDER

It starts its session, says `ready`, and then reads commands, a line of JSON each. So it can be
started while another driver still runs, and a kill costs little:

    {"do": "run", "round": {..}, "run": {..}}    run the pipeline until all input is read
    {"do": "rows", "path": ".."}                 tell the rows of a Delta table

It says `epoch N` after each epoch, and `done` with a result at the end. Everything else that is
written to standard output is ignored.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tidelog
from tidelog.spark import Pipeline, Sink, Source, open_session
from tidelog.spark.connectors import settings_for

# A recursion, a negation, and a join over Kafka (road), Delta (weight), CSV (edge), JSON (label).
PROGRAM = """
.decl edge(x: number, y: number)
.decl road(x: number, y: number)
.decl weight(x: number, w: number)
.decl label(x: number, name: symbol)
.decl step(x: number, y: number)
step(x, y) :- edge(x, y).
step(x, y) :- road(x, y), !weight(y, 0).
.decl reach(x: number, y: number)
reach(x, y) :- step(x, y).
reach(x, z) :- reach(x, y), step(y, z).
.decl heavy(name: symbol, y: number, w: number)
heavy(name, y, w) :- label(x, name), reach(x, y), weight(y, w).
.decl named(x: number, n: number)
named(x, n) :- label(x, _), n = count : { reach(x, _) }.
"""
REFUSED = 99
"""An edge to this node makes a rule fail, in rounds whose pipelines quarantine such rows."""
FAILING = f"""
.decl far(x: number, part: number)
far(x, 6 / (y - {REFUSED})) :- edge(x, y).
"""
MARK = "tidelog: "
"""How a line begins that the driver says."""
OFFSETS = 2  # messages in an epoch; at least one of each partition

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "10000",  # the offsets of all epochs are compared
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
}
# Executors come and go. Spark does not give up, and does not wait long for those that are gone.
CLUSTER_SETTINGS = {
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.executor.memory": "1g",
}


@dataclass(frozen=True)
class Round:
    """The input of all runs of a round."""

    folder: str
    servers: str
    topic: str
    on_rule_error: str = "fail"

    @property
    def program(self) -> str:
        """The program of its pipelines."""
        return PROGRAM + (FAILING if self.on_rule_error == "quarantine" else "")

    def sources(self) -> list[Source]:
        """Return the sources; each gives little at a time, so that there are several epochs."""
        kafka = {"kafka.bootstrap.servers": self.servers, "maxOffsetsPerTrigger": str(OFFSETS)}
        return [
            Source("edge", "csv", f"{self.folder}/edge", mode="changes", files_per_epoch=1),
            Source("label", "json", f"{self.folder}/label", files_per_epoch=1),
            Source("road", "kafka", self.topic, mode="changes", options=kafka),
            Source("weight", "delta", f"{self.folder}/weight", mode="delta-changes"),
        ]


@dataclass(frozen=True)
class Run:
    """A run over the input of a round, with a state and sinks of its own."""

    folder: str
    shards: int = 0
    """0 is the placement `driver`."""

    def sinks(self) -> list[Sink]:
        """Return the sinks."""
        return [
            Sink("reach", path=f"{self.folder}/reach"),
            Sink("heavy", what="changes", path=f"{self.folder}/heavy-changes"),
            Sink("heavy", format="delta", path=f"{self.folder}/heavy"),
            # In shards, Spark writes these in the job of the epoch, being of the last stage.
            Sink("named", what="changes", path=f"{self.folder}/named-changes"),
        ]

    def pipeline(self, round_: Round) -> Pipeline:
        """Return the pipeline."""
        placement: dict[str, Any] = {"placement": "driver"}
        if self.shards:
            placement = {"placement": "sharded", "shards": self.shards}
        return Pipeline(
            round_.program, state=f"{self.folder}/state", sources=round_.sources(),
            sinks=self.sinks(), on_rule_error=round_.on_rule_error, **placement,
        )  # fmt: skip


def say(words: str) -> None:
    os.write(1, f"{MARK}{words}\n".encode())


def run(spark: Any, command: dict[str, Any]) -> dict[str, int]:
    """Run a pipeline to its end; return its last epoch and its totals."""
    pipeline = Run(**command["run"]).pipeline(Round(**command["round"]))
    with pipeline:
        pipeline.run(spark, watch=lambda done: say(f"epoch {done.epoch}"))
        return {"epoch": pipeline.epoch, **asdict(pipeline.totals())}


def rows(spark: Any, command: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of a Delta table."""
    frame = spark.read.format("delta").load(command["path"])
    return [list(row) for row in frame.collect()]


def listen(commands: queue.Queue[str]) -> None:
    """Take commands. Whoever gives them is gone at the end of them: so is this process, then."""
    for line in sys.stdin:
        commands.put(line)
    os.killpg(0, signal.SIGKILL)


def load_kernels() -> None:
    tidelog.Database(PROGRAM + FAILING, facts={"edge": [(1, 2)]}).close()


def main(master: str, folder: Path) -> None:
    sources = Round("x", "x", "x").sources()
    given = {
        **SETTINGS,
        **(CLUSTER_SETTINGS if "cluster" in master else {}),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
    }
    loading = threading.Thread(target=load_kernels)
    loading.start()  # while Java starts
    spark = open_session("killed", master=master, settings=settings_for(sources, given=given))
    loading.join()
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=listen, args=(commands,), daemon=True).start()
    say("ready")
    while True:
        command = json.loads(commands.get())
        try:
            found = (run if command["do"] == "run" else rows)(spark, command)
        except BaseException:
            traceback.print_exc()
            say("failed")
            continue
        say(f"done {json.dumps(found)}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
