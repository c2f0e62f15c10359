"""Kills drivers and executors of a pipeline at random moments, and compares the sinks.

    python -m tests.spark.killing FOLDER SEED DRIVERS EXECUTORS

The pipeline reads Kafka, a Delta table and files (killed.py). A round has input in several *legs*.
For each leg the same sources are read by several runs, each with a state and sinks of its own:

    calm       nobody is killed
    driver     drivers are killed, with their JVM, and others go on
    sharded    the same, with the state in shards
    cluster    one driver on a cluster, whose executors are killed; Spark goes on by itself

In the end sinks and quarantine of all runs must be equal, row for row. In some rounds rules fail on
some rows, which go to the quarantine, too; in the others Spark writes the changes of a view in the
job of a sharded epoch.

A leg is split into epochs by limits of the sources. Spark plans the same epochs after a kill, with
one exception: it may have noted a file, but not yet the epoch, and then reads two files in the
next one. So the changes of a view are compared at those epochs at which both runs have read the
same input, which are all of them otherwise.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from deltalake import DeltaTable, write_deltalake

import tidelog
from tests.samples import sample
from tests.spark.killed import MARK, OFFSETS, REFUSED, Round, Run
from tidelog.bench.kafka_broker import Broker, broker
from tidelog.spark.shard_staging import BY_SPARK

ROOT = Path(__file__).resolve().parents[2]
LEGS = 2
EPOCHS = sample(2, 4)  # of a leg, for files; Kafka has one more
NODES = 9
LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"
PATIENCE = 300  # seconds for a step of a driver

Row = tuple[Any, ...]


# --- input ---


class Input:
    """The sources of a round, which grow with each leg."""

    def __init__(self, folder: Path, kafka: Broker, topic: str, rng: Random) -> None:
        self._folder, self._kafka, self._topic, self._rng = folder, kafka, topic, rng
        self._files = 0
        self._edges: set[tuple[int, int]] = set()
        self._roads: list[set[tuple[int, int]]] = [set() for _ in range(OFFSETS)]
        self._weighed: set[int] = set()
        on_rule_error = rng.choice(("fail", "quarantine"))
        self.round = Round(str(folder), kafka.servers, topic, on_rule_error)
        kafka.create(topic, OFFSETS)

    def grow(self) -> None:
        """Add the input of a leg; some rows of each source do not fit."""
        for number in range(EPOCHS):
            self._add_files()
            for partition, known in enumerate(self._roads):
                # A road has its partition, so that its changes keep their order.
                op, x, y = self._change(known, range(partition, NODES, OFFSETS))
                message = json.dumps({"op": op, "x": x, "y": y})
                sent = [message, "no row"] if number == partition else [message]
                self._kafka.send(self._topic, sent, partition=partition)
        self._change_table()

    def _add_files(self) -> None:
        changes = [self._change(self._edges, range(NODES)) for _ in range(4)]
        # A node beside the random ones, so that no view is empty in the end, whatever the seed.
        changes.append(("+", NODES, NODES))
        if self.round.on_rule_error == "quarantine":
            changes.append(("+", self._files, REFUSED))
        lines = [f"{op},{x},{y}\n" for op, x, y in changes]
        self._write("edge", "".join([*lines, f"?,{self._files},0\n"]))
        names: list[tuple[Any, str]]
        names = [(self._rng.randrange(NODES), f"n{self._files}{letter}") for letter in "ab"]
        names += [(NODES, "always"), ("none", "bad")]
        rows = [json.dumps({"x": x, "name": name}) for x, name in names]
        self._write("label", "\n".join(rows) + "\n")
        self._files += 1

    def _change(self, known: set[tuple[int, int]], xs: range) -> tuple[str, int, int]:
        """Delete a row, or insert one."""
        if known and self._rng.random() < 0.35:
            row = self._rng.choice(sorted(known))
            known.remove(row)
            return ("-", *row)
        row = (self._rng.choice(xs), self._rng.randrange(NODES))
        known.add(row)
        return ("+", *row)

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name / f"{self._files:04}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(self._files * 10**9,) * 2)  # files are read in this order

    def _change_table(self) -> None:
        """Make some versions of the Delta table."""
        rng, path = self._rng, str(self._folder / "weight")
        if not (self._folder / "weight").exists():
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(path, self._weights(NODES // 2, whole=True), configuration=feed)
        for change in rng.sample(("update", "delete", "append", "overwrite"), 3):
            if change == "update":
                some = f"x % 2 = {rng.randrange(2)}"
                DeltaTable(path).update(updates={"w": "(w + 1) % 3"}, predicate=some)
            elif change == "delete":
                gone = rng.choice(sorted(self._weighed) or [0])
                self._weighed.discard(gone)
                DeltaTable(path).delete(f"x = {gone}")
            elif change == "append":
                write_deltalake(path, self._weights(3), mode="append")
            else:
                self._weighed.clear()
                write_deltalake(path, self._weights(NODES - 2, whole=True), mode="overwrite")

    def _weights(self, count: int, *, whole: bool = False) -> pa.Table:
        """Return rows for nodes that have no weight yet."""
        free = sorted(set(range(NODES)) - self._weighed)
        xs = self._rng.sample(free, min(count, len(free)))
        ws = [self._rng.choice((0, 1, 2, None)) for _ in xs]
        self._weighed.update(xs)
        if whole:
            xs, ws = [*xs, NODES], [*ws, 1]
        return pa.table({"x": pa.array(xs, pa.int64()), "w": pa.array(ws, pa.int64())})


# --- drivers ---


class Failed(Exception):
    """A driver that nobody has killed has failed."""


class Driver:
    """A process that runs pipelines, in a session of processes that can be killed together."""

    def __init__(self, folder: Path, master: str) -> None:
        folder.mkdir(parents=True)
        self.log = folder / "log"
        paths = [str(Path(tidelog.__file__).parents[1]), str(ROOT)]  # Spark's workers look there
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if master != LOCAL:
            environment["SPARK_HOME"] = str(_spark_home(folder / "home"))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killed", master, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment,
                cwd=ROOT, start_new_session=True,
            )  # fmt: skip
        self._words: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if text.startswith(MARK):
                self._words.put(text.removeprefix(MARK))
        self._words.put("ended")  # the JVM has ended as well: it has the same output

    @property
    def group(self) -> int:
        """The number of the group of processes."""
        return self._process.pid

    def tell(self, do: str, **keys: Any) -> None:
        """Give a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **keys}).encode() + b"\n")
        self._process.stdin.flush()

    def word(self, seconds: float = PATIENCE) -> str | None:
        """Return what the driver says next; None if it says nothing for so long."""
        try:
            found = self._words.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if found in ("failed", "ended"):
            raise Failed(f"the driver has {found}: {self.log}")
        return found

    def sure(self) -> str:
        """Return what the driver says next."""
        found = self.word()
        if found is None:
            raise Failed(f"the driver says nothing: {self.log}")
        return found

    def get_ready(self) -> None:
        """Wait until the session has started."""
        assert self.sure() == "ready"

    def ask(self, do: str, **keys: Any) -> Any:
        """Give a command, and return its result."""
        self.tell(do, **keys)
        while (word := self.sure()).startswith("epoch"):
            pass
        return json.loads(word.removeprefix("done "))

    def kill(self) -> list[str]:
        """Kill the driver and its JVM; return what it has said meanwhile."""
        os.killpg(self.group, signal.SIGKILL)
        self._process.wait()
        self._reader.join(60)
        found = []
        while not self._words.empty():
            found.append(self._words.get())
        return found


