"""Sessions, and what is said where there can be none."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import UsageError
from tidelog.spark import open_session
from tidelog.spark.environment import Taken, expand, scrub
from tidelog.spark.session import ui_address, using_session

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import sys
sys.modules["pyspark"] = sys.modules["deltalake"] = None
import importlib, pkgutil
import tidelog.spark
for module in pkgutil.walk_packages(tidelog.spark.__path__, "tidelog.spark."):
    importlib.import_module(module.name)
for name in tidelog.spark.__all__:
    assert getattr(tidelog.spark, name) is not None
try:
    tidelog.spark.open_session("x")
except tidelog.UsageError as error:
    print(error)
"""


def test_all_can_be_imported_without_spark() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "pipelines need PySpark, which is not installed\n  help: pip install 'tidelog[spark]'\n"
    )


def test_a_session_is_here_or_there() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        open_session("x", master="local", remote="sc://localhost")


def test_the_settings_of_a_session(spark: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.master") == "local[*, 4]"
    assert spark.conf.get("spark.sql.streaming.minBatchesToRetain") == "10"
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"
    assert "derby" in spark.conf.get("spark.driver.extraJavaOptions")  # the tests' own
    assert ui_address(spark).startswith("http://127.0.0.1:")


def test_an_active_session_is_used(spark: Any) -> None:
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    with using_session("x", settings={key: "17", "spark.driver.memory": "1g"}) as session:
        assert session is spark
    assert not spark.sparkContext._jsc.sc().isStopped()
    assert spark.conf.get(key) == "17"
    spark.conf.set(key, before)


def test_an_active_session_stays_where_it_is(spark: Any) -> None:
    with pytest.raises(UsageError, match=r"at `local\[\*, 4\]`, not at `spark://there`"):
        open_session("x", master="spark://there")
    with pytest.raises(UsageError, match="not at `sc://there`"):
        open_session("x", remote="sc://there")
    with pytest.raises(UsageError, match=r"`spark.driver.memory` cannot be changed"):
        open_session("x", settings={"spark.driver.memory": "9g"})


def test_values_from_the_environment_are_not_shown() -> None:
    url = expand("jdbc:x?password=${PASS}&user=$${PASS}", {"PASS": "open sesame"})
    assert url == "jdbc:x?password=open sesame&user=${PASS}"
    assert "sesame" not in repr({"url": url})
    assert "sesame" not in repr(pickle.loads(pickle.dumps(url)))
    assert (
        scrub(f"no connection to {url}") == "no connection to jdbc:x?password=${PASS}&user=${PASS}"
    )
    assert isinstance(url, Taken)
    assert not isinstance(expand("5 $ {x}", {}), Taken)
    with pytest.raises(UsageError, match="the environment has no variable `PASS`"):
        expand("${PASS}", {})
    with pytest.raises(UsageError, match="must be followed by the name"):
        expand("${PASS", {})


LOCAL_FILES = """
import sys
from pathlib import Path
from tests.spark.piping import Folder
from tidelog.spark.session import using_session

path, *settings = sys.argv[1:]
folder = Folder(Path(path))
folder.write("edge/a", "1,2\\n")
key = "spark.sql.streaming.checkpointFileManagerClass"
with using_session("x", settings=dict(s.split("=") for s in settings)) as spark:
    before = spark.conf.get(key, None)
    with folder.pipeline(folder.source("edge", "csv"), sinks=[]) as pipeline:
        pipeline.run(spark)
    assert spark.conf.get(key, None) == before
    print(spark.conf.get("spark.hadoop.fs.file.impl", "Spark's own"))
logs = [path for path in (folder.path / "state" / "checkpoint").rglob("*") if path.is_file()]
assert {"metadata", "0"} <= {path.name for path in logs}
print(any(path.suffix == ".crc" for path in logs))
"""


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("spark.ui.enabled=false", "org.apache.hadoop.fs.RawLocalFileSystem\nFalse\n"),
        # Iceberg asks for the scheme of a file system, and that one has none.
        ("spark.jars.excludes=org.apache.iceberg:any", "Spark's own\nTrue\n"),
    ],
)
def test_local_files_have_no_checksums_beside_them(
    tmp_path: Path, setting: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_FILES, str(tmp_path), setting],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
