"""Random epochs through the database: contents, changes, and what an abort leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

import tidelog
from tests.generators.programs import (
    Epoch,
    RandomCase,
    Row,
    Shape,
    check_cases,
    random_case,
)
from tests.properties.comparing import difference
from tests.samples import sample
from tests.seeds import case_seeds, seed_blocks
from tidelog.reference import evaluate

SHAPE = Shape(epochs=(2, 5), wide=0.2, floats=0.1, strings=0.2)
ENGINES = ("reference", "kernel")
BLOCKS = seed_blocks(sample(30, 200), 10, offset=50_000)

Contents = dict[str, frozenset[Row]]


def contents(database: tidelog.Database) -> Contents:
    out = {}
    for name in database.program.relations:
        rows = list(database.view(name))
        assert len(rows) == len(set(rows)) == len(database.view(name)), f"{name} repeats rows"
        out[name] = frozenset(rows)
    return out


def collect(transaction: tidelog.Transaction, epoch: Epoch) -> None:
    for name, (inserts, deletes) in epoch.items():
        transaction.insert(name, inserts)
        transaction.delete(name, deletes)


def all_epochs(case: RandomCase) -> Iterator[Epoch]:
    """Yield the first facts as an epoch of their own, then the others."""
    yield {name: (sorted(rows, key=repr), []) for name, rows in case.facts.items()}
    yield from case.epochs


def wrong_change(before: Contents, after: Contents, changes: object) -> str | None:
    assert set(changes) == set(after), "every relation has an entry"
    for name in after:
        change = changes[name]
        inserted, deleted = list(change.inserted), list(change.deleted)
        if len(set(inserted)) != len(inserted) or len(set(deleted)) != len(deleted):
            return f"{name}: a change names a row twice"
        if set(inserted) & set(deleted):
            return f"{name}: inserted and deleted {set(inserted) & set(deleted)}"
        if set(inserted) & before[name]:
            return f"{name}: not minimal, was there before: {set(inserted) & before[name]}"
        if set(deleted) - before[name]:
            return f"{name}: not minimal, was not there: {set(deleted) - before[name]}"
        if (before[name] - set(deleted)) | set(inserted) != after[name]:
            return f"{name}: before + change is not after: +{inserted} -{deleted}"
        if bool(change) != (before[name] != after[name]):
            return f"{name}: a change is true when there is one"
    return None


def check_epochs(case: RandomCase, engine: str) -> str | None:
    database = tidelog.Database(case.program, engine=engine)
    before = contents(database)
    for i, (epoch, state) in enumerate(zip(all_epochs(case), case.states(), strict=True)):
        with database.transaction() as transaction:
            collect(transaction, epoch)
        after = contents(database)
        wrong = difference(after, evaluate(database.program, state), "evaluate()")
        wrong = wrong or wrong_change(before, after, transaction.changes)
        if wrong is None and database.epoch != i + 1:
            wrong = f"epoch {database.epoch}, not {i + 1}"
        if wrong is not None:
            return f"epoch {i}: {wrong}"
        before = after
    return None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seeds", BLOCKS)
def test_contents_and_changes(seeds: range, engine: str) -> None:
    check_cases(seeds, partial(check_epochs, engine=engine), SHAPE)


class Stop(Exception):
    pass


def check_aborts(case: RandomCase, engine: str) -> str | None:
    """Before each epoch, try the next one and give it up; the epochs then go as if it never was."""
    database = tidelog.Database(case.program, engine=engine)
    epochs = list(all_epochs(case))
    states = case.states()
    for i, epoch in enumerate(epochs):
        before, number = contents(database), database.epoch
        for tried in (epoch, epochs[-1]):
            try:
                with database.transaction() as transaction:
                    collect(transaction, tried)
                    raise Stop
            except Stop:
                pass
            if contents(database) != before or database.epoch != number:
                return f"epoch {i}: the abort changed something"
            with pytest.raises(tidelog.UsageError):
                transaction.changes  # noqa: B018
        with database.transaction() as transaction:
            collect(transaction, epoch)
        wrong = difference(
            contents(database), evaluate(database.program, next(states)), "evaluate()"
        )
        if wrong is not None:
            return f"epoch {i}: {wrong}"
    return None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seeds", seed_blocks(30, 10, offset=51_000))
def test_an_abort_leaves_everything_as_it_was(seeds: range, engine: str) -> None:
    check_cases(seeds, partial(check_aborts, engine=engine), SHAPE)


FAILING = """
    .decl poison(x: number)
    .decl poisoned(x: number)
    poisoned(x / (x - x)) :- poison(x).
"""


@pytest.mark.parametrize("seeds", seed_blocks(10, 10, offset=52_000))
def test_a_failing_commit_leaves_everything_as_it_was(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        database = tidelog.Database(case.program + FAILING)
        for epoch, state in zip(all_epochs(case), case.states(), strict=True):
            before = contents(database)
            with pytest.raises(tidelog.EvaluationError), database.transaction() as transaction:
                collect(transaction, epoch)
                transaction.insert("poison", [(1,)])
            if contents(database) != before:
                return "the failed commit changed something"
            with database.transaction() as transaction:
                collect(transaction, epoch)
            wrong = difference(contents(database), evaluate(database.program, state), "evaluate()")
            if wrong is not None:
                return wrong
        return None

    check_cases(seeds, check, SHAPE)


def test_the_epochs_are_worth_running() -> None:
    """The generator makes every kind of change it promises, or the tests above prove little."""
    seen = dict.fromkeys(
        ["empty", "repeated", "both", "present", "absent", "derived", "insert", "delete"], 0
    )
    for seed in case_seeds(80, offset=50_000):
        case = random_case(seed, SHAPE)
        heads = {head.split("(")[0] for rule in case.rules if rule.body for head in rule.heads}
        for epoch, state in zip(case.epochs, case.states(), strict=False):
            seen["empty"] += not epoch
            for name, (inserts, deletes) in epoch.items():
                seen["repeated"] += len(set(inserts)) < len(inserts)
                seen["both"] += bool(set(inserts) & set(deletes))
                seen["present"] += bool(set(inserts) & state[name])
                seen["absent"] += bool(set(deletes) - state[name])
                seen["derived"] += name in heads
                seen["insert"] += bool(set(inserts) - set(deletes) - state[name])
                seen["delete"] += bool((set(deletes) - set(inserts)) & state[name])
    assert all(seen.values()), seen
