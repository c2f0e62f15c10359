"""The suite of pipelines, at its smallest, in the process that the command would start for it."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

from tidelog.bench.model import Figure, Found, Outcome
from tidelog.bench.suites import SUITES, sharded, spark


def measured(case: str, tmp_path: Path) -> tuple[dict[str, Figure], Found]:
    results = tmp_path / "results"
    command = [sys.executable, "-m", "tidelog.bench.worker", "spark", case, "small", ""]
    done = subprocess.run(
        [*command, str(results)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures = [Figure(**json.loads(line)) for line in results.read_text().splitlines()]
    found = Found([Outcome(SUITES["spark"].case(case), tuple(figures))])
    return {figure.what: figure for figure in figures}, found


def test_epochs_are_measured_beside_spark(tmp_path: Path) -> None:
    by_name, found = measured("tidelog on driver, json", tmp_path)
    assert by_name["the view at the end"].note == "equal to Spark's recompute"
    assert by_name["the view at the end"].rows == spark.ACCOUNTS // 10
    peers = (spark.EMPTY, spark.READ, spark.RECOMPUTE, spark.STREAMING)
    for size in (100, 2_000):
        assert all(spark._against(peer, size, "json", found) > 0 for peer in peers)


def test_sharded_epochs_are_measured_beside_spark(tmp_path: Path) -> None:
    by_name, _ = measured("tidelog on sharded, join", tmp_path)
    assert by_name["the view at the end"].note == "equal to Spark's recompute"
    assert by_name["the view at the end"].rows
    sizes = (sharded.FEW, sharded.TENTH // sharded._SMALLER)
    for what, size in product((spark.EPOCH, spark.RECOMPUTE, spark.STREAMING), sizes):
        assert (by_name[spark.of(what, size)].seconds or 0) > 0


def test_targets_of_sharded_epochs() -> None:
    seconds = {
        "bootstrap": 20.0,
        "epoch, 100 rows": 0.25,
        "epoch, 100,000 rows": 0.2,
        "epoch, 1,000,000 rows": 2.0,
        "Spark's recompute, 100,000 rows": 5.0,
        "Spark's recompute, 1,000,000 rows": 6.0,
    }
    figures = tuple(
        Figure(what, took, 10**7 if what == "bootstrap" else 10**6)
        for what, took in seconds.items()
    )
    found = Found([Outcome(sharded.CASE, figures)])
    values = [target.value(found) for target in sharded.TARGETS]
    assert values == [500_000, 250, 500_000, 25, 3]
    pairs = zip(sharded.TARGETS, values, strict=True)
    assert [target.is_met(value) for target, value in pairs] == [False, True, True, True, False]
