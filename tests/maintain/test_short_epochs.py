"""Epochs of few rows run by the kernel in one call, and by the strategies: nobody can tell which.

Random programs without recursion, in epochs of one row, of ten, and of thousands. Both engines are
compared with the oracle through `Comparison` in test_against_reference.py; here with each other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import tidelog
from tests.generators.programs import RandomCase, Row, check_cases, random_case
from tests.maintain.comparing import Comparison
from tests.maintain.shapes import SHAPES
from tests.samples import sample
from tests.seeds import seed_blocks, seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import Effects
from tidelog.engine.report import EpochReport
from tidelog.logic.program import Program

PROGRAMS = sample(20, 2000)
BLOCK = 10
EPOCHS = sample(100, 2000)
Epoch = dict[str, tuple[set[Row], set[Row]]]

_FLAT = tuple(
    replace(shape, linear=0.0, nonlinear=0.0, mutual=0.0, aggregates=0.4) for shape in SHAPES
)


def flat_case(seed: int) -> RandomCase:
    """Return a case without recursion."""
    return random_case(seed, _FLAT[seed % len(_FLAT)])


def one_by_one(seed: int) -> RandomCase:
    """Return a case without recursion whose epochs have one row each."""
    case = flat_case(seed)
    rng = random.Random(seed)
    epochs: list[dict[str, tuple[tuple[Row, ...], tuple[Row, ...]]]] = []
    for epoch in case.epochs:
        single = [
            {name: ((row,), ()) if which == 0 else ((), (row,))}
            for name, rows in epoch.items()
            for which in (0, 1)
            for row in rows[which]
        ]
        rng.shuffle(single)
        epochs += single[:6]
    return replace(case, epochs=tuple(epochs[:40]))


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=710_000))
def test_epochs_of_one_row_against_the_oracle(seeds: range) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, one_by_one)
    assert comparison.seen["programs"] == len(seeds)


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=720_000))
def test_epochs_of_some_rows_against_the_oracle(seeds: range) -> None:
    comparison = Comparison()
    check_cases(seeds, comparison.check, flat_case)
    assert comparison.seen["programs"] == len(seeds)


class Twins:
    """Two engines of one program: one runs short epochs in one call, the other never does."""

    def __init__(self, program: Program, given: dict[str, list[Row]]) -> None:
        self.one, self.other = (KernelEngine(program, given) for _ in range(2))
        self.other.short_epochs.is_on = False

    def apply(self, inserted: dict[str, set[Row]], deleted: dict[str, set[Row]]) -> None:
        """Apply an epoch to both, and compare what they say about it."""
        found: list[object] = []
        for engine in (self.one, self.other):
            try:
                effects = engine.apply(inserted, deleted)
            except tidelog.DataError as error:
                found.append(str(error))
                continue
            found.append((_told(effects), _report(engine.last_epoch)))
        assert found[0] == found[1]

    def compare(self) -> None:
        """Compare all that is stored."""
        for engine in (self.one, self.other):
            engine.check()
        for name in self.one.program.relations:
            ours = self.one.levels_and_counts(name)
            assert ours == self.other.levels_and_counts(name), name
            assert self.one.given_count(name) == self.other.given_count(name), name


def _told(effects: Effects) -> object:
    changes = {name: (c.inserted, c.deleted) for name, c in effects.changes.items()}
    return changes, dict(effects.ignored), dict(effects.late)


def _report(report: EpochReport) -> object:
    return (
        report.epoch, report.given_inserted, report.given_deleted,
        [layer._replace(seconds=0.0) for layer in report.layers],
    )  # fmt: skip


PROGRAM = """
.decl p(a: number, b: symbol)
.decl q(b: symbol, c: number)
.decl r(c: number)
.decl v(a: number, c: number)
.decl w(a: number, c: number)
.decl both(a: number, n: number, s: number, m: float)
.decl total(s: number)
.decl pairs(x: number, y: number)
.decl wide(a: number, b: symbol, c: number, d: number, e: number)
v(a, c) :- p(a, b), q(b, c), !r(c).
v(c, c) :- r(c).
w(a, c) :- v(a, c), c > a.
both(a, n, s, m) :- v(a, _), n = count : { v(a, _) }, s = sum c : { v(a, c) },
    m = mean c : { v(a, c) }.
