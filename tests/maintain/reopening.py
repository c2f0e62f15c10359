"""Random rules with their histories, and databases that are opened again in the middle of one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import tidelog
from tests.generators.programs import Row
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program
from tidelog.reference import evaluate

Rows = dict[str, set[Row]]


class Text(Protocol):
    """Rules, as text."""

    text: str


Rules = TypeVar("Rules", bound=Text)


def seeded_rules(
    number: int, make: Callable[[random.Random], Rules]
) -> tuple[Rules, random.Random]:
    """Return random rules, and the generator that goes on to make a history."""
    rng = seeded(make.__module__, number)
    rules = make(rng)
    print(rules.text)
    return rules, rng


class History(ABC):
    """Random epochs, and the facts they lead to."""

    def __init__(self, rng: random.Random, relations: Iterable[str]) -> None:
        self.rng = rng
        self.held: Rows = {name: set() for name in relations}
        """The facts after the epochs that have not failed."""

    @abstractmethod
    def epoch(self) -> tuple[Rows, Rows]:
        """Return what the next epoch inserts and deletes."""

    def some_held(self, share: float, inserted: Rows) -> Rows:
        """Return a share of the facts, without those that are inserted."""
        return {
            name: {row for row in sorted(rows, key=repr) if self.rng.random() < share}
            - inserted[name]
            for name, rows in self.held.items()
        }

    def after(self, inserted: Rows, deleted: Rows) -> Rows:
        """Return the facts after an epoch."""
        return {name: (rows - deleted[name]) | inserted[name] for name, rows in self.held.items()}


def check_reopened(program: Program, history: History, path: Path) -> None:
    """Assert that views are those of the reference, and that the same epochs fail."""
    rng = history.rng
    for _ in range(8):
        with tidelog.Database(program, path=path) as db:
            assert db.opened is not None and not db.opened.rebuilt
            for _ in range(rng.randrange(5)):
                inserted, deleted = history.epoch()
                after = history.after(inserted, deleted)
                try:
                    evaluate(program, after)
                except EvaluationError:
                    after = history.held
                try:
                    with db.transaction() as transaction:
                        for name in inserted:
                            transaction.insert(name, inserted[name])
                            transaction.delete(name, deleted[name])
                except EvaluationError:
                    assert after is history.held
                else:
                    assert after is not history.held
                history.held = after
            kernel_of(db).check()
            expected = evaluate(program, history.held)
            for name in program.relations:
                assert set(db.view(name)) == expected[name], name
            if rng.random() < 0.5:
                db.snapshot()
