"""Sessions, and what is said where there can be none."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tidelog.errors import UsageError
from tidelog.spark import open_session

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
    java = spark.conf.get("spark.driver.extraJavaOptions")
    assert "log4j2.properties" in java  # ours
    assert "derby" in java  # and those of the tests
