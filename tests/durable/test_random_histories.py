"""Durable databases against the reference, on random programs and epochs."""

from __future__ import annotations

import os

import pytest

from tests.durable.histories import DurableHistory
from tests.generators.programs import check_cases
from tests.maintain.shapes import kernel_case
from tests.samples import sample, until
from tests.seeds import seed_blocks
from tidelog.durable import snapshot
from tidelog.plan import order

PROGRAMS = int(os.environ.get("TIDELOG_DURABLE_PROGRAMS", sample(16, 160)))
BLOCK = 16


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=80_000))
def test_random_histories(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    monkeypatch.setattr(snapshot, "LARGE", 24)  # files of their own for tiny runs
    monkeypatch.setattr(snapshot, "_MOST_FILES", 2)
    history = DurableHistory()
    least = {
        "programs": 0.5, "epochs": 4, "closed": 0.4, "copied": 0.4, "lost views": 0.05,
        "snapshots read": 0.1,
        "epochs replayed": 0.5, "refreshed readers": 1.5, "looks at the past": 4, "changes": 6,
    }  # fmt: skip

    def rare() -> dict[str, int]:
        return {
            what: history.seen[what] for what, n in least.items() if history.seen[what] < n * BLOCK
        }

    # What is rare in these comes in more of them.
    more = range(seeds.start, seeds.start + 4 * BLOCK)
    for number in until(lambda: not rare(), least=len(seeds), most=len(more)):
        check_cases(more[number : number + 1], history.check, kernel_case)
    print(dict(history.seen))
    assert not rare(), f"these hardly happen: {rare()}"
