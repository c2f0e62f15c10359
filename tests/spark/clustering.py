"""Runs a sharded pipeline on a cluster, and has a machine of the cluster killed in mid-epoch.

    python tests/spark/clustering.py FOLDER

A program of its own: a process has one Spark session. The first task of the second epoch says that
it is busy, and waits a moment. The watching thread then kills. For executors alone see killing.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.spark.piping import PROGRAM, Folder, expected
from tidelog.spark import Pipeline, open_session, shard_job
from tidelog.spark.shard_epoch import EpochWork

EPOCHS = 4
SHARDS = 2


def slow(work: EpochWork) -> Any:
    """Return a task that waits in the second epoch, the first time, so that it can be killed."""
    state, epoch = str(Path(work.state.folder).parent), work.epoch

    def run(batches: Any) -> Any:
        import os as system
        import time as clock
        from pathlib import Path as File

        if epoch == 1:
            try:
                system.unlink(f"{state}/first")
            except FileNotFoundError:
                pass
            else:
                File(state, "busy").write_text(str(system.getpid()))
                clock.sleep(60)
        yield from work(batches)

    return run


def kill_when_busy(state: Path, kill: Any) -> threading.Thread:
    def watch() -> None:
        while not (state / "busy").exists():
            time.sleep(0.05)
        time.sleep(0.3)
        kill(int((state / "busy").read_text()))
        (state / "killed").touch()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def ancestors(process: int) -> list[int]:
    """Return the processes above one, the nearest first."""
    found = []
    while process > 1:
        found.append(process)
        status = Path(f"/proc/{process}/stat").read_text()
        process = int(status.rpartition(")")[2].split()[1])
    return found


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def kill_worker(process: int) -> None:
    """Kill the machine: the worker of the cluster, its executor, and what that has started."""
    own = ancestors(process)
    (worker,) = [above for above in own if "deploy.worker.Worker" in command_of(above)]
    for above in (worker, *own[: own.index(worker)]):
        os.kill(above, signal.SIGKILL)


def run(folder: Folder, master: str, kill: Any) -> None:
    edges: set[tuple[int, int]] = set()
    for number in range(EPOCHS):
        rows = {(n, (n * 7 + number) % 40) for n in range(number, 40, 3)}
        edges |= rows
        path = folder.write(f"edge/{number}", "".join(f"{x},{y}\n" for x, y in sorted(rows)))
        os.utime(path, ns=(number * 10**9, number * 10**9))
    state = folder.path / "state"
    state.mkdir()
    (state / "first").touch()
    shard_job.BySpark.task = lambda self, work: slow(work)  # type: ignore[method-assign]
    watching = kill_when_busy(state, kill)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
    }
    spark = open_session("cluster", master=master, settings=settings)
    source = folder.source("edge", "csv", files_per_epoch=1)
    pipeline = Pipeline(
        PROGRAM, state=state, sources=[source], sinks=folder.sinks(), placement="sharded",
        shards=SHARDS,
    )  # fmt: skip
    with pipeline:
        done = pipeline.run(spark)
        assert [epoch.epoch for epoch in done] == list(range(EPOCHS)), done
        watching.join(30)
        assert (state / "killed").exists(), "nothing was killed"
        table = pipeline.table("reach")
        rows = set(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert rows == expected(PROGRAM, {"edge": edges}, "reach")
        assert pipeline.totals().accepted == sum(len(range(n, 40, 3)) for n in range(EPOCHS))
    spark.stop()
    print("nothing is lost")


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Give the address of a master with two workers, each with a core, for a block."""
    import socket

    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    parts = ["org.apache.spark.deploy.master.Master", "--port", str(port), *common]
    worker = ["org.apache.spark.deploy.worker.Worker", master, "--cores", "1", "--memory", "1g"]
    started: list[subprocess.Popen[bytes]] = []

    def start(words: list[str], name: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *words],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    try:
        start(parts, "master")
        for name in ("worker-a", "worker-b"):
            start([*worker, *common, "--work-dir", str(folder / name)], name)
        for name in ("worker-a", "worker-b"):
            wait_for(folder / f"{name}.log", "Successfully registered with master")
        yield master
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(log: Path, words: str) -> None:
    end = time.monotonic() + 120
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.1)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with standalone(Path(sys.argv[1])) as master:
        run(Folder(Path(sys.argv[1])), master, kill_worker)
