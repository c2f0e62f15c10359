"""Durable databases: the cost of a commit compared with its sync, and the time to open."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tidelog.bench.facts import random_graph
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import change, percentile, quietest
from tidelog.bench.suites import closure, join

OPEN, COMMIT = "opening", "commits"
_RECORD = 400  # bytes: about what a small epoch writes


class _Sync:
    """Appends a few bytes to a file, and waits until they are on disk."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._end = 0

    def __call__(self) -> float:
        """Return the time."""
        start = time.perf_counter()
        os.pwrite(self._file, bytes(_RECORD), self._end)
        os.fdatasync(self._file)
        self._end += _RECORD
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _commits(request: Request) -> Iterator[Figure]:
    """Insert and delete one row, in a database in memory and in a durable one, in turns.

    In turns of twenty: single turns would find the caches of the processor cold.
    """
    from tidelog.bench.exercises import warm_up
    from tidelog.database.database import Database

    warm_up()
    size = 100_000 if request.is_full else 10_000
    rng = random.Random(5)
    rows = {
        name: [(rng.randrange(size), rng.randrange(size)) for _ in range(size)] for name in "rs"
    }
    given = set(rows["r"])
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        plain = Database(join.PROGRAM, facts=rows)
        durable = Database(join.PROGRAM, facts=rows, path=Path(folder) / "state")
        sync = _Sync(Path(folder) / "sync")
        rounds: dict[str, list[list[float]]] = {
            "in memory": [],
            "durable": [],
            "the sync alone": [],
        }
        for _ in range(6 if request.is_full else 1):
            for times in rounds.values():
                times.append([])
            for _ in range(40 if request.is_full else 6):
                drawn = {(rng.randrange(size), rng.randrange(size)) for _ in range(10)} - given
                for name, database in (("in memory", plain), ("durable", durable)):
                    for row in drawn:
                        rounds[name][-1].append(change(database, inserted=[("r", row)]))
                        rounds[name][-1].append(change(database, deleted=[("r", row)]))
                rounds["the sync alone"][-1] += [sync() for _ in range(2 * len(drawn))]
        durable.close()
        sync.close()
    for name, times in rounds.items():
        told = quietest(times)
        note = f"{len(told):,} times, the quietest of {len(times)} rounds"
        yield Figure(f"{name}, median", percentile(told, 50), note=note)
        yield Figure(f"{name}, p99", percentile(told, 99))


def _opening(request: Request) -> Iterator[Figure]:
    """Bootstrap a closure, save it, and open it again; once more after small epochs."""
    from tidelog.bench.exercises import warm_up
    from tidelog.database.database import Database
    from tidelog.logic.program import Program

    warm_up()
    edges = random_graph(10_740, 12_890, 2) if request.is_full else random_graph(1500, 1750, 2)
    program = Program.parse(closure.PROGRAM)
    start = time.perf_counter()
    rows = len(Database(program, facts={"edge": edges}).view("path"))
    yield Figure("bootstrap", time.perf_counter() - start, rows, note="in memory")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        path = Path(folder) / "state"
        start = time.perf_counter()
        database = Database(program, facts={"edge": edges}, path=path)
        assert database.state is not None
        size = database.state.snapshot_bytes
        yield Figure(
            "bootstrap and snapshot", time.perf_counter() - start, rows, size / rows,
            f"{size / 1e6:,.0f} MB of files",
        )  # fmt: skip
        database.close()
        for what in ("open", "open, 20 epochs to replay"):
            start = time.perf_counter()
            with Database(program, path=path) as database:
                seconds = time.perf_counter() - start
                opened = database.opened
                assert opened is not None
                note = f"{opened.mapped_bytes / 1e6:,.0f} MB mapped, read when needed"
                yield Figure(what, seconds, rows, note=note)
                # Little to compute, but everything must be read.
                apart = [("edge", (len(edges), len(edges) + 1))]
                yield Figure(f"{what}: the first change", change(database, inserted=apart))
                change(database, deleted=apart)
                for edge in random.Random(7).sample(edges, 10):
                    change(database, deleted=[("edge", edge)])
                    change(database, inserted=[("edge", edge)])
                assert len(database.view("path")) == rows
        start = time.perf_counter()
        with Database(program, path=path, verify=False) as database:
            yield Figure("open without verifying", time.perf_counter() - start, rows)


SUITE = Suite(
    "durable",
    "a database in files: commits of one row beside their sync, and opening a large state",
    (
        BenchCase(OURS, _commits, COMMIT),
        BenchCase(OURS, _opening, OPEN),
    ),
    (
        Target(
            "a small commit, against its sync",
            2.0,
            "x",
            lambda found: (
                found.seconds("durable, median", COMMIT)
                / found.seconds("the sync alone, median", COMMIT)
            ),
        ),
        Target(
            "what durability adds to a small commit, against its sync",
            2.0,
            "x",
            lambda found: (
                (
                    found.seconds("durable, median", COMMIT)
                    - found.seconds("in memory, median", COMMIT)
                )
                / found.seconds("the sync alone, median", COMMIT)
            ),
        ),
        Target(
            "opening and the first change, against the bootstrap",
            0.1,
            "x",
            lambda found: (
                (found.seconds("open", OPEN) + found.seconds("open: the first change", OPEN))
                / found.seconds("bootstrap", OPEN)
            ),
        ),
    ),
)
