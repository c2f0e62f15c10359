"""Queries: their answers are those of the filtered view, whether it is stored or not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Set

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, literal
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.queries import Queries
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Program, Relation
from tidelog.plan import order
from tidelog.plan.demand import bound_by_recursion
from tidelog.values.types import Row

PROGRAMS = sample(20, 2000)
BLOCK = 10
ASKED = 4  # questions about each relation


class Asking:
    """Asks random questions about random programs."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Compare the answers with those that the reference engine gives."""
        program = Program.parse(case.program)
        rng = random.Random(f"questions {case.seed}")
        try:
            reference = ReferenceEngine(program, case.facts)
        except tidelog.DataError:
            self.seen["programs that fail"] += 1
            return
        kernel = KernelEngine(program, case.facts)
        grouped = bound_by_recursion(kernel.catalog.lowered)
        on_demand = Queries(program, kernel.catalog, lambda name: name in grouped)
        self.seen["programs"] += 1
        texts = [
            self._about(program.relations[name], reference.rows(name), rng)
            for name in sorted(program.derived)
            for _ in range(ASKED)
        ]
        texts += [str(rule).split(":-", 1)[1].strip() for rule in case.rules if rule.body]
        for text in texts:
            try:
                expected = list(reference.query(text).reader.rows())
            except tidelog.ProgramError:
                self.seen["not every alternative binds all"] += 1
                continue
            self.seen["questions"] += 1
            assert list(kernel.query(text).reader.rows()) == expected, f"stored: {text}"
            assert list(on_demand.ask(text).reader.rows()) == expected, f"on demand: {text}"
            self.seen["answers"] += len(expected)

    def _about(self, relation: Relation, rows: Set[Row], rng: random.Random) -> str:
        """Return a question that binds some columns of a relation to values of a row."""
        args = [f"v{i}" for i in range(relation.arity)]
        if rows:
            row = rng.choice(sorted(rows, key=repr))
            for i, value in enumerate(row):
                text = literal(value)
                if text is not None and rng.random() < 0.5:
                    args[i] = text
        if relation.functional:
            return f"{relation.name}[{', '.join(args[:-1])}] = {args[-1]}"
        return f"{relation.name}({', '.join(args)})"


@pytest.fixture
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: planning takes most of the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=71_000))
def test_random_questions(seeds: range) -> None:
    asking = Asking()
    check_cases(seeds, asking.check, kernel_case)
    print(dict(asking.seen))
    assert asking.seen["questions"] > 2 * len(seeds)
    assert asking.seen["answers"] > 2 * len(seeds)
