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

    def remove_node(self, node: Any) -> str | None:
        """Give away what a worker leaves, but for the test that it crashed in.

        The class above would run that test again, and with it lose one worker after another.
        """
        left = {
            scope: unit
            for scope, unit in self.assigned_work.pop(node).items()
            if not all(unit.values())
        }
        if not left:
            return None
        unit = next(iter(left.values()))
        crashed = next(nodeid for nodeid, is_done in unit.items() if not is_done)
        unit[crashed] = True
        for scope, unit in reversed(left.items()):
            if not all(unit.values()):
                self.workqueue[scope] = unit
                self.workqueue.move_to_end(scope, last=False)
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: Any) -> None:
        """Give a worker so much that it goes on.

        It starts a test when it knows which one comes next, or that none does. The class above
        gives one unit; when that is a single test, a worker that has come later waits for ever.
        """
        if node not in self.registered_collections:
            return  # it is still collecting
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
