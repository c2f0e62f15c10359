"""Sharded pipelines with several stages on Spark: sources of all modes, failures, and restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seeded
from tests.spark.piping import expected
from tests.spark.test_sharded import Sharded, Views, dying
from tidelog.errors import DataError
from tidelog.logic.program import Program
from tidelog.sharding.layout import ShardLayout, lay_out
from tidelog.spark import shard_job
from tidelog.spark.shard_task import forget

pytestmark = pytest.mark.sampled(3)

# Sales are by shop, totals by region, and shares need the total of all regions: three stages. Only
# the last one reads `goal`, so its rows pass through the others.
PROGRAM = """
.decl sale(id: number, shop: number, amount: number)
.decl shop(shop: number, region: symbol)
.decl goal(region: symbol, amount: number)

.decl total(region: symbol, amount: number, sales: number)
total(r, s, n) :-
    shop(_, r),
    s = sum x : { sale(_, p, x), shop(p, r) },
    n = count : { sale(_, p, _), shop(p, r) }.

.decl every(amount: number)
every(s) :- s = sum x : { total(_, x, _) }.

.decl reached(region: symbol, percent: number)
reached(r, 100 * s / a) :- total(r, s, _), every(a), goal(r, g), s >= g.
"""
VIEWS = ("total", "every", "reached")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    forget()
    yield
    forget()


class Shops(Sharded):
    """A pipeline of PROGRAM, and what its sources have given."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PROGRAM, shards=4)
        self.views = list(VIEWS)
        self.facts: dict[str, set[Any]] = {"sale": set(), "shop": set(), "goal": set()}
        self.sources = [
            self.source("sale", "csv", mode="changes"),
            self.source("shop", "csv", mode="snapshot"),
            self.source("goal", "csv", mode="upsert", keys=["region"]),
        ]

    def change(self, epoch: int, rng: random.Random) -> None:
        """Write the files of an epoch."""
        sales = self.facts["sale"]
        gone = set(rng.sample(sorted(sales), min(len(sales), 3)))
        new = {(100 * epoch + i, rng.randrange(8), rng.randrange(1, 99)) for i in range(12)}
        lines = [*(("-", *row) for row in gone), *(("+", *row) for row in new)]
        self._write(f"sale/{epoch}", lines)
        self.facts["sale"] = (sales - gone) | new
        self.facts["shop"] = {(n, rng.choice("abc")) for n in range(8)}
        self._write("shop/all", self.facts["shop"])
        goals = {(r, rng.randrange(200)) for r in rng.sample("abc", 2)}
        self._write(f"goal/{epoch}", goals)
        new_goals = dict(self.facts["goal"]) | dict(goals)
        self.facts["goal"] = set(new_goals.items())

    def _write(self, name: str, rows: Any) -> None:
        self.write(name, "".join(",".join(map(str, row)) + "\n" for row in rows))

    def check(self, spark: Any) -> None:
        with self.pipeline(*self.sources) as pipeline:
            pipeline.start(spark)
            for view in VIEWS:
                found = set(Views(pipeline).view(view))
                assert found == expected(PROGRAM, self.facts, view), view


def test_the_program_has_three_stages() -> None:
    made = lay_out(Program.parse(PROGRAM), 4)
    assert isinstance(made, ShardLayout)
    assert len(made.programs) == 3
    assert made.home["goal"] == made.home["reached"] == 2
    assert not {"sale", "shop"} & set(made.whole())


def test_epochs_and_restarts(spark: Any, tmp_path: Path) -> None:
    rng = seeded("stages")
    shops = Shops(tmp_path)
    for epoch in range(4):
        shops.change(epoch, rng)
        (done,) = shops.run(spark, *shops.sources)  # another process, as far as shards know
        assert done.epoch == epoch
        if epoch != 1:
            forget()
    shops.check(spark)


def test_workers_that_die(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process ends after a task has done everything, in any stage."""
    rng = seeded("stages with workers that die")
    shops = Shops(tmp_path)
    shops.change(0, rng)
    shops.run(spark, *shops.sources)
    flag = tmp_path / "die"

    def dying_in(stage: int) -> Any:
        return lambda _, work: dying(work, str(flag)) if work.stage == stage else work

    for epoch, stage in enumerate(rng.sample(range(3), 2), start=1):
        flag.write_text("once")
        with monkeypatch.context() as patch:
            patch.setattr(shard_job.BySpark, "task", dying_in(stage))
            shops.change(epoch, rng)
            shops.run(spark, *shops.sources)
        assert not flag.exists()
    shops.check(spark)


def test_an_error_in_a_later_stage(spark: Any, tmp_path: Path) -> None:
    """The epoch fails as a whole: earlier stages have written files, but no epoch names them."""
    shops = Shops(tmp_path)
    shops.write("sale/0", "+,1,1,5\n")
    shops.write("shop/all", "1,a\n")
    shops.write("goal/0", "a,0\n")
    shops.run(spark, *shops.sources)
    bad = shops.write("sale/1", "-,1,1,5\n")  # the total is 0
    with pytest.raises(DataError, match="division by zero"):
        shops.run(spark, *shops.sources)
    bad.write_text("+,2,1,7\n")
    shops.run(spark, *shops.sources)
    shops.facts = {"sale": {(1, 1, 5), (2, 1, 7)}, "shop": {(1, "a")}, "goal": {("a", 0)}}
    shops.check(spark)
