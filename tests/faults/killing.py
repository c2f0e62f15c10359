"""Kills a writer at random moments, again and again, and looks at what is left.

    python -m tests.faults.killing FOLDER SEED KILLS

One process loads everything and forks writers, so that a kill costs milliseconds. A writer tells
by a pipe which epoch has committed. After a kill the state must hold that epoch, or the one that
was being committed; its views must be those of the reference.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import tidelog
from tests.databases import durable
from tests.faults.workload import PROGRAM, commit, compare, expected, facts_at, first_facts, refuse
from tidelog.database.database import kernel_of

SETTINGS = {"snapshot_bytes": 2000, "step_bytes": 700, "segment_bytes": 4000}
MOST_EPOCHS = 400  # then a new state is begun: the model is computed from the start


def opened(folder: Path) -> tidelog.Database:
    facts = None if (folder / "MANIFEST").exists() else first_facts()
    return durable(PROGRAM, folder, facts, retain_epochs=5, **SETTINGS)


def write(folder: Path, seed: int, pipe: int) -> None:
    """Commit epochs until somebody puts an end to it."""
    db = opened(folder)
    os.write(pipe, b"%d\n" % db.epoch)
    while True:
        os.write(pipe, b"%d\n" % commit(db, seed))
        if db.epoch % 3 == 0:
            refuse(db)


def waits(rng: Random) -> Iterator[int]:
    """Yield how many lines to wait for before a kill; the first one comes when it has opened.

    Each number comes once in six kills, so that epochs are committed whatever the seed.
    """
    while True:
        yield from rng.sample((0, 1, 2, 3, 6, 12), 6)


def kill_one(folder: Path, seed: int, rng: Random, wait_for: int) -> int:
    """Start a writer, kill it after so many lines; return the last epoch that it has told of."""
    told, pipe = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(told)
            write(folder, seed, pipe)
        finally:
            os._exit(1)
    os.close(pipe)
    heard = b""
    while heard.count(b"\n") < wait_for:
        more = os.read(told, 1 << 16)
        assert more, "the writer has died"
        heard += more
    time.sleep(rng.random() ** 2 * 0.06)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer has ended by itself"
    while select.select([told], [], [], 0)[0]:
        more = os.read(told, 1 << 16)
        if not more:
            break
        heard += more
    os.close(told)
    lines = heard.split(b"\n")[:-1]
    return int(lines[-1]) if lines else -1


def main(parent: Path, seed: int, kills: int) -> None:
    rng = Random(seed)
    with opened(parent / "warm") as db:  # kernels are loaded when they are first called
        for _ in range(30):
            commit(db, seed)
        refuse(db)
    number, last, committed, ends = 0, 0, 0, 0
    folder = parent / "0"
    for kill, wait_for in zip(range(kills), waits(rng), strict=False):
        told = kill_one(folder, seed, rng, wait_for)
        assert told < 0 or told >= last, f"seed {seed}, kill {kill}: {told} after {last}"
        last = max(last, told)
        with opened(folder) as db:
            where = f"seed {seed}, kill {kill}, epoch {last}"
            assert last <= db.epoch <= last + 1, f"{where}: found epoch {db.epoch}"
            ends += db.epoch > last
            compare(db, expected(facts_at(seed, db.epoch)), where)
            kernel_of(db).check()
            last = db.epoch
        if last > MOST_EPOCHS:
            number, committed, last = number + 1, committed + last, 0
            folder = parent / str(number)
    print(f"{kills} kills, {committed + last} epochs, {ends} of them on the disk and not told")
    assert committed + last > kills


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