total(s) :- s = sum n : { both(_, n, _, _) }.
pairs(x, y) :- q(b, x), q(b, y), x < y.
wide(a, b, c, a * 1000003, c * c) :- p(a, b), q(b, c).
"""


# Extremes, inequality joins and semi-joins: values collide often, so that extremes move. Nothing is
# measured here (maintain/measured.py): the clock would make differences.
ORDERED = """
.decl p(k: number, x: number)
.decl q(k: number, y: number)
.decl r(k: number, y: number, label: symbol)
.decl least(k: number, m: number)
.decl most(m: number)
.decl last(k: number, s: symbol, m: number)
.decl pairs(k: number, x: number, y: number)
.decl chains(k: number, x: number, y: number, z: number)
.decl followed(k: number, x: number)
.decl preceded(label: symbol, y: number)
.decl counted(k: number, n: number)
least(k, m) :- p(k, _), m = min x : { p(k, x) }.
most(m) :- m = max y : { q(_, y) }.
last(k, s, m) :- r(k, _, s), m = max y : { r(k, y, s) }.
pairs(k, x, y) :- p(k, x), q(k, y), x < y, y <= x + 5.
chains(k, x, y, z) :- p(k, x), q(k, y), r(k, z, _), x < y, y < z.
followed(k, x) :- p(k, x), q(k, y), x < y.
preceded(s, y) :- r(k, y, s), p(k, x), x >= y.
counted(k, n) :- p(k, _), n = count : { followed(k, _) }.
"""
STRATEGIES = {"theta-tree", "semi-join", "extremes", "sums", "counting"}


def _row(program: str, name: str, rng: random.Random, size: int) -> Row:
    """Return a row to insert or delete; those of large epochs are of many."""
    small = rng.randrange(40 if size < 1000 else 4000)
    if program is ORDERED:
        key = rng.randrange(4 if size < 1000 else 400)
        return (key, small, f"s{small % 3}") if name == "r" else (key, small)
    symbol = f"s{rng.randrange(30 if size < 1000 else 3000)}"
    rows: dict[str, Row] = {"p": (small, symbol), "q": (symbol, small), "r": (small,)}
    return rows[name]


def _random_epochs(
    seed: int, sizes: tuple[int, ...], number: int, program: str = PROGRAM
) -> Iterator[Epoch]:
    rng = seeded(seed)
    for _ in range(number):
        size = rng.choice(sizes)
        epoch: Epoch = {}
        for _ in range(size):
            name = rng.choice("pqr")
            rows = epoch.setdefault(name, (set(), set()))
            rows[rng.random() < 0.45].add(_row(program, name, rng, size))
        yield {n: (adds - removes, removes - adds) for n, (adds, removes) in epoch.items()}


@pytest.mark.parametrize("program", [PROGRAM, ORDERED], ids=["counted", "ordered"])
@pytest.mark.parametrize("sizes", [(1,), (1, 1, 2, 10), (1, 1, 1, 1, 10, 40, 2000)])
def test_both_ways_give_the_same(program: str, sizes: tuple[int, ...]) -> None:
    twins = Twins(Program.parse(program), {})
    seen: Counter[int] = Counter()
    epochs = _random_epochs(730_000 + len(sizes), sizes, EPOCHS, program)
    for number, epoch in enumerate(epochs):
        before = twins.one.short_epochs.count
        twins.apply({n: a for n, (a, _) in epoch.items()}, {n: r for n, (_, r) in epoch.items()})
        seen[twins.one.short_epochs.count - before] += 1
        if number % 20 == 0:
            twins.compare()
    twins.compare()
    assert seen[1] > EPOCHS // 4, "many epochs are short"
    assert twins.other.short_epochs.count == 0
    if program is ORDERED:
        assert {strategy.name for strategy in twins.one.strategies} == STRATEGIES


@pytest.mark.parametrize("program", [PROGRAM, ORDERED], ids=["counted", "ordered"])
@pytest.mark.parametrize("sizes", [(1,), (1, 2)])
def test_taking_turns(program: str, sizes: tuple[int, ...]) -> None:
    """The rows of short epochs may be gone when the next one comes: others have deleted them."""
    twins = Twins(Program.parse(program), {})
    rng = seeded("taking turns", sizes)
    seen: Counter[bool] = Counter()
    inserted: list[Epoch] = []
    epochs = _random_epochs(740_000 + len(sizes), sizes, EPOCHS, program)
    for number, epoch in enumerate(epochs):
        if inserted and rng.random() < 0.4:
            epoch = inserted.pop()  # noqa: PLW2901 - what was inserted last is deleted
        else:
            inserted.append({name: (removes, adds) for name, (adds, removes) in epoch.items()})
        twins.one.short_epochs.is_on = rng.random() < 0.6
        before = twins.one.short_epochs.count
        twins.apply({n: a for n, (a, _) in epoch.items()}, {n: r for n, (_, r) in epoch.items()})
        seen[twins.one.short_epochs.count > before] += 1
        if number % 5 == 0:
            twins.compare()
    twins.compare()
    assert min(seen[True], seen[False]) > EPOCHS // 5


RETAINED = """
.decl p(k: number, at: number)
.decl q(k: number, at: number)
.retain p(at, 40)
.retain q(at, 25)
.decl next(k: number, t: number, u: number)
.decl last(k: number, t: number)
.decl n(k: number, n: number)
next(k, t, u) :- p(k, t), q(k, u), t < u, u <= t + 10.
last(k, t) :- q(k, _), t = max u : { q(k, u) }.
n(k, n) :- p(k, _), n = count : { p(k, _) }.
"""


def test_rows_that_expire() -> None:
    """Time moves on, sometimes in a leap; rows are deleted, and some come late."""
    twins = Twins(Program.parse(RETAINED), {})
    rng = seeded("rows that expire")
    now, late = 0, 0
    for number in range(EPOCHS):
        now += rng.choice((0, 0, 1, 1, 2, 3, 30 if rng.random() < 0.1 else 1))
        epoch: Epoch = {}
        for _ in range(rng.choice((1, 1, 1, 2, 8, 200 if rng.random() < 0.1 else 1))):
            row = (rng.randrange(3), now + rng.randrange(-30, 3))
            epoch.setdefault(rng.choice("pq"), (set(), set()))[rng.random() < 0.2].add(row)
        inserted = {name: adds - removes for name, (adds, removes) in epoch.items()}
        twins.apply(inserted, {name: removes - adds for name, (adds, removes) in epoch.items()})
        late += sum(twins.one.last_epoch.late.values())
        if number % 10 == 0:
            twins.compare()
    twins.compare()
    assert twins.one.short_epochs.count > EPOCHS // 2
    assert late


PAIRS = """
.decl p(x: number)
.decl q(y: number)
.decl v(x: number, y: number)
v(x, y) :- p(x), q(y), x < y.
"""


def test_too_many_results_of_one_row() -> None:
    """Epochs that lead to many changes are not tried for a while, then those of few are again."""
    twins = Twins(Program.parse(PAIRS), {"q": [(y,) for y in range(400)]})
    for x in range(40):
        twins.apply({"p": {(x,)}}, {})
    assert twins.one.short_epochs.count == 0
    for x in range(400, 600):
        twins.apply({"p": {(x,)}}, {})
    twins.compare()
    assert 100 < twins.one.short_epochs.count < 200, "the pause has an end"
