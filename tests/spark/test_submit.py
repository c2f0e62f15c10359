"""Spark's own ways to say where and how: spark-submit, PYSPARK_SUBMIT_ARGS, spark-defaults.conf."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

import tidelog
from tests.samples import sample
from tests.spark.clustering import standalone
from tests.spark.piping import PROGRAM

pytestmark = pytest.mark.sampled(1)

SCRIPT = Path(__file__).with_name("submitted.py")
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
FILE = """
[pipeline]
name = "roads"
program = "roads.dl"
spark = { "spark.tidelog.test" = "${ROADS_SECRET}", "spark.ui.retainedJobs" = "7" }

[[source]]
relation = "edge"
format = "csv"
path = "in/edge"
"""


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    (tmp_path / "roads.dl").write_text(PROGRAM)
    (tmp_path / "in" / "edge").mkdir(parents=True)
    (tmp_path / "in" / "edge" / "a.csv").write_text("1,2\n2,3\n")
    (tmp_path / "roads.toml").write_text(FILE)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.sql.session.timeZone CET\nspark.sql.shuffle.partitions 5\nspark.driver.memory 600m\n"
    )
    return tmp_path


def run(roads: Path, words: list[str], environment: dict[str, str], keys: Any) -> dict[str, Any]:
    """Run the script; return what it says."""
    names = ("PYSPARK_", "SPARK_", "MASTER")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    done = subprocess.run(
        [*words, str(SCRIPT), str(roads / "roads.toml"), json.dumps(keys)],
        env={
            **inherited,
            "PYTHONPATH": str(Path(tidelog.__file__).parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(roads / "conf"),
            "ROADS_SECRET": "open sesame",
            **environment,
        },
        capture_output=True, text=True, check=False, timeout=600, cwd=roads,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "sesame" not in done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["rows"] == 3
    assert said["ui"].startswith("http://")
    assert said["spark.ui.retainedJobs"] == "7"  # the pipeline file
    assert said["spark.sql.session.timeZone"] == "CET"  # spark-defaults.conf
    assert said["spark.driver.memory"] == "600m"
    assert said["spark.sql.streaming.minBatchesToRetain"] == "10"  # Tidelog
    return said


def test_spark_submit(roads: Path) -> None:
    words = [
        str(SUBMIT), "--master", "local[2]", "--name", "mine",
        "--conf", "spark.sql.shuffle.partitions=3",
    ]  # fmt: skip
    said = run(roads, words, {}, {})
    assert said["master"] == "local[2]"
    assert said["spark.app.name"] == "mine"
    assert said["spark.sql.shuffle.partitions"] == "3"
    assert said["spark.log.level"] == "WARN"


def test_the_arguments_of_pyspark_and_the_event_log(roads: Path) -> None:
    events = roads / "events"
    events.mkdir()
    submit = (
        "--master local[2] --conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false"
        f" --conf spark.eventLog.dir={events.as_uri()} pyspark-shell"
    )
    said = run(roads, [sys.executable], {"PYSPARK_SUBMIT_ARGS": submit}, {})
    assert said["master"] == "local[2]"
    assert said["ui"].startswith("http://127.0.0.1:")
    assert said["spark.app.name"] == "roads"
    assert said["spark.sql.shuffle.partitions"] == "5"
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"spark.tidelog.test" in logged
    assert b"sesame" not in logged


@pytest.mark.parametrize("keys", sample([{"master": "local[1, 2]"}], [{"master": "local[1, 2]"}]))
def test_what_tidelog_is_told_counts_most(roads: Path, keys: dict[str, str]) -> None:
    environment = {
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
        "SPARK_REMOTE": "sc://nowhere.invalid",
    }
    assert run(roads, [sys.executable], environment, keys)["master"] == "local[1, 2]"


def test_spark_submit_on_a_cluster(roads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of Tidelog as an application, with both shards on other processes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(tidelog.__file__).parents[1]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("ROADS_SECRET", "open sesame")
    monkeypatch.setenv("SPARK_CONF_DIR", str(roads / "conf"))
    (roads / "tide.py").write_text("from tidelog.cli.main import main\n\nmain()\n")
    sink = '[[sink]]\nview = "reach"\nformat = "parquet"\npath = "out/reach"\n'
    (roads / "roads.toml").write_text(f"{FILE}\n{sink}")
    with standalone(roads) as master:
        done = subprocess.run(
            [
                str(SUBMIT), "--master", master, "--conf", "spark.driver.host=127.0.0.1",
                "--conf", "spark.executor.memory=512m", "tide.py",
                "pipeline", "run", "roads.toml", "--placement", "sharded", "--once",
            ],
            capture_output=True, text=True, check=False, timeout=600, cwd=roads,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert pq.read_table(roads / "out" / "reach").num_rows == 3
    log = (roads / "worker-a.log").read_text() + (roads / "worker-b.log").read_text()
    assert "Launching executor" in log or "Asked to launch executor" in log
