"""GALEN, a medical ontology: six rules that derive 24 million rows from a million facts."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.bench.facts import read_packed
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import all_facts, bootstrap, bootstrap_figure, change, delete_and_insert
from tidelog.bench.report import ratio_text

if TYPE_CHECKING:
    from tidelog.database.database import Database
    from tidelog.logic.program import Program
    from tidelog.values.types import Row

FILES = ("galen/galen.dl", "galen/facts.zip")
TEN, HUB, MANY = "ten facts", "hub fact", "many facts"
WHY, SLOWEST_WHY = "proof of a row, median", "proof of a row, slowest"
HOW = ("deleted", "inserted")


def read_galen(folder: Path, full: bool) -> tuple[Program, Mapping[str, list[Row]]]:
    """Return the program and its facts; for a quick run a random twentieth of them."""
    program, facts = read_packed(folder, "galen.dl")
    if full:
        return program, facts
    rng = random.Random(3)
    return program, {name: rng.sample(rows, len(rows) // 20) for name, rows in facts.items()}


def _hub(subclasses: list[Row]) -> Row:
    """Return the fact p(x, y) with the most facts p(_, x): all of these use it."""
    below = Counter(y for _, y in subclasses)
    return max(
        (row for row in subclasses if row[0] != row[1]), key=lambda row: (below[row[0]], row)
    )


def _measure(request: Request) -> Iterator[Figure]:
    program, facts = read_galen(request.folder("galen"), request.is_full)
    database, whole = bootstrap(program, facts)
    yield bootstrap_figure(database, whole)
    yield from _proofs(database)
    pool = all_facts(facts)
    rounds = 50 if request.is_full else 5
    changes = delete_and_insert(database, pool, 10, rounds, seed=11)
    yield from changes.figures(TEN, whole, (50, 90, 99))
    hub = [("p", _hub(facts["p"]))]
    many = random.Random(12).sample(pool, 10_000 if request.is_full else 500)
    for what, chosen in ((HUB, hub), (MANY, many)):
        for how, seconds in (
            ("deleted", change(database, deleted=chosen)),
            ("inserted", change(database, inserted=chosen)),
        ):
            note = f"{len(chosen):,} of them; {ratio_text(seconds / whole)} the bootstrap"
            yield Figure(f"{what} {how}", seconds, note=note)


def _proofs(database: Database) -> Iterator[Figure]:
    """Measure `why` of random derived rows, of p and q alike."""
    from tidelog.database.database import kernel_of

    catalog = kernel_of(database).catalog
    rng = random.Random(13)
    seconds, sizes = [], []
    for name in ("p", "q"):
        words = catalog.relations[name].rows()
        chosen = [rng.randrange(words.shape[1]) for _ in range(100)]
        for row in catalog.decode(name, words[:, chosen].copy()):
            start = time.perf_counter()
            proof = database.why(name, row)
            seconds.append(time.perf_counter() - start)
            sizes.append(sum(1 for _ in proof.nodes()))
    slowest = sorted(seconds[len(seconds) // 10 :])  # the first ones plan the rules
    yield Figure(WHY, statistics.median(slowest), note=f"of {statistics.median(sizes):.0f} rows")
    yield Figure(SLOWEST_WHY, slowest[-1], note=f"up to {max(sizes)} rows")


def _share(what: str, limit: float) -> Target:
    return Target(
        f"{what}, part of the bootstrap",
        limit,
        " %",
        lambda found: 100 * found.seconds(what) / found.seconds("bootstrap"),
    )


def _times_bootstrap(what: str) -> Target:
    return Target(
        f"{what}, against the bootstrap",
        1.2,
        "x",
        lambda found: found.seconds(what) / found.seconds("bootstrap"),
    )


SUITE = Suite(
    "galen",
    "GALEN ontology (needs facts): bootstrap, then facts deleted and inserted again",
    (BenchCase(OURS, _measure, files=FILES),),
    (
        Target("bootstrap", 30.0, " s", lambda found: found.seconds("bootstrap")),
        Target(
            "peak memory of the bootstrap",
            2.5,
            " GB",
            lambda found: found.figure("bootstrap").peak_bytes / 1e9,
        ),
        Target(SLOWEST_WHY, 50.0, " ms", lambda found: 1000 * found.seconds(SLOWEST_WHY)),
        _share(f"{TEN}, median", 0.3),
        _share(f"{TEN}, p99", 2.0),
        *(_times_bootstrap(f"{what} {how}") for what in (HUB, MANY) for how in HOW),
    ),
)
