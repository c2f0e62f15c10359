"""Random programs in 1, 2 and 5 shards against the reference: views, and exact net changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

import tidelog
from tests.generators.inequality_joins import inequality_case
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import RandomCase, check_cases, random_case
from tests.generators.ranged_aggregates import ranged_case
from tests.maintain.comparing import leapfrog_forced
from tests.maintain.shapes import SHAPES
from tests.maintain.test_virtual import virtual_case
from tests.samples import sample, until
from tests.seeds import seed_blocks
from tests.sharding.staged import InStages
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.reference import evaluate
from tidelog.sharding.layout import ShardLayout, laid_out, lay_out, steps
from tidelog.sharding.sharding import Grid, NotSharded
from tidelog.sharding.splitting import Split
from tidelog.sharding.stages import is_partial

PROGRAMS = sample(30, 500)
BLOCK = 10
SHARDS = (1, 2, 5, 8)


def random_layout(program: Program, grid: Grid, random: Random) -> ShardLayout | NotSharded:
    """Return a layout that may well be a bad one: with random cuts and splits."""
    split = Split(program, frozenset())
    for _ in range(random.randint(1, 5)):
        for step in random.sample(found := list(steps(split)), len(found)):
            if laid_out(step, grid) is not None:
                split = step
                break
    made = laid_out(split, grid)
    assert made is not None
    layout = made[1]
    return layout if len(layout.programs) > 1 else NotSharded("it has one stage")


def partial_overflow(layout: ShardLayout, error: tidelog.EvaluationError) -> bool:
    """Return whether a sum of part of a group may have overflowed: the whole sum may be smaller."""
    partial = any(is_partial(exchange.relation) for exchange in layout.exchanges)
    return partial and "the sum of" in str(error) and "overflows" in str(error)


class Comparison:
    def __init__(self, *, at_random: bool = False) -> None:
        """Compare the cheapest layouts, or random ones with several stages."""
        self.seen: Counter[str] = Counter()
        self._at_random = at_random

    def check(self, case: RandomCase) -> None:
        program = Program.parse(case.program)
        for shards in SHARDS[case.seed % 2 :: 2]:
            layout = (
                random_layout(program, Grid((shards,)), Random(case.seed))
                if self._at_random
                else lay_out(program, shards)
            )
            if isinstance(layout, NotSharded):
                self.seen["not sharded"] += 1
                continue
            self.seen["sharded"] += 1
            for variant in layout.variants():
                kind = "scattered" if variant.is_scattered else "whole" * variant.is_whole
                self.seen[kind or "placed"] += 1
            self.seen["boxes"] += len(layout.grid.sides) > 1
            self.seen["staged"] += len(layout.programs) > 1
            self.seen["three stages"] += len(layout.programs) > 2
            self.seen["partial"] += any(is_partial(e.relation) for e in layout.exchanges)
            self.seen["counted"] += any(e.is_counted for e in layout.exchanges)
            self._compare(program, case, layout)

    def _compare(self, program: Program, case: RandomCase, layout: ShardLayout) -> None:
        states = case.states()
        given = next(states)
        try:
            contents = evaluate(program, given)
        except tidelog.DataError:
            if program.views:  # what is not computed does not fail
                return
            with pytest.raises(tidelog.DataError):
                InStages(program, layout, given)
            self.seen["failures"] += 1
            return
        try:
            engines = InStages(program, layout, given)
        except tidelog.EvaluationError as error:
            if not partial_overflow(layout, error):
                raise
            self.seen["partial overflows"] += 1
            return
        names = {
            strategy.name
            for part in engines.engines
            for engine in part
            for _, strategy in engine.layers
        }
        self.seen["theta-tree"] += "theta-tree" in names
        self.seen["leapfrog"] += "leapfrog" in names
        self.seen["virtual"] += "virtual" in names
        self.seen["ranged"] += bool(names & {"nearest", "range sums"})
        for epoch, (changes, after_given) in enumerate(zip(case.epochs, states, strict=True)):
            where = f"epoch {epoch} of seed {case.seed} in {layout.grid}"
            inserted = {n: set(more) - set(less) for n, (more, less) in changes.items()}
            deleted = {n: set(less) - set(more) for n, (more, less) in changes.items()}
            try:
                after = evaluate(program, after_given)
            except tidelog.DataError:
                if program.views:  # what is not computed does not fail
                    return
                with pytest.raises(tidelog.DataError):
                    engines.apply(inserted, deleted)
                self.seen["failures"] += 1
                return  # some shards have gone on, and some have not
            try:
                came_and_went = engines.apply(inserted, deleted)
            except tidelog.EvaluationError as error:
                if not partial_overflow(layout, error):
                    raise
                self.seen["partial overflows"] += 1
                return
            self.seen["epochs"] += 1
            for name, rows in after.items():
                assert engines.rows(name) == rows, f"rows of {name}, {where}"
                expected = (rows - contents[name], contents[name] - rows)
                assert came_and_went[name] == expected, f"changes of {name}, {where}"
            contents = after


def compare_until_seen(seeds: range, comparison: Comparison, kinds: Sequence[str]) -> None:
    """Compare random programs, at least those of `seeds`, until each kind has been seen twice."""
    seen = comparison.seen

    def is_enough() -> bool:
        return min(seen[kind] for kind in kinds) >= 2 and seen["sharded"] >= BLOCK

    more = range(seeds.start, seeds.start + 5 * BLOCK)
    for number in until(is_enough, least=len(seeds), most=len(more)):
        check_cases(
            more[number : number + 1],
            comparison.check,
            lambda seed: random_case(seed, replace(SHAPES[seed % len(SHAPES)], epochs=(5, 5))),
        )
    print(dict(seen))
    assert is_enough(), seen


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=70_000))
def test_random_programs_in_shards(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    compare_until_seen(seeds, Comparison(), ("placed", "whole", "scattered"))


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=78_000))
def test_random_programs_in_stages(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    compare_until_seen(seeds, Comparison(at_random=True), ("partial", "counted", "three stages"))


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=75_000))
def test_inequality_joins_in_shards(seeds: range) -> None:
    comparison = Comparison()
    seen = comparison.seen

    def is_enough() -> bool:
        return seen["theta-tree"] >= BLOCK // 2

    more = range(seeds.start, seeds.start + 5 * BLOCK)
    for number in until(is_enough, least=len(seeds), most=len(more)):
        check_cases(more[number : number + 1], comparison.check, inequality_case)
    print(dict(seen))
    assert is_enough(), seen


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS // 2, BLOCK, offset=76_000))
def test_aggregates_over_inequality_joins_in_shards(seeds: range) -> None:
    comparison = Comparison()
    seen = comparison.seen

    def is_enough() -> bool:
        return seen["ranged"] >= BLOCK // 2

    more = range(seeds.start, seeds.start + 5 * BLOCK)
    for number in until(is_enough, least=len(seeds), most=len(more)):
        check_cases(more[number : number + 1], comparison.check, ranged_case)
    print(dict(seen))
    assert is_enough(), seen


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS // 2, BLOCK, offset=77_000))
def test_traces_in_shards(seeds: range) -> None:
    comparison = Comparison()
    seen = comparison.seen

    def is_enough() -> bool:
        return seen["leapfrog"] >= BLOCK // 2

    more = range(seeds.start, seeds.start + 5 * BLOCK)
    for number in until(is_enough, least=len(seeds), most=len(more)):
        check_cases(
            more[number : number + 1],
            comparison.check,
            lambda seed: leapfrog_forced(multiway_case(seed)),
        )
    print(dict(seen))
    assert is_enough(), seen


@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS // 2, BLOCK, offset=79_000))
def test_virtual_views_in_shards(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    comparison = Comparison()
    seen = comparison.seen

    def check(case: RandomCase) -> None:
        try:
            comparison.check(case)
        except tidelog.ProgramError as error:
            assert "cannot be virtual" in str(error)
            seen["refused"] += 1

    def is_enough() -> bool:
        return seen["virtual"] >= BLOCK // 2 and seen["epochs"] >= BLOCK

    more = range(seeds.start, seeds.start + 8 * BLOCK)
    for number in until(is_enough, least=len(seeds), most=len(more)):
        check_cases(more[number : number + 1], check, virtual_case)
    print(dict(seen))
    assert is_enough(), seen
