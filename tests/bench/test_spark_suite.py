"""The suite of pipelines, at its smallest, in the process that the command would start for it."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.bench.model import Figure, Outcome, SuiteFigures
from tidelog.bench.suites import SUITES, sharded, spark, spark_delta, spark_kafka


def measured(case: str, tmp_path: Path) -> tuple[dict[str, Figure], SuiteFigures]:
    results = tmp_path / "results"
    command = [sys.executable, "-m", "tidelog.bench.worker", "spark", case, "small", ""]
    done = subprocess.run(
        [*command, str(results)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures = [Figure(**json.loads(line)) for line in results.read_text().splitlines()]
    found = SuiteFigures([Outcome(SUITES["spark"].case(case), tuple(figures))])
    return {figure.what: figure for figure in figures}, found


@pytest.mark.sampled(1)
def test_epochs_are_measured_beside_spark(tmp_path: Path) -> None:
    by_name, found = measured("tidelog on driver, json", tmp_path)
    assert by_name["the view at the end"].note == "equal to Spark's recompute"
    assert by_name["the view at the end"].rows == spark.ACCOUNTS // 10
    for size in (100, 2_000):
        assert spark._against(size, "driver", "json", found) > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scenario", ["join", "stages"])
def test_sharded_epochs_are_measured_beside_spark(scenario: str, tmp_path: Path) -> None:
    by_name, _ = measured(f"tidelog on sharded, {scenario}", tmp_path)
    assert by_name["the view at the end"].note == "equal to Spark's recompute"
    assert by_name["the view at the end"].rows == by_name["rows in the sink"].rows
    sizes = (sharded.FEW, sharded.TENTH // sharded._SMALLER)
    for what, size in product((spark.EPOCH, spark.RECOMPUTE), sizes):
        assert (by_name[spark.of(what, size)].seconds or 0) > 0


def test_targets_of_sharded_epochs() -> None:
    seconds = {
        "bootstrap": 20.0,
        "epoch, 100,000 rows": 0.4,
        "epoch, 1,000,000 rows": 3.0,
        "Spark's recompute, 100,000 rows": 5.0,
        "Spark's recompute, 1,000,000 rows": 6.0,
    }
    figures = tuple(
        Figure(what, took, 10**7 if what == "bootstrap" else 10**6)
        for what, took in seconds.items()
    )
    join, stages = sharded.CASES
    found = SuiteFigures([Outcome(join, figures), Outcome(stages, figures)])
    values = [target.value(found) for target in sharded.TARGETS]
    assert values == [500_000, 12.5, 2, 12.5]
    pairs = zip(sharded.TARGETS, values, strict=True)
    assert [target.is_met(value) for target, value in pairs] == [False, True, False, True]


def test_targets_of_messages() -> None:
    took = {"driver": (1.2, 1.0), "sharded": (2.8, 2.0)}
    found = SuiteFigures(
        [
            Outcome(
                case,
                (
                    Figure("epoch, 1,000,000 rows", ours),
                    Figure("Spark's read to noop, 1,000,000 rows", theirs),
                ),
            )
            for case, (ours, theirs) in zip(spark_kafka.CASES, took.values(), strict=True)
        ]
    )
    met = [target.is_met(target.value(found)) for target in spark_kafka.TARGETS]
    assert met == [True, False]


def test_payments_change_the_view() -> None:
    accounts = spark_delta.Accounts(50, 1)
    before = set(_rows(accounts.view()))
    paid, changes = accounts.pay(20)
    assert paid.num_rows == 10
    signs = dict.fromkeys(_rows(changes.select(spark_delta.COLUMNS)))
    deleted, inserted = list(signs)[:10], list(signs)[10:]
    assert changes["op"].to_pylist() == ["-"] * 10 + ["+"] * 10
    assert (before - set(deleted)) | set(inserted) == set(_rows(accounts.view()))


def _rows(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
