"""`tidelog pipeline`: run, check and status, as commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from tests.spark.piping import PROGRAM
from tidelog.cli.main import main
from tidelog.cli.pipeline_run import _idle
from tidelog.spark import Pipeline

pytestmark = pytest.mark.sampled(2)

FILE = """
[pipeline]
name = "roads"
program = "roads.dl"
poll_seconds = 0.05

[[source]]
relation = "edge"
format = "csv"
path = "in/edge"
options = { header = "true" }

[[sink]]
view = "reach"
format = "csv"
path = "out/reach"
"""


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    (tmp_path / "roads.dl").write_text(PROGRAM)
    (tmp_path / "in" / "edge").mkdir(parents=True)
    (tmp_path / "in" / "edge" / "a.csv").write_text("x,y\n1,2\n2,3\nx,y\n")
    file = tmp_path / "roads.toml"
    file.write_text(FILE)
    return file


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from tidelog.cli.main import main; main()", "pipeline", *words]


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tidelog", "pipeline", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_check_and_status_need_no_spark(
    roads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert call(monkeypatch, "check", str(roads)) == 0
    assert capsys.readouterr().out == f"{roads}: fine (1 source, 1 sink, placement driver)\n"
    assert call(monkeypatch, "status", str(roads)) == 0
    assert capsys.readouterr().out == "roads: no epoch yet\n"
    assert call(monkeypatch, "run", str(roads)) == 2
    assert "pip install 'tidelog[spark]'" in capsys.readouterr().err
    (roads.parent / "in" / "edge" / "a.csv").write_text("from,to\n1,2\n")
    assert call(monkeypatch, "check", str(roads)) == 1
    assert "source `edge`: columns `x`, `y` missing; there are `from`, `to`" in (
        capsys.readouterr().err
    )


def test_what_is_not_there_is_told(
    roads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # and Spark is not started to say it
    for verb, word in (("refresh", "refresh"), ("replay-quarantine", "replay")):
        assert call(monkeypatch, verb, str(roads)) == 2
        assert f"nothing to {word}: the pipeline has no epoch yet" in capsys.readouterr().err
    roads.write_text(FILE.replace("in/edge", "in/egde"))
    assert call(monkeypatch, "check", str(roads)) == 0
    assert f"no files in `{roads.parent}/in/egde` yet" in capsys.readouterr().err


def test_a_state_that_is_in_use_is_refused_before_spark_starts(
    roads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with Pipeline.from_file(roads) as pipeline:
        pipeline.open()
        assert call(monkeypatch, "run", str(roads)) == 1
        assert "a state belongs to one running pipeline" in capsys.readouterr().err


def test_a_run_is_not_idle_during_an_epoch() -> None:
    class Busy:
        is_busy, stopped = True, 0.0

        def stop(self) -> None:
            self.stopped = time.monotonic()

    pipeline = Busy()
    with _idle(cast("Pipeline", pipeline), 0.1) as noted:
        noted()
        time.sleep(0.5)
        assert not pipeline.stopped, "the epoch takes longer than that"
        pipeline.is_busy = False
        end = time.monotonic() + 20
        while not pipeline.stopped and time.monotonic() < end:
            time.sleep(0.02)
        assert pipeline.stopped


def test_an_interrupt_while_spark_starts_leaves_no_process(roads: Path) -> None:
    """Ctrl-C reaches all processes of a terminal, so Spark's Java process gets it, too."""
    words = command("run", str(roads), "--continuous")
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with running:
        assert running.stderr is not None
        first = running.stderr.readline()  # Java says something when it starts
        os.killpg(running.pid, signal.SIGINT)
        rest = first + running.stderr.read()  # until no process has it any more
        assert running.wait(120) == 0, rest
    assert "stopping when Spark has started; Ctrl-C again stops at once" in rest
    assert "at org.apache.spark" not in rest
    assert "0 epochs in this run" in rest


def test_a_placement_that_is_not_there_is_refused_by_name(
    roads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", str(roads), "--placement", "relational") == 2
    assert "'relational' is not one of 'auto', 'driver', 'sharded'" in capsys.readouterr().err


def test_a_run_on_spark_connect(
    roads: Path, remote: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        command("run", str(roads), "--once", "--remote", remote),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, where, last = done.stderr.splitlines()[-3:]
    assert where == f"quarantined rows, with reasons: {roads.parent}/state/quarantine"
    assert first.startswith("epoch 0, 3 rows in, 1 quarantined, +2 -0 given, ")
    assert last.startswith(
        "1 epoch in this run, the last is 0: 3 rows received so far, 2 accepted, 1 quarantined;"
    )
    assert (roads.parent / "out" / "reach" / "part-00000.csv").read_text() == (
        "x,y\n1,2\n1,3\n2,3\n"
    )
    (roads.parent / "in" / "edge" / "b.csv").write_text("x,y\n")
    assert call(monkeypatch, "status", str(roads)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "roads: epoch 0",
        "source edge: 3 received, 2 accepted, 1 quarantined; 1 files read, 1 waiting",
        "sink reach-table-csv: written up to epoch 0",
    ]


@pytest.mark.parametrize("place", ["local", "remote"])
def test_an_interrupt_finishes_the_epoch(
    roads: Path, place: str, request: pytest.FixtureRequest
) -> None:
    """A local session has a handler of its own for Ctrl-C, which reaches Java, too."""
    words = command("run", str(roads), "--continuous")
    if place == "remote":
        words += ["--remote", request.getfixturevalue("remote")]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("epoch 0"):
                break
        (roads.parent / "in" / "edge" / ".b").write_text("x,y\n3,4\n")
        (roads.parent / "in" / "edge" / ".b").rename(roads.parent / "in" / "edge" / "b.csv")
        time.sleep(0.2)
        os.killpg(running.pid, signal.SIGINT)
        rest = running.stderr.read()
        assert running.wait(120) == 0, rest
    assert "stopping after the current epoch" in rest
    assert "Traceback" not in rest
    text = (roads.parent / "out" / "reach" / "part-00000.csv").read_text()
    last = rest.splitlines()[-1]
    assert ("3,4" in text) == ("the last is 1" in last), "the sink is of the last epoch"
