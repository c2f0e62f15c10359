"""The same programs and epochs on the kernel, on driver and on sharded: all as the reference says.

Each pipeline is given the changes of an epoch as rows, below its sources: those have tests of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import tidelog
from tests.generators.inequality_joins import inequality_case
from tests.generators.programs import RandomCase, check_cases, random_case
from tests.maintain.shapes import SHAPES
from tests.samples import sample, until
from tests.seeds import case_seeds
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.plan import order
from tidelog.reference import evaluate
from tidelog.sharding.cells import Cells
from tidelog.sharding.layout import lay_out
from tidelog.sharding.sharding import NotSharded
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement

PROGRAMS = sample(4, 50)
SHARDS = (1, 2, 5)
Contents: TypeAlias = Mapping[str, frozenset[Any]]
Net: TypeAlias = dict[str, tuple[set[Any], set[Any]]]


class Suite:
    """Runs each case in all placements, one after the other."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._numbers = iter(range(10**6))
        self.epochs = 0
        self.trees = self.staged = 0
        """How many sharded pipelines had a view that is not stored."""

    def check(self, case: RandomCase) -> None:
        program = Program.parse(case.program)
        given = list(case.states())
        try:
            expected = [evaluate(program, state) for state in given]
        except tidelog.DataError:
            return  # what fails is compared in test_sharded_state.py
        for where, placement in self._placements(program):
            before: Contents = dict.fromkeys(program.relations, frozenset())
            for number, (state, after) in enumerate(zip(given, expected, strict=True)):
                placement.apply(
                    EpochChanges(
                        {name: set(rows - before[name]) for name, rows in state.items()},
                        {name: set(before[name] - rows) for name, rows in state.items()},
                    )
                )
                self.epochs += 1
                for name in program.relations:
                    if number:
                        old = expected[number - 1][name]
                        net = (set(after[name] - old), set(old - after[name]))
                        found = (set(), set())  # type: tuple[set[Any], set[Any]]
                        for _, change in placement.changes(name, placement.epoch - 1):
                            found = (set(change.inserted), set(change.deleted))
                        assert found == net, f"changes of {name} in epoch {number}, {where}"
                before = state
            for name in program.relations:
                assert set(placement.rows(name)) == expected[-1][name], f"{name}, {where}"
            placement.close()
        kernel = KernelEngine(program, given[0])
        for old, new in pairwise(given):
            kernel.apply(
                {name: new[name] - old[name] for name in new},
                {name: old[name] - new[name] for name in new},
            )
        assert all(kernel.rows(name) == rows for name, rows in expected[-1].items())

    def _placements(
        self, program: Program
    ) -> Iterator[tuple[str, DriverPlacement | ShardedPlacement]]:
        folder = self._folder / str(next(self._numbers))
        yield "driver", DriverPlacement(with_offsets(program), folder / "driver", "refuse", 100)
        for shards in SHARDS:
            layout = lay_out(program, shards)
            if not isinstance(layout, NotSharded):
                placement = ShardedPlacement(
                    program, folder / str(shards), layout.grid.sides, 100, program.relations
                )
                placement.start(self._spark)
                cells = Cells(program, layout)
                self.trees += any(has_tree(cells.program_of(i)) for i in range(cells.count))
                self.staged += cells.stages > 1
                yield f"{shards} shards", placement


def has_tree(program: Program) -> bool:
    """Return whether a view of a program is an inequality join that is not stored."""
    layers = KernelEngine.empty(program).layers
    return any(strategy.name == "theta-tree" for _, strategy in layers)


def test_all_placements_agree(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_STATES", 40)
    suite = Suite(spark, tmp_path)
    chosen = case_seeds(10 * PROGRAMS, offset=73_000)
    shapes = SHAPES[:4]  # without programs that fail
    for i in until(lambda: suite.epochs >= 3 * PROGRAMS, least=PROGRAMS, most=10 * PROGRAMS):
        check_cases(
            chosen[i : i + 1],
            suite.check,
            lambda seed: random_case(seed, replace(shapes[seed % 4], epochs=(2, 2))),
        )
    assert suite.epochs >= 3 * PROGRAMS


def test_inequality_joins_in_all_placements(spark: Any, tmp_path: Path) -> None:
    suite = Suite(spark, tmp_path)
    chosen = case_seeds(10 * PROGRAMS, offset=74_000)

    def is_enough() -> bool:
        return suite.epochs >= 3 * PROGRAMS and suite.trees >= PROGRAMS

    for i in until(is_enough, least=PROGRAMS // 2, most=10 * PROGRAMS):
        check_cases(chosen[i : i + 1], suite.check, _two_epochs)
    assert is_enough()


def _two_epochs(seed: int) -> RandomCase:
    case = inequality_case(seed)
    return replace(case, epochs=case.epochs[:2])
