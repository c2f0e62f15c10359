"""Single bits that change in files: they are noticed, or make no difference."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import tidelog
from tests.databases import durable
from tests.faults.workload import PROGRAM, commit, compare, expected, facts_at, first_facts
from tests.seeds import SEED, seeded
from tidelog.durable import snapshot

FLIPS = int(os.environ.get("TIDELOG_FLIPS", "120"))
EPOCHS = 12


def state(folder: Path) -> None:
    """Make a state with everything in it: a snapshot, files of the log, epochs to replay."""
    settings = {"snapshot_bytes": 10**9, "segment_bytes": 900}
    with durable(PROGRAM, folder, first_facts(), **settings) as db:
        for _ in range(EPOCHS - 4):
            commit(db, SEED)
        db.snapshot()
        for _ in range(4):
            commit(db, SEED)
    names = {path.name.split("-")[0] for path in folder.iterdir()}
    assert names >= {"MANIFEST", "COMMITTED", "LOCK", "log", "data", "tables", "snapshot", "words"}


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_single_bits(tmp_path: Path, monkeypatch: object) -> None:
    large, snapshot.LARGE = snapshot.LARGE, 16
    try:
        state(tmp_path / "state")
    finally:
        snapshot.LARGE = large
    contents = expected(facts_at(SEED, EPOCHS))
    rng = seeded("flips")
    files = sorted((tmp_path / "state").iterdir())
    sizes = [path.stat().st_size for path in files]
    seen: Counter[str] = Counter()
    copy = tmp_path / "copy"
    for number in range(FLIPS):
        # Every file as often as any other at first, then every bit.
        if number < FLIPS // 2:
            which = number % len(files)
        else:
            which = rng.choices(range(len(files)), sizes)[0]
        bit = rng.randrange(8 * sizes[which])
        where = f"bit {bit} of {files[which].name}"
        shutil.copytree(tmp_path / "state", copy)
        flip(copy / files[which].name, bit)
        try:
            with tidelog.Database(PROGRAM, path=copy) as db:
                assert db.epoch == EPOCHS, where
                compare(db, contents, where)
                list(db.changes("reach", since=db.state.oldest_epoch))  # type: ignore[union-attr]
            seen[f"{files[which].name}: harmless"] += 1
        except tidelog.StateError as error:
            assert str(copy) in str(error), where
            seen[f"{files[which].name}: noticed"] += 1
        shutil.rmtree(copy)
    for what, times in sorted(seen.items()):
        print(f"{times:5} {what}")
    noticed = sum(times for what, times in seen.items() if "noticed" in what)
    assert noticed > FLIPS // 3
    for path in files:
        if path.name.startswith(("MANIFEST", "snapshot-", "tables-")):
            assert not seen[f"{path.name}: harmless"] or path.name.startswith("tables-")
