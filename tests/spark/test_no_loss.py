"""No silent loss: what does not belong together is refused, and nothing leaks into logs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.spark.piping import PROGRAM, Folder
from tidelog.errors import StateError, UsageError
from tidelog.spark import Pipeline, Sink
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.retries import Outage
from tidelog.spark.shard_job import BySpark

pytestmark = pytest.mark.sampled(2)

ROUTED = """
.decl edge(x: number, y: number)
.decl out(x: number, n: number)
out(x, n) :- edge(x, _), n = count : { edge(x, _) }.
"""


def test_a_checkpoint_and_its_state_belong_together(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    source = folder.source("edge", "csv")
    folder.run(spark, source)
    state = tmp_path / "state"
    shutil.move(state / "checkpoint", tmp_path / "checkpoint")
    with pytest.raises(UsageError, match=r"the folder `checkpoint`.*`tidelog pipeline reset`"):
        folder.run(spark, source)
    shutil.move(tmp_path / "checkpoint", state / "checkpoint")
    shutil.move(state / "database", tmp_path / "database")
    folder.write("edge/b", "2,3\n")
    with pytest.raises(UsageError, match="skip rows that are not"):
        folder.run(spark, source)
    shutil.move(tmp_path / "database", state / "database")
    folder.run(spark, source)
    assert folder.rows("edge") == {(1, 2), (2, 3)}


def test_two_pipelines_exclude_each_other_before_the_first_epoch(
    spark: Any, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    source = folder.source("edge", "csv")
    with folder.pipeline(source, sinks=[]) as first:
        assert first.epoch == -1
        with (
            pytest.raises(StateError, match="a state belongs to one running pipeline"),
            folder.pipeline(source, sinks=[]) as second,
        ):
            second.run(spark)
        first.run(spark)


@pytest.mark.parametrize("placement", ["driver", "sharded"])
def test_a_file_that_is_rewritten_while_it_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    folder = Folder(tmp_path, ROUTED)
    folder.placement = {
        "placement": placement, "shards": 2 if placement == "sharded" else None,
        "retry_seconds": 0.05, "report": lambda text: None,
    }  # fmt: skip
    file = folder.write("edge/a", "1,2\n")
    source = folder.source("edge", "csv")
    kind, name = (BySpark, "epoch") if placement == "sharded" else (EpochInput, "tables")
    original = getattr(kind, name)
    times = [100]

    def rewriting(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        if times[0]:
            times[0] -= 1
            file.write_text("1,3\n" + "#" * times[0])
            os.utime(file, ns=(times[0], times[0]))
        return result

    monkeypatch.setattr(kind, name, rewriting)
    with folder.pipeline(source, sinks=[]) as pipeline:
        with pytest.raises(Outage, match="was rewritten while it was read"):
            pipeline.run(spark)
        assert pipeline.epoch == -1
    times[0] = 1  # a continuous run tries again
    with folder.pipeline(source, sinks=[]) as pipeline:
        pipeline.run(spark, once=False, poll_seconds=0.05, watch=lambda done: pipeline.stop())
        rows = {tuple(row.values()) for row in pipeline.table("edge").to_pylist()}
    assert (rows, times) == ({(1, 3)}, [0])


def test_the_root_cause_is_told(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("edge/a", "1,2\n")
    (tmp_path / "file").write_text("")
    sink = Sink("reach", "changes", path=str(tmp_path / "file" / "out"), retry=0)
    keys: dict[str, Any] = {"state": tmp_path / "state", "sources": [folder.source("edge", "csv")]}
    with (
        Pipeline(PROGRAM, sinks=[sink], report=lambda text: None, **keys) as pipeline,
        pytest.raises(Outage) as error,
    ):
        pipeline.run(spark)
    text = str(error.value)
    assert text.startswith("sink `reach-changes-parquet`: ")
    assert "Not a directory" in text
    for wrapper in ("awaitResult", "Job aborted", "Py4J"):
        assert wrapper not in text


def test_no_row_and_no_secret_in_logs_and_state_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,MARKEDROW1\nx,MARKEDROW2\n")
    code = f"""
    from tidelog.spark import Pipeline, Sink, Source, open_session

    if __name__ == "__main__":
        spark = open_session("leaks", settings={{
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:{tmp_path}/log",
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "false", "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-Dderby.stream.error.file=/dev/null",
        }})
        program = ".decl p(x: number, name: symbol)\\n.decl v(name: symbol)\\nv(n) :- p(_, n).\\n"
        options = {{
            "url": "jdbc:derby:memory:leaks;create=true", "dbtable": "v", "user": "tide",
            "password": "MARKEDSECRET", "driver": "org.apache.derby.jdbc.EmbeddedDriver",
        }}
        away = {{**options, "url": "jdbc:derby://127.0.0.1:9/none;password=MARKEDSECRET"}}
        for placement, shards in (("driver", None), ("sharded", 2)):
            state = "{tmp_path}/" + placement
            sinks = [
                Sink("v", format="jdbc", options={{**options, "dbtable": "v_" + placement}}),
                Sink("v", path=state + "-out"),
                Sink("v", "changes", path=state + "-changes"),
                Sink("v", name="away", format="jdbc", options=away, retry=1, retry_seconds=0.1),
            ]
            with Pipeline(
                program, state=state, sources=[Source("p", "csv", "{tmp_path}/in")], sinks=sinks,
                placement=placement, shards=shards,
            ) as pipeline:
                try:
                    pipeline.run(spark)
                except Exception as error:
                    print("ended with", type(error).__name__, error)
        spark.stop()
    """
    script = tmp_path / "leaks.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended with") == 2, done.stdout
    said = done.stdout + done.stderr
    assert "sink `away` failed" in said
    assert "MARKEDSECRET" not in said
    logs = [path for path in (tmp_path / "log").rglob("*") if path.is_file()]
    assert logs
    for path in logs:
        text = path.read_bytes()
        assert b"SparkListenerJobEnd" in text or not path.name.startswith("events"), path
        assert b"MARKEDROW" not in text, path
        assert b"MARKEDSECRET" not in text, path
    for placement in ("driver", "sharded"):
        for path in (tmp_path / placement).rglob("*"):
            if path.is_file():
                text = path.read_bytes()
                assert b"MARKEDSECRET" not in text, path
                part = path.relative_to(tmp_path / placement).parts[0]
                if part not in ("database", "sharded", "quarantine"):
                    assert b"MARKEDROW" not in text, path
