"""Random programs, random rows: every proof is checked step by step, on both engines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

import tidelog
from tests.generators.grouped_recursion import FAILING, REGISTERED, grouped_case
from tests.generators.inequality_joins import inequality_case
from tests.generators.programs import RandomCase, check_cases
from tests.maintain.shapes import kernel_case
from tests.maintain.test_virtual import virtual_case
from tests.proof.checking import ProofChecker
from tests.samples import sample
from tests.seeds import case_seeds, seed_blocks
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.values.types import Row

PROGRAMS = sample(20, 2000)
BLOCK = 10
ROWS = 6  # of each relation, present and absent


class _Proving:
    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that rows of a case have valid proofs, and rows that are not there none."""
        self._check(case, "kernel")
        if case.seed % 2:
            self._check(case, "reference")

    def _check(self, case: RandomCase, engine: str) -> None:
        program = Program.parse(case.program)
        states = list(case.states())
        try:
            db = tidelog.Database(program, facts=states[0], engine=engine)
        except tidelog.DataError:
            return
        given = {name: set(rows) for name, rows in states[0].items()}
        rng = random.Random(case.seed)
        self._prove(db, given, rng)
        for epoch in case.epochs[:2]:
            changed = {name: set(rows) for name, rows in given.items()}
            try:
                with db.transaction() as tx:
                    for name, (inserts, deletes) in epoch.items():
                        adds, removes = set(inserts), set(deletes)
                        tx.insert(name, adds - removes)
                        tx.delete(name, removes - adds)
                        changed[name] = (changed[name] - (removes - adds)) | (adds - removes)
            except tidelog.DataError:
                continue
            given = changed
        self._prove(db, given, rng)

    def _prove(self, db: tidelog.Database, given: dict[str, set[Row]], rng: random.Random) -> None:
        checker = ProofChecker(db.program, given, db.engine)
        derived = sorted(db.program.derived)
        pool: dict[object, set[object]] = {}
        try:
            rows = {name: list(db.view(name)) for name in db.program.relations}
        except tidelog.DataError:
            # A rule of a virtual view fails when it is read.
            assert any(view.virtual for view in db.program.views.values())
            return
        for name, present in rows.items():
            for place, column in enumerate(db.relation(name).columns):
                pool.setdefault(column.type, set()).update(row[place] for row in present)
        for name in derived:
            for row in rng.sample(rows[name], min(ROWS, len(rows[name]))):
                checker.check(db.why(name, row), name, row)
                self.seen["proofs"] += 1
            for _ in range(ROWS // 2):
                types = [column.type for column in db.relation(name).columns]
                if not all(map(pool.get, types)):
                    continue
                absent = tuple(rng.choice(sorted(pool[t], key=repr)) for t in types)
                if absent not in db.view(name):
                    found = db.why_not(name, absent, depth=rng.randint(1, 3))
                    checker.check_missing(found, name, absent)
                    self.seen["missing"] += 1


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    names = (*REGISTERED, *FAILING)
    try:
        for name in names:
            algebra = tidelog.SetFunction(lambda values: max(values) - min(values))
            tidelog.aggregate(name, algebra, takes="number", gives="number")
        yield
    finally:
        for name in names:
            tidelog.forget_aggregate(name)


@pytest.fixture(autouse=True)
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: any plan must do, and planning takes half the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=170_000))
def test_random_programs(seeds: range) -> None:
    proving = _Proving()
    check_cases(seeds, proving.check, kernel_case)
    print(dict(proving.seen))
    assert proving.seen["proofs"] >= len(seeds)
    assert proving.seen["missing"] >= len(seeds)


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=172_000))
def test_views_that_are_not_stored(seeds: range) -> None:
    proving = _Proving()

    def check(case: RandomCase) -> None:
        try:
            proving.check(case)
        except tidelog.ProgramError as error:
            assert "cannot be virtual" in str(error)
            proving.seen["refused"] += 1

    check_cases(seeds, check, virtual_case)
    print(dict(proving.seen))
    assert proving.seen["proofs"] >= len(seeds)
    assert proving.seen["missing"] >= len(seeds)


@pytest.mark.parametrize("make", [inequality_case, grouped_case])
def test_special_joins(make: object) -> None:
    proving = _Proving()
    check_cases(case_seeds(sample(5, 200), offset=171_000), proving.check, make)
    print(dict(proving.seen))
    assert proving.seen["proofs"] > 0
