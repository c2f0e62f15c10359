"""Every row goes through Spark: what its own event log says is what the pipelines say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.spark.counted import FORMATS
from tests.spark.piping import PLACEMENTS

SCRIPT = Path(__file__).with_name("counted.py")
DESCRIPTION = re.compile(r"tidelog (\S+) · epoch (\d+) · (apply|sink .+)")
NAMES = ["fraud", *(f"{format}-{placement}" for placement in PLACEMENTS for format in FORMATS)]


class EventLog:
    """The jobs of an event log, by pipeline and epoch."""

    def __init__(self, file: Path) -> None:
        self.jobs: Counter[tuple[str, int]] = Counter()
        self.tasks: Counter[tuple[str, int]] = Counter()
        self.read: Counter[tuple[str, int]] = Counter()
        """Rows read from sources."""
        self.written: Counter[tuple[str, int]] = Counter()
        """Rows written to sinks."""
        self.others: list[str] = []
        """Tasks that read or write rows, but belong to no epoch."""
        self._does: dict[int, str] = {}  # what a stage does; the first job with a stage runs it
        with open(file, encoding="utf-8") as lines:
            for event in map(json.loads, lines):
                if event["Event"] == "SparkListenerJobStart":
                    self._job(event)
                elif event["Event"] == "SparkListenerTaskEnd":
                    self._task(event)

    def _job(self, event: dict[str, Any]) -> None:
        text = event["Properties"].get("spark.job.description", "")
        for stage in event["Stage IDs"]:
            self._does.setdefault(stage, text)
        if found := DESCRIPTION.fullmatch(text):
            self.jobs[found[1], int(found[2])] += 1

    def _task(self, event: dict[str, Any]) -> None:
        assert event["Task End Reason"]["Reason"] == "Success"
        text, metrics = self._does[event["Stage ID"]], event["Task Metrics"]
        read = metrics["Input Metrics"]["Records Read"]
        written = metrics["Output Metrics"]["Records Written"]
        found = DESCRIPTION.fullmatch(text)
        if found is None:
            if read or written:
                self.others.append(f"{text}: {read} read, {written} written")
            return
        key = (found[1], int(found[2]))
        self.tasks[key] += 1
        if found[3] == "apply":
            self.read[key] += read
        # An epoch may write the changes of a view, which a sink takes as they are. Others may read
        # what shards have written.
        self.written[key] += written


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[EventLog, dict[str, Any]]:
    log, folder = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("pipelines")
    paths = [str(Path(tidelog.__file__).parents[1]), str(Path(__file__).parents[2])]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(log), str(folder)],
        env={**inherited, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = log.iterdir()
    return EventLog(file), json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_the_event_log_has_all_rows(counted: tuple[EventLog, dict[str, Any]], name: str) -> None:
    log, epochs = counted
    assert [done["epoch"] for done in epochs[name]] == [0, 1, 2]
    for done in epochs[name]:
        key = (name, done["epoch"])
        assert log.jobs[key] > 0
        assert done["received"] > 0
        found = {
            "received": log.read[key], "written": log.written[key],
            "jobs": log.jobs[key], "tasks": log.tasks[key],
        }  # fmt: skip
        assert found == {what: done[what] for what in found}, key
    assert sum(done["written"] for done in epochs[name]) > 0


def test_no_other_job_has_rows(counted: tuple[EventLog, dict[str, Any]]) -> None:
    log, epochs = counted
    assert log.others == []
    assert log.jobs.keys() == {(name, n["epoch"]) for name in epochs for n in epochs[name]}
