"""Many readers beside one writer: each sees committed epochs only, in their order."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tidelog
from tests.databases import durable
from tests.faults.workload import (
    PROGRAM,
    Contents,
    commit,
    compare,
    expected,
    facts_at,
    first_facts,
)
from tests.seeds import SEED

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"snapshot_bytes": 1500, "step_bytes": 700, "segment_bytes": 3000}
EPOCHS = 60

SCRIPT = """
import sys
import tidelog
from tests.faults.workload import compare, expected, facts_at
reader = tidelog.open_reader(sys.argv[1])
print("ready", flush=True)
seen = set()
while len(seen) < 8:
    if reader.refresh() not in seen:
        seen.add(reader.epoch)
        compare(reader, expected(facts_at(int(sys.argv[2]), reader.epoch)), str(reader.epoch))
"""


@pytest.fixture
def db(tmp_path: Path) -> tidelog.Database:
    return durable(PROGRAM, tmp_path / "state", first_facts(), retain_epochs=2, **SETTINGS)


def contents() -> list[Contents]:
    return [expected(facts_at(SEED, epoch)) for epoch in range(EPOCHS + 1)]


def test_threads(db: tidelog.Database, tmp_path: Path) -> None:
    past, problems, seen = contents(), [], [0, 0, 0]
    done = threading.Event()

    def read(number: int) -> None:
        try:
            reader, last = tidelog.open_reader(tmp_path / "state"), -1
            while last < EPOCHS:
                finished = done.is_set()
                epoch = reader.refresh()
                assert last <= epoch
                if epoch > last:
                    compare(reader, past[epoch], f"epoch {epoch}")
                    seen[number] += 1
                    last = epoch
                    if number == 2:
                        reader = tidelog.open_reader(tmp_path / "state")
                assert not finished or last == EPOCHS, "the last epoch is not seen"
        except BaseException as error:  # a thread has nobody to raise it to
            problems.append(repr(error))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(EPOCHS):
        commit(db, SEED)
        latest = time.monotonic() + 60
        while number == EPOCHS // 2 and not all(seen) and not problems:  # they begin late
            assert time.monotonic() < latest, "a reader has seen no epoch"
            time.sleep(0.001)
    done.set()
    for thread in threads:
        thread.join()
    db.close()
    assert not problems
    assert min(seen) > 1


def test_a_process(db: tidelog.Database, tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "state"), str(SEED)]
    reader = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    while reader.poll() is None and db.epoch < 20_000:
        commit(db, SEED)
    db.close()
    reader.communicate(timeout=60)
    assert reader.returncode == 0


def test_a_reader_keeps_its_epoch(db: tidelog.Database, tmp_path: Path) -> None:
    past = contents()
    reader = tidelog.Database.reader(tmp_path / "state")
    for _ in range(EPOCHS):
        commit(db, SEED)
        assert reader.epoch == 0
        compare(reader, past[0], "epoch 0")  # its files are long gone
    assert repr(reader) == "<DatabaseReader <program>: epoch 0>"
    assert reader.refresh() == EPOCHS
    compare(reader, past[EPOCHS], "the last epoch")
    oldest = db.state.oldest_epoch  # type: ignore[union-attr]
    assert 0 < oldest <= EPOCHS - 2
    compare(reader.at(oldest), past[oldest], "the oldest epoch")
    before = past[EPOCHS - 1]["reach"]
    for epoch, change in reader.changes("reach", since=EPOCHS - 1):
        assert epoch == EPOCHS
        assert frozenset(change.inserted) == past[EPOCHS]["reach"] - before
    with pytest.raises(tidelog.UsageError, match="epoch 0 is not retained any more"):
        reader.at(0)
    db.close()


def test_a_reader_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(tidelog.UsageError, match="there is no database in"):
        tidelog.open_reader(tmp_path)
