"""Durable databases against the reference, on random programs and epochs."""

from __future__ import annotations

import os

import pytest

from tests.durable.histories import DurableHistory
from tests.generators.programs import check_cases, seed_blocks
from tests.maintain.shapes import kernel_case
from tidelog.durable import snapshot
from tidelog.plan import order

PROGRAMS = int(os.environ.get("TIDELOG_DURABLE_PROGRAMS", "32"))
BLOCK = 16


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=80_000), ids=str)
def test_random_histories(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    monkeypatch.setattr(snapshot, "LARGE", 24)  # files of their own for tiny runs
    monkeypatch.setattr(snapshot, "_MOST_FILES", 2)
    history = DurableHistory()
    check_cases(seeds, history.check, kernel_case)
    print(dict(history.seen))
    least = {
        "programs": 0.5, "epochs": 4, "closed": 0.4, "copied": 0.4, "lost views": 0.05,
        "snapshots read": 0.1,
        "epochs replayed": 0.5, "refreshed readers": 1.5, "looks at the past": 4, "changes": 6,
    }  # fmt: skip
    rare = {what: history.seen[what] for what, n in least.items() if history.seen[what] < n * BLOCK}
    assert not rare, f"these hardly happen: {rare}"
