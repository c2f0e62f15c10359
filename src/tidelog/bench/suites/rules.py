"""Live rules on GALEN: a rule that is added or dropped, beside an epoch with the same rows."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import bootstrap, bootstrap_figure, change
from tidelog.bench.suites.galen import FILES, read_galen

if TYPE_CHECKING:
    from tidelog.database.database import Database
    from tidelog.values.types import Row

RULE = "p(x, z) :- more(x, z)."
DECLARED = ".decl more(x: number, z: number)\n"
ROWS, RULES = "rows", "a rule"
HOW = ("inserted", "deleted")


def _measure(request: Request) -> Iterator[Figure]:
    program, facts = read_galen(request.folder("galen"), request.is_full)
    rng = random.Random(21)
    database, whole = bootstrap(program, facts)
    yield bootstrap_figure(database, whole)
    database.add_rules(DECLARED)
    rounds = 15 if request.is_full else 3
    found: dict[str, list[float]] = {f"{what} {how}": [] for what in (ROWS, RULES) for how in HOW}
    for _ in range(rounds):
        chosen = rng.sample(facts["p"], 10)
        for what, seconds in _round(database, chosen):
            found[what].append(seconds)
    for what, times in found.items():
        yield Figure(what, statistics.median(times), note=f"10 facts of p, {rounds} times")


def _round(database: Database, chosen: list[Row]) -> Iterator[tuple[str, float]]:
    """Take facts out and put them back: as rows, then by a rule that reads them elsewhere."""
    rows = [("p", row) for row in chosen]
    yield f"{ROWS} deleted", change(database, deleted=rows)
    change(database, inserted=[("more", row) for row in chosen])
    yield f"{RULES} inserted", _timed(lambda: database.add_rules(RULE))
    yield f"{RULES} deleted", _timed(lambda: database.drop_rules(RULE))
    change(database, deleted=[("more", row) for row in chosen])
    yield f"{ROWS} inserted", change(database, inserted=rows)


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _against_rows(how: str) -> Target:
    return Target(
        f"{RULES} {how}, against the same rows",
        1.5,
        "x",
        lambda found: found.seconds(f"{RULES} {how}") / found.seconds(f"{ROWS} {how}"),
    )


SUITE = Suite(
    "rules",
    "live rules on GALEN (needs facts): a rule added and dropped, beside the same rows",
    (BenchCase(OURS, _measure, files=FILES),),
    tuple(map(_against_rows, HOW)),
)
