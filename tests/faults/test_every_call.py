"""Every call that changes a file fails once, or is the last one before the machine stops."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import tidelog
from tests.databases import durable
from tests.faults.faulty import FAULTS, CountingFiles, FailingFiles, Stopped, StoppingFiles
from tests.faults.workload import PROGRAM, commit, compare, expected, facts_at, first_facts, refuse
from tests.seeds import SEED, seeded
from tidelog.database.database import kernel_of
from tidelog.durable.files import Files

SETTINGS = {"snapshot_bytes": 900, "step_bytes": 800, "segment_bytes": 1500}
EPOCHS = 6
EVERY = int(os.environ.get("TIDELOG_FAULTS_EVERY", "24"))
"""Every n-th position is tried; `make test-faults` tries all."""


def opened(files: Files, **more: object) -> tidelog.Database:
    return durable(
        PROGRAM, files, retain_epochs=3, **SETTINGS, **more  # type: ignore[arg-type]
    )  # fmt: skip


def scenario(files: Files, committed: list[int]) -> None:
    """Make a database, change it, open it again and go on; a call that fails is made again."""
    db = None
    for attempt in range(2):
        try:
            if db is None:
                facts = None if files.exists("MANIFEST") else first_facts()
                db = opened(files, facts=facts)
            failures = 0  # in a row: only one call fails
            while db.epoch < EPOCHS * (1 + attempt):
                held = db.epoch
                try:
                    committed.append(commit(db, SEED))
                    failures = 0
                except tidelog.StateError as error:
                    assert db.epoch == held
                    compare(db, expected(facts_at(SEED, held)), f"after {error}")
                    failures += 1
                    if failures == 2:
                        assert "accepts no more writes" in str(error)
                        break
                if db.epoch % 2:
                    held = db.epoch
                    with suppress(tidelog.StateError):  # the next one says what that is about
                        refuse(db)
                    assert db.epoch == held
            db.close()
            db = None
        except tidelog.StateError:
            if db is not None:
                db.close()
                db = None


def positions(tmp_path: Path) -> range:
    files = CountingFiles(tmp_path / "count")
    scenario(files, [])
    assert files.calls > 200
    for call in (
        "make", "create", "write", "sync", "begin sync", "end sync", "truncate", "rename",
        "sync folder", "remove",
    ):  # fmt: skip
        assert any(line.startswith(call) for line in files.log), f"no {call} in the scenario"
    assert any("snapshot-" in line for line in files.log[60:]), "no snapshot on the way"
    return range(1 + SEED % EVERY, files.calls + 1, EVERY)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fails(fault: str, tmp_path: Path) -> None:
    failed = []
    for position in positions(tmp_path):
        folder = tmp_path / str(position)
        files = FailingFiles(folder, position, fault)
        committed: list[int] = []
        scenario(files, committed)
        if not files.failed:
            continue  # how many runs a snapshot has depends on the choices of the engine
        failed.append(files.failed)
        assert committed == sorted(set(committed)), f"{files.failed}: an epoch twice"
        with opened(Files(folder)) as db:
            assert db.epoch == committed[-1], f"{files.failed}: an epoch is lost"
            compare(db, expected(facts_at(SEED, db.epoch)), files.failed)
            kernel_of(db).check()
        shutil.rmtree(folder)
    assert len(failed) >= 200 // EVERY


@pytest.mark.parametrize("power", ["on", "off", "torn"])
def test_a_machine_that_stops(power: str, tmp_path: Path) -> None:
    """With the power on the system still writes what it has; without, only what was synced is.

    Or that and some of the rest.
    """
    found = 0
    for position in positions(tmp_path):
        folder = tmp_path / str(position)
        files = StoppingFiles(folder, position)
        committed: list[int] = []
        try:
            scenario(files, committed)
            continue
        except Stopped:
            pass
        where = f"call {position}, {files.log[position - 1]}"
        left = tmp_path / f"{position}-left"
        if power != "on":
            files.left(left, seeded("torn", position) if power == "torn" else None)
        elif folder.exists():
            shutil.copytree(folder, left)
        last = committed[-1] if committed else 0
        if not (left / "MANIFEST").exists():
            assert not committed, f"{where}: everything is lost"
            continue
        with opened(Files(left)) as db:
            assert last <= db.epoch <= last + 1, f"{where}: epoch {db.epoch} after {last}"
            found += db.epoch
            compare(db, expected(facts_at(SEED, db.epoch)), where)
            kernel_of(db).check()
            commit(db, SEED)
            compare(db, expected(facts_at(SEED, db.epoch)), f"{where}, one epoch later")
        shutil.rmtree(left)
        shutil.rmtree(folder)
    assert found > 500 // EVERY
