"""Kills the driver of a pipeline at random moments until it is through, and compares its sinks.

    python tests/spark/killing.py FOLDER REMOTE SEED KILLS

The drivers are clients of a Spark Connect server, forked from one process that has loaded
everything, so that a kill costs a second and not the start of a Java machine. After each kill
another driver goes on. In the end sinks and quarantine must hold, row for row and epoch for epoch,
what a run without kills has written.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.parquet as pq

import tidelog
from tests.spark.piping import PROGRAM, Folder
from tidelog.spark import open_session, pipeline  # noqa: F401

FILES = 12


def fill(folder: Folder, rng: Random) -> None:
    for number in range(FILES):
        lines = [f"{rng.choice('++-')},{rng.randrange(8)},{rng.randrange(8)}\n" for _ in range(5)]
        lines.append(f"?,{number},0\n")
        edge = folder.write(f"edge/{number:02}", "".join(lines))
        label = folder.write(
            f"label/{number:02}", f'{{"x": {rng.randrange(8)}, "name": "n{number}"}}\n'
        )
        for path in (edge, label):
            os.utime(path, ns=(number * 10**9, number * 10**9))


def drive(folder: Folder, remote: str, pipe: int) -> None:
    """Run the pipeline to its end, and tell of each epoch."""
    spark = open_session("killing", remote=remote)
    sources = [
        folder.source("edge", "csv", mode="changes", files_per_epoch=1),
        folder.source("label", "json", files_per_epoch=1),
    ]
    with folder.pipeline(*sources) as running:
        os.write(pipe, b"open\n")
        running.run(spark, watch=lambda done: os.write(pipe, b"epoch %d\n" % done.epoch))


def in_child(folder: Folder, remote: str, rng: Random | None, epoch: float = 0.0) -> bool:
    """Have a child drive the pipeline, and kill it in mid-epoch; return whether it got through.

    It is killed after the first few epochs, at a random moment within about one more: `epoch` is
    how long they take.
    """
    told, pipe = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(told)
            drive(folder, remote, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(pipe)
    if rng is not None:
        heard = 0
        wanted = rng.randrange(1, 4)  # so many words, and a moment more
        while heard < wanted and (word := os.read(told, 1 << 16)):
            heard += word.count(b"\n")
        time.sleep(rng.random() * 1.2 * epoch)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(told)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the driver has failed"
    return True


def contents(folder: Folder) -> dict[str, Any]:
    """Return all that sinks and quarantine hold."""
    found: dict[str, Any] = {"quarantine": folder.quarantined()}
    for file in sorted((folder.path / "out").rglob("*")):
        if file.is_file():
            name = str(file.relative_to(folder.path))
            found[name] = sorted(map(str, pq.read_table(file).to_pylist()))
    return found


PLACEMENTS: dict[str, dict[str, Any]] = {
    "driver": {},
    "sharded": {"placement": "sharded", "shards": 2},
}


def main(parent: Path, remote: str, seed: int, kills: int, placement: str) -> None:
    rng = Random(seed)
    tidelog.Database(PROGRAM, facts={"edge": [(1, 2)]})  # loads the kernels
    killed, rounds = 0, 0
    while killed < kills:
        rounds += 1
        files_seed = rng.randrange(10**9)
        calm, shaken = (Folder(parent / f"{name}{rounds}") for name in ("calm", "shaken"))
        for folder in (calm, shaken):
            folder.placement = PLACEMENTS[placement]
            fill(folder, Random(files_seed))
        begun = time.perf_counter()
        assert in_child(calm, remote, None)
        epoch = (time.perf_counter() - begun) / FILES
        through = False
        while not through and killed < kills:
            through = in_child(shaken, remote, rng, epoch)
            killed += not through
        if not through:
            assert in_child(shaken, remote, None)
        expected, found = contents(calm), contents(shaken)
        assert len(expected) > FILES
        assert found == expected, f"seed {seed}, round {rounds}: {parent}"
    print(f"{killed} kills in {rounds} rounds")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
