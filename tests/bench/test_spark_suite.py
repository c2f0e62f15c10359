"""The suite of pipelines, at its smallest, in the process that the command would start for it."""

import json
import subprocess
import sys
from pathlib import Path

from tidelog.bench.model import Figure, Found, Outcome
from tidelog.bench.suites import SUITES, spark


def test_epochs_are_measured_beside_spark(tmp_path: Path) -> None:
    case = "tidelog on driver, json"
    results = tmp_path / "results"
    command = [sys.executable, "-m", "tidelog.bench.worker", "spark", case, "small", ""]
    done = subprocess.run(
        [*command, str(results)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures = [Figure(**json.loads(line)) for line in results.read_text().splitlines()]
    by_name = {figure.what: figure for figure in figures}
    assert by_name["the view at the end"].note == "equal to Spark's recompute"
    assert by_name["the view at the end"].rows == spark.ACCOUNTS // 10
    found = Found([Outcome(SUITES["spark"].case(case), tuple(figures))])
    peers = (spark.EMPTY, spark.READ, spark.RECOMPUTE, spark.STREAMING)
    for size in (100, 2_000):
        assert all(spark._against(peer, size, "json", found) > 0 for peer in peers)
