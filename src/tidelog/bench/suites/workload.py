"""Thirteen epochs, small and large: how well the engine chooses between update and bootstrap.

The workload of the elastic paper, section 5.2: the first evaluation, six small epochs, a large one,
four small ones, a large one. Small epochs delete ten facts and insert them again, in turns. The
paper's sizes of large updates (section 5.1) are 40,000 to 100,000 facts for Galen and 70 to 100 for
CRDT; here 70,000 and 100, deleted by the first large epoch and inserted by the second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.ours import Fact, Facts, all_facts, bootstrap, change
from tidelog.bench.suites import crdt, galen

if TYPE_CHECKING:
    from tidelog.database.database import Database
    from tidelog.logic.program import Program
    from tidelog.values.types import Row

SMALL_UPDATE = 10
ELASTIC, ALWAYS_UPDATE, ALWAYS_BOOTSTRAP = "elastic", "always update", "always bootstrap"

Read = Callable[[Path, bool], "tuple[Program, Mapping[str, list[Row]]]"]
Epoch = tuple[list[Fact], list[Fact]]
"""The inserted and the deleted facts."""


def epochs(facts: Facts, large: int) -> list[Epoch]:
    """Return the twelve epochs after the first evaluation."""
    rng = random.Random(31)
    pool = all_facts(facts)
    rng.shuffle(pool)
    many, rest = pool[:large], pool[large:]
    small: list[Epoch] = []
    for i in range(5):
        few = rest[i * SMALL_UPDATE : (i + 1) * SMALL_UPDATE]
        small += [([], few), (few, [])]
    return [*small[:6], ([], many), *small[6:], (many, [])]


def _elastic(read: Read, name: str, large: int, request: Request) -> Iterator[Figure]:
    program, facts = read(request.folder(name), request.is_full)
    database, total = bootstrap(program, facts)
    yield from _apply(database, total, epochs(facts, _large(large, request)))


def _always_update(read: Read, name: str, large: int, request: Request) -> Iterator[Figure]:
    program, facts = read(request.folder(name), request.is_full)
    database, total = bootstrap(program, facts)
    _never_bootstrap(database)
    yield from _apply(database, total, epochs(facts, _large(large, request)))


def _apply(database: Database, total: float, work: list[Epoch]) -> Iterator[Figure]:
    first, bootstraps = total, 0
    for inserted, deleted in work:
        total += change(database, inserted, deleted)
        bootstraps += any(layer.choice == "bootstrap" for layer in database.last_epoch.layers)
    note = f"{first:.2f} s of them at first; {bootstraps} of 12 epochs by bootstrap"
    yield Figure("13 epochs", total, note=note)


def _always_bootstrap(read: Read, name: str, large: int, request: Request) -> Iterator[Figure]:
    """Re-evaluate each epoch. Only joins are timed, not reading and encoding facts."""
    program, facts = read(request.folder(name), request.is_full)
    current = {relation: set(rows) for relation, rows in facts.items()}
    total = 0.0
    for inserted, deleted in [([], []), *epochs(facts, _large(large, request))]:
        for relation, row in deleted:
            current[relation].discard(row)
        for relation, row in inserted:
            current[relation].add(row)
        database, _ = bootstrap(program, {name: list(rows) for name, rows in current.items()})
        total += sum(layer.seconds for layer in database.last_epoch.layers)
        del database
    yield Figure("13 epochs", total, note="a new database for each; the time of the joins alone")


def _never_bootstrap(database: Database) -> None:
    """Let recursive relations finish every update, however long it takes."""
    from tidelog.database.database import kernel_of
    from tidelog.maintain.elastic import Elastic

    for strategy in kernel_of(database).strategies:
        if isinstance(strategy, Elastic):
            strategy.budget = None


def _large(size: int, request: Request) -> int:
    return size if request.is_full else max(SMALL_UPDATE, size // 20)


def _cases(read: Read, name: str, large: int, files: tuple[str, ...]) -> Iterator[BenchCase]:
    for how, measure in (
        (ELASTIC, _elastic),
        (ALWAYS_UPDATE, _always_update),
        (ALWAYS_BOOTSTRAP, _always_bootstrap),
    ):
        yield BenchCase(OURS, partial(measure, read, name, large), f"{name}, {how}", files=files)


def _against_the_better(name: str, found: SuiteFigures) -> float:
    others = [
        found.seconds("13 epochs", f"{name}, {how}") for how in (ALWAYS_UPDATE, ALWAYS_BOOTSTRAP)
    ]
    return found.seconds("13 epochs", f"{name}, {ELASTIC}") / min(others)


SUITE = Suite(
    "workload",
    "13 epochs, small and large (needs facts): elastic beside always update, always bootstrap",
    (
        *_cases(galen.read_galen, "galen", 70_000, galen.FILES),
        *_cases(crdt.read_crdt, "crdt", 100, crdt.FILES),
    ),
    tuple(
        Target(
            f"{name}: elastic, against the better of the others",
            1.1,
            "x",
            partial(_against_the_better, name),
        )
        for name in ("galen", "crdt")
    ),
)
