"""Metrics: what Prometheus reads, and what Spark's listeners are told."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.spark.piping import PROGRAM, Folder
from tidelog.errors import UsageError
from tidelog.spark import MetricsListener, Pipeline, Sink
from tidelog.spark.metrics_server import MetricsServer

pytestmark = pytest.mark.sampled(1)

_LINE = re.compile(r'tidelog_(\w+)\{pipeline="roads"(?:,(.*))?\} (\S+)')


def parsed(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_metrics_of_a_run(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a.csv", "1,2\n2,3\nbad,3\n")
    told: list[Any] = []

    def failing(epoch: int, rows: Any) -> None:
        raise ConnectionError

    sinks = [
        Sink("reach", path=str(tmp_path / "out")),
        Sink("reach", "table", "python", name="bad", call=failing, retry=0),
    ]
    pipeline = Pipeline(
        PROGRAM, state=tmp_path / "state", sources=[folder.source("edge", "csv")], sinks=sinks,
        name="roads", metrics=tmp_path / "m" / "roads.prom", report=lambda text: None,
    )  # fmt: skip
    listener = MetricsListener(pipeline, lambda done, progress: told.append((done, progress)))
    spark.streams.addListener(listener)
    try:
        with pipeline, pytest.raises(ConnectionError):
            pipeline.run(spark)
        for _ in range(300):
            if told:
                break
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    found = parsed((tmp_path / "m" / "roads.prom").read_text())
    source = 'source="edge"'
    assert found["epoch", ""] == 0
    assert found["rows_received_total", source] == 3
    assert found["rows_accepted_total", source] == 2
    assert found["rows_quarantined", source] == 1
    assert found["rows_inserted_total", ""] == 2
    assert found["spark_jobs_total", ""] >= 1
    assert found["spark_tasks_total", ""] >= 1
    assert found["epoch_seconds", ""] > 0
    assert found["lag_seconds", ""] > 0
    assert found["sink_epoch", 'sink="reach-table-parquet"'] == 0
    assert found["sink_behind_epochs", 'sink="bad"'] == 1
    assert found["failures_total", 'kind="sink",name="bad"'] == 1
    assert found["failing", 'kind="sink",name="bad"'] == 1
    assert found["failing", 'kind="sink",name="reach-table-parquet"'] == 0
    ((done, progress),) = told
    assert (done.epoch, done.batch, done.quarantined) == (0, 0, 1)
    assert (progress.name, progress.batchId) == ("tidelog roads", 0)


def test_the_server_is_for_this_machine(tmp_path: Path) -> None:
    server = MetricsServer(0, lambda: "tidelog_epoch 1\n")
    try:
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            assert answer.read() == b"tidelog_epoch 1\n"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/rows", timeout=30)
        with pytest.raises(UsageError, match="cannot be used"):
            MetricsServer(server.port, str)
    finally:
        server.close()
