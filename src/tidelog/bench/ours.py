"""Measure Tidelog: bootstraps and changes, with their times as figures."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tidelog.bench.model import Figure
from tidelog.bench.report import number_text

if TYPE_CHECKING:
    from tidelog.database.database import Database
    from tidelog.logic.program import Program
    from tidelog.values.types import Row

Facts: TypeAlias = "Mapping[str, Sequence[Row]]"
Fact: TypeAlias = "tuple[str, Row]"
"""A relation and one of its rows."""


def bootstrap(program: str | Program, facts: Facts) -> tuple[Database, float]:
    """Return a database on facts in memory, and the time of its first evaluation.

    Compiling kernels, parsing the program and checking rows is not included.
    """
    from tidelog.bench.exercises import warm_up
    from tidelog.database.database import Database
    from tidelog.io.tabular import CheckedRows
    from tidelog.logic.program import Program

    warm_up()
    checked = Program.parse(program) if isinstance(program, str) else program
    given = {name: CheckedRows(rows) for name, rows in facts.items()}
    start = time.perf_counter()
    database = Database(checked, facts=given, engine="kernel")
    return database, time.perf_counter() - start


def bootstrap_figure(database: Database, seconds: float, what: str = "bootstrap") -> Figure:
    """Return the time of a first evaluation, its derived rows, and its bytes of state per row."""
    derived = {rule.head.relation for rule in database.program.rules}
    rows = sum(len(database.view(name)) for name in derived)
    state = sum(database.memory.values())
    return Figure(what, seconds, rows, state / rows if rows else None)


def change(
    database: Database, inserted: Iterable[Fact] = (), deleted: Iterable[Fact] = ()
) -> float:
    """Commit a transaction through the public API; return its time."""
    adds, removes = _by_relation(inserted), _by_relation(deleted)
    start = time.perf_counter()
    with database.transaction() as transaction:
        for name, rows in adds.items():
            transaction.insert(name, rows)
        for name, rows in removes.items():
            transaction.delete(name, rows)
    return time.perf_counter() - start


def _by_relation(facts: Iterable[Fact]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for name, row in facts:
        grouped.setdefault(name, []).append(row)
    return grouped


class Changes:
    """Times of changes of one kind, and how the engine applied them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._rounds: list[list[float]] = []
        self._choices: Counter[str] = Counter()

    def add(self, database: Database, seconds: float) -> None:
        """Record the change that `database` has just committed."""
        self.seconds.append(seconds)
        layers = database.last_epoch.layers
        bootstrapped = any(layer.choice == "bootstrap" for layer in layers)
        self._choices["bootstrap" if bootstrapped else "update"] += 1

    def next_round(self) -> None:
        """Begin another round; the round with the least median is reported.

        Other work on the machine only makes a round slower, so the least median is the most
        accurate one. Engines that are compared are measured in the same way.
        """
        if self.seconds:
            self._rounds.append(self.seconds)
            self.seconds = []

    def figures(
        self, what: str, whole: float | None = None, shares: Sequence[int] = (50, 99)
    ) -> Iterator[Figure]:
        """Yield the median and other percentiles, also as a fraction of `whole`."""
        rounds = [*self._rounds, self.seconds] if self.seconds else self._rounds
        told = quietest(rounds)
        for share in shares:
            seconds = percentile(told, share)
            name = {50: "median", 100: "worst"}.get(share, f"p{share}")
            notes = (
                []
                if whole is None
                else [f"{number_text(100 * seconds / whole)} % of the bootstrap"]
            )
            if share == shares[0]:
                of = "" if len(rounds) == 1 else f", the quietest of {len(rounds)} rounds"
                notes.append(f"{len(told):,} transactions{of}")
                if self._choices["bootstrap"]:
                    notes.append(f"{self._choices['bootstrap']} of them by bootstrap")
            yield Figure(f"{what}, {name}", seconds, note="; ".join(notes))


def delete_and_insert(
    database: Database, facts: Sequence[Fact], size: int, rounds: int, seed: int
) -> Changes:
    """Delete random facts, insert them again, and so on; a round is two transactions."""
    rng = random.Random(seed)
    changes = Changes()
    for _ in range(rounds):
        chosen = rng.sample(facts, size)
        changes.add(database, change(database, deleted=chosen))
        changes.add(database, change(database, inserted=chosen))
    return changes


def all_facts(facts: Facts) -> list[Fact]:
    """Return the facts of all relations as one list, to draw from."""
    return [(name, row) for name, rows in facts.items() for row in rows]


def quietest(rounds: Sequence[list[float]]) -> list[float]:
    """Return the times of the round with the least median."""
    return min(rounds, key=statistics.median)


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value that `share` percent of all do not exceed."""
    if share == 50:
        return statistics.median(values)
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]