def _spark_home(folder: Path) -> Path:
    """Make a copy of Spark out of links: a cluster writes to its home."""
    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


class Drivers:
    """One driver that works, and one that gets ready meanwhile, if it may be needed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._working = self._start()
        self._spare: Driver | None = None
        self._is_ready = False

    def _start(self) -> Driver:
        self._count += 1
        return Driver(self._folder / f"driver-{self._count}", LOCAL)

    def get(self) -> Driver:
        """Return the one that works."""
        if not self._is_ready:
            self._working.get_ready()
            self._is_ready = True
        return self._working

    def need_spare(self) -> None:
        """Start another one, if none is on its way."""
        if self._spare is None:
            self._spare = self._start()

    def kill(self) -> list[str]:
        """Kill the one that works; the other one takes its place."""
        said = self._working.kill()
        self.need_spare()
        assert self._spare is not None
        self._working, self._spare, self._is_ready = self._spare, None, False
        return said

    def close(self) -> None:
        """End all of them."""
        for driver in (self._working, self._spare):
            if driver is not None:
                driver.kill()


# --- runs ---


@dataclass
class Pace:
    """How long the parts of a run take: what kills are timed by."""

    seconds: dict[str, float] = field(
        default_factory=lambda: {"start": 5.0, "epoch": 2.0, "finish": 2.0}
    )

    def note(self, part: str, seconds: float) -> None:
        """Take a new measurement into account."""
        self.seconds[part] = (self.seconds[part] + seconds) / 2

    def moment(self, part: str, rng: Random) -> float:
        """Return a moment within a part, or shortly after it."""
        return 1.2 * rng.random() * self.seconds[part]


class Shaken:
    """A run that reaches the end of each leg, although processes are killed."""

    def __init__(self, name: str, folder: Path, round_: Round, shards: int = 0) -> None:
        self.name = name
        self.run = Run(str(folder / name), shards)
        self.round = round_
        self.epoch = -1
        """The last one that a driver has told of."""
        self.totals: dict[str, int] = {}

    def start(self, driver: Driver) -> None:
        """Have a driver begin."""
        driver.tell("run", round=asdict(self.round), run=asdict(self.run))

    def heard(self, word: str) -> bool:
        """Take note of what a driver says; return whether it has come to the end."""
        if word.startswith("done "):
            self.totals = json.loads(word.removeprefix("done "))
            self.epoch = self.totals.pop("epoch")
            return True
        self.epoch = int(word.removeprefix("epoch "))
        return False


def calm_run(run: Shaken, driver: Driver) -> None:
    """Run to the end of a leg."""
    run.start(driver)
    while not run.heard(driver.sure()):
        pass


def killed_run(run: Shaken, drivers: Drivers, last: int, most: int, pace: Pace, rng: Random) -> int:
    """Run to the end of a leg, and kill drivers on the way; return how many were killed.

    `last` is the last epoch of the leg. A driver is killed after some epochs, at a random moment
    within the next one; or before the first one, when it opens the state, catches up with sinks,
    and starts the query; or after the last one, when it writes tables.
    """
    for kills in range(most):
        driver = drivers.get()
        drivers.need_spare()
        left = max(0, last - run.epoch)
        moment = until_killed(run, driver, left, rng.randint(0, left), pace, rng)
        if not moment:
            return kills
        said = drivers.kill()
        if any([run.heard(word) for word in said if word != "ended"]):
            return kills  # it was through already
        print(f"  killed the driver of `{run.name}` after {moment}", flush=True)
    calm_run(run, drivers.get())
    return most


def until_killed(
    run: Shaken, driver: Driver, left: int, after: int, pace: Pace, rng: Random
) -> str:
    """Have a driver run until it should be killed: in the part after a number of epochs.

    Returns when that is; nothing if the driver comes to the end before.
    """
    run.start(driver)
    begun, epochs, part = time.monotonic(), 0, "start"
    while True:
        seconds = pace.moment(part, rng) if epochs == after else None
        word = driver.sure() if seconds is None else driver.word(seconds)
        now = time.monotonic()
        if word is None:
            return f"{epochs} of {left} epochs and {now - begun:.2f} s"
        pace.note(part, now - begun)
        if run.heard(word):
            return ""
        begun, epochs = now, epochs + 1
        part = "epoch" if epochs < left else "finish"


def executor_run(run: Shaken, driver: Driver, most: int, rng: Random) -> int:
    """Run to the end of a leg, and kill executors on the way; return how many were killed."""
    run.start(driver)
    kills, begun = 0, time.monotonic()
    due = begun + rng.random() * 4
    while True:
        if kills >= most:
            word: str | None = driver.sure()
        else:
            word = driver.word(max(0.05, due - time.monotonic()))
        if word is not None and run.heard(word):
            return kills
        now = time.monotonic()
        if kills < most and now >= due:
            found = working_executors(driver.group)
            chosen = rng.sample(found, min(len(found), rng.choice((1, 1, 1, 2)), most - kills))
            for process in chosen:
                os.kill(process, signal.SIGKILL)
                kills += 1
                print(f"  killed an executor {now - begun:.2f} s after the start", flush=True)
            due = now + (rng.random() * 8 if chosen else 0.1)


def working_executors(group: int) -> list[int]:
    """Return the executors in a group of processes that have started Python."""
    executors, parents = [], set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if b"pyspark.daemon" in command:
            parents.add(int(fields[1]))
        if int(fields[2]) == group and b"CoarseGrainedExecutorBackend" in command:
            executors.append(int(folder.name))
    return sorted(parents.intersection(executors))


# --- comparison ---


@dataclass
class Contents:
    """All that a run has written."""

    reach: list[Row]
    heavy: list[Row]
    states: list[frozenset[Row]]
    """The rows of `heavy` after each epoch, by its changes."""
    named: list[frozenset[Row]]
    """The same of `named`."""
    positions: list[str]
    """What was read of each source after each epoch."""
    quarantine: list[dict[str, Any]]
    totals: dict[str, int]


def contents(run: Shaken, driver: Driver) -> Contents:
    folder = Path(run.run.folder)
    left = list(folder.glob(".*.tmp"))
    assert not left, f"{run.name} has left {left}"
    positions = _positions(folder / "state" / "checkpoint" / "offsets")
    assert len(positions) == run.epoch + 1, (run.name, len(positions), run.epoch)
    reach = pq.read_table(folder / "reach").to_pylist()
    return Contents(
        sorted(tuple(row.values()) for row in reach),
        sorted(tuple(row) for row in driver.ask("rows", path=str(folder / "heavy"))),
        _states(folder / "heavy-changes", len(positions)),
        _states(folder / "named-changes", len(positions)),
        positions,
        _quarantined(folder / "state" / "quarantine"),
        run.totals,
    )


def _positions(folder: Path) -> list[str]:
    """Return the offsets of all sources at the end of each batch, as Spark has noted them."""
    found = {
        int(path.name): path.read_text().splitlines()[2:]
        for path in folder.iterdir()
        if path.name.isdecimal()
    }
    assert sorted(found) == list(range(len(found)))
    return [
        json.dumps([line if line == "-" else json.loads(line) for line in found[n]], sort_keys=True)
        for n in range(len(found))
    ]


def _states(folder: Path, epochs: int) -> list[frozenset[Row]]:
    """Return the rows after each epoch; each change must be one."""
    changes: dict[int, list[tuple[bool, Row]]] = {}
    for file in sorted(folder.iterdir()):
        for row in pq.read_table(file).to_pylist():
            op, epoch = row.pop("op"), row.pop("epoch")
            assert f"epoch-{epoch:012d}" in file.name
            changes.setdefault(epoch, []).append((op == "+", tuple(row.values())))
    assert all(epoch < epochs for epoch in changes)
    held: set[Row] = set()
    result = []
    for epoch in range(epochs):
        own = changes.get(epoch, [])
        assert len({row for _, row in own}) == len(own), f"epoch {epoch} has a row twice: {folder}"
        for is_new, row in own:
            assert (row not in held) == is_new, f"epoch {epoch} has no change: {row}, {folder}"
            (held.add if is_new else held.remove)(row)
        result.append(frozenset(held))
    return result


def _quarantined(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def compare(calm: Contents, shaken: Contents) -> int:
    """Raise AssertionError if two runs differ; return at how many epochs both had read the same."""
    assert shaken.totals == calm.totals
    assert shaken.totals["received"] == sum(
        shaken.totals[name] for name in ("accepted", "quarantined")
    )
    assert shaken.reach == calm.reach
    assert shaken.heavy == calm.heavy
    assert shaken.positions[-1] == calm.positions[-1]
    epochs = {position: epoch for epoch, position in enumerate(calm.positions)}
    same = 0
    found = zip(shaken.positions, shaken.states, shaken.named, strict=True)
    for position, state, named in found:
        if position in epochs:
            assert state == calm.states[epochs[position]], (position, epochs[position])
            assert named == calm.named[epochs[position]], (position, epochs[position])
            same += 1
    assert shaken.named[-1] == calm.named[-1]
    for one in (calm, shaken):
        assert one.states[-1] == frozenset(one.heavy)
        assert len(one.heavy) == len(set(one.heavy))
    is_same = shaken.positions == calm.positions
    assert _rows(shaken.quarantine, is_same) == _rows(calm.quarantine, is_same)
    return same


def _rows(quarantine: list[dict[str, Any]], epochs: bool) -> list[str]:
    return sorted(
        json.dumps({k: v for k, v in row.items() if epochs or k != "epoch"}, sort_keys=True)
        for row in quarantine
    )


# --- rounds ---

SHARDS = {"driver": 0, "sharded": 2, "cluster": 2}


@contextmanager
def ended(driver: Driver) -> Iterator[Driver]:
    try:
        yield driver
    finally:
        driver.kill()


def main(folder: Path, seed: int, drivers_to_kill: int, executors_to_kill: int) -> None:
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    rng = Random(seed)
    first = (drivers_to_kill + rng.randint(0, 1)) // 2
    todo = {"driver": first, "sharded": drivers_to_kill - first, "cluster": executors_to_kill}
    done = dict.fromkeys(todo, 0)
    pace, rounds = Pace(), 0
    print(f"seed {seed}", flush=True)
    with ExitStack() as stack:
        drivers = Drivers(folder / "drivers")
        stack.callback(drivers.close)
        cluster: Driver | None = None
        if executors_to_kill:
            cluster = stack.enter_context(ended(Driver(folder / "cluster", CLUSTER)))
        kafka = stack.enter_context(broker())
        if cluster is not None:
            cluster.get_ready()
        while any(done[name] < todo[name] for name in todo):
            rounds += 1
            begun = time.monotonic()
            place = folder / f"round-{rounds}"
            given = Input(place, kafka, f"roads-{rounds}", rng)
            calm = Shaken("calm", place, given.round)
            runs = [
                Shaken(name, place, given.round, SHARDS[name])
                for name in todo
                if done[name] < todo[name]
            ]
            for leg in range(LEGS):
                given.grow()
                if sum(done[n] < todo[n] for n in ("driver", "sharded")):
                    drivers.get()
                    drivers.need_spare()
                calm_run(calm, drivers.get())
                for run in runs:
                    left = todo[run.name] - done[run.name]
                    most = min(left, rng.randint(int(leg == LEGS - 1), 4))
                    if run.name == "cluster":
                        assert cluster is not None
                        done[run.name] += executor_run(run, cluster, most, rng)
                    else:
                        done[run.name] += killed_run(run, drivers, calm.epoch, most, pace, rng)
            expected = contents(calm, drivers.get())
            assert expected.reach
            assert expected.heavy
            refused = [row for row in expected.quarantine if "division" in row["reason"]]
            assert expected.quarantine
            assert bool(refused) == (given.round.on_rule_error == "quarantine")
            assert expected.named[-1]
            for run in runs:
                same = compare(expected, contents(run, drivers.get()))
                staged = list(Path(run.run.folder).rglob(f"state/sharded/changes/*{BY_SPARK}"))
                is_staged = run.run.shards > 0 and given.round.on_rule_error == "fail"
                assert bool(staged) == is_staged, run.name
                print(
                    f"round {rounds}: `{run.name}` is equal, {same} of {calm.epoch + 1} epochs too"
                )
            seconds = time.monotonic() - begun
            how = given.round.on_rule_error
            print(f"round {rounds}: {done}, on_rule_error {how}, in {seconds:.1f} s", flush=True)
    total = done["driver"] + done["sharded"]
    print(f"{total} drivers and {done['cluster']} executors killed in {rounds} rounds")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
