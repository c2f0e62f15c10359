"""A durable database that is opened again and again, in the middle of a history of epochs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

import tidelog
from tests.generators.programs import Row
from tidelog.engine.kernel import KernelEngine
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program
from tidelog.reference import evaluate

Rows = dict[str, set[Row]]


class History(Protocol):
    """Random epochs."""

    held: Rows
    """The facts after the epochs that have not failed."""

    def epoch(self) -> tuple[Rows, Rows]:
        """Return what the next epoch inserts and deletes."""

    def after(self, inserted: Rows, deleted: Rows) -> Rows:
        """Return the facts after an epoch."""


def check_reopened(program: Program, history: History, rng: random.Random, path: Path) -> None:
    """Assert that views are those of the reference, and that the same epochs fail."""
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
            assert isinstance(db._engine, KernelEngine)
            db._engine._check()
            expected = evaluate(program, history.held)
            for name in program.relations:
                assert set(db.view(name)) == expected[name], name
            if rng.random() < 0.5:
                db.snapshot()
