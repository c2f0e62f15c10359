"""A Spark session with settings that suit epochs: small jobs, at once, and exact timestamps."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.java import provide_java

# A second number lets a task fail: with `local[*]` the first failure would end the job.
LOCAL = "local[*, 4]"

_JAVA = "spark.driver.extraJavaOptions"
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # Files of an epoch are small: several to a task, and no task for each core if few will do.
    "spark.sql.files.openCostInBytes": str(64 << 10),
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}


def open_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return a session: on this machine, on a `master`, or on a Spark Connect server (`remote`)."""
    if master and remote:
        raise UsageError("`master` and `remote` exclude each other: name one of them")
    require_pyspark()
    from pyspark.sql import SparkSession

    chosen = dict(_SETTINGS)
    builder = SparkSession.builder.appName(name)
    if remote:
        builder = builder.remote(remote)
    else:
        provide_java()
        master = master or LOCAL
        builder = builder.master(master)
        if "NUMBA_CACHE_DIR" in os.environ:  # executors keep what they compile there, too
            chosen["spark.executorEnv.NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
        if master.startswith("local"):
            # Workers are Pythons of this machine: this one, which has the package.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            quiet = Path(__file__).with_name("log4j2.properties")
            chosen |= {**_LOCAL_SETTINGS, _JAVA: f"-Dlog4j2.configurationFile={quiet.as_uri()}"}
    for key, value in (settings or {}).items():
        # Options for Java come together, so that ours are not lost.
        chosen[key] = f"{chosen[key]} {value}" if key == _JAVA and key in chosen else value
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        where = remote or master
        raise UsageError(
            f"Spark does not start at `{where}`: {str(error).strip().splitlines()[0]}"
        ) from error


def require_pyspark() -> None:
    """Raise UsageError, with the way to get it, if PySpark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise UsageError(
            "pipelines need PySpark, which is not installed\n  help: pip install 'tidelog[spark]'"
        ) from None
