"""Which worker runs a test, and when: what takes long first, and Spark in one worker.

A Spark session costs ten seconds of a processor or more, with what Java compiles until it is quick,
and a process has its own. So those tests that share one are given to one worker, as a unit, at the
very start. Then come tests that take long, each by itself, so that no worker is left with one at
the end; then all others, file by file.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"

# Of these every test is a unit. Those that take longest stand first.
LONG = (
    "tests/kernel/test_bounds.py",
    "tests/spark/test_kills.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_postgres.py",
    "tests/cli/test_warm.py",
    "tests/bench/",
    "tests/faults/",
    "tests/docs/test_pages.py",
    "tests/spark/test_java.py",
    "tests/maintain/test_against_reference.py",
    "tests/durable/",
    "tests/properties/",
)


def longest_first(nodeid: str) -> int:
    """Return the place of a test: those with the session, then LONG, then the others."""
    for place, start in enumerate(LONG, start=1):
        if nodeid.startswith(start):
            return place
    return 0 if nodeid.startswith(SPARK) else len(LONG) + 1


class InUnits(LoadScopeScheduling):
    """Gives a worker the next unit when it has nearly done the one before."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # they are in order

    def _split_scope(self, nodeid: str) -> str:
        place = longest_first(nodeid)
        if place == 0:
            return SPARK
        return nodeid if place <= len(LONG) else nodeid.partition("::")[0]
