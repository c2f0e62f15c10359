"""The Spark session of a pipeline: the active one, or a new one with settings for epochs.

An active session is used as it is. Otherwise one is started,
and each setting comes from the first of these that has it:

    1. the options `--master` and `--remote`
    2. the table `spark` in the pipeline file
    3. spark-submit's options, PYSPARK_SUBMIT_ARGS, SPARK_REMOTE
    4. spark-defaults.conf in SPARK_CONF_DIR
    5. Tidelog's defaults, below

Spark itself reads 3 and 4. So the JVM is started first, and then asked what is set already.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.environment import Taken, scrub
from tidelog.spark.java import provide_java

# The second number allows retries: with `local[*]` the first failed task would fail the job.
LOCAL = "local[*, 4]"
_SPARKS_OWN = "local[*]"  # the master that Spark takes if nobody names one

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Streaming queries run for months: what they keep is bounded, and compacted now and then.
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.fileSource.log.compactInterval": "50",
    "spark.sql.streaming.noDataProgressEventInterval": "60000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
_CLASSIC_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    # Every epoch is a few jobs: the UI keeps the last ones.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "400",
    "spark.ui.retainedTasks": "10000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.sql.streaming.ui.retainedProgressUpdates": "100",
    # Each session on a machine takes the next free port for its UI.
    "spark.port.maxRetries": "100",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Between the JVM and Python's processes: a small epoch takes 0.1 s less than with TCP, which
    # was also seen to stall for minutes when both sides had much to send.
    "spark.python.unix.domain.socket.enabled": "true",
    # Without its native library, Hadoop starts the program `chmod` for each file that it creates.
    # This class writes no file with a checksum beside each of them. Iceberg cannot use it.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
_JAVA_OPTIONS = (
    # Rows pass between the JVM and Python in Arrow's format. Without these, Arrow checks for every
    # value whether its place exists, and whether it is null, which Spark knows already.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)
_FILES = "spark.hadoop.fs.file.impl"
# What the JVM needs to start, or spark-submit to find jars. The rest is set when it runs: the
# settings of a command line can be read by every user of the machine.
_AT_START = re.compile(
    r"spark\.(driver|jars|files|archives|submit|yarn|kubernetes|master|hadoop\.fs)\b"
)
_REDACTION = "spark.redaction.regex"
_REDACTED = "(?i)secret|password|token|access[.]?key"  # Spark's default
_UNNAMED = ("pyspark-shell", "PySparkShell")

_started: dict[str, str] = {}
"""The settings that the JVM of this process was started with by an earlier session."""


def open_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return the active session, or a new one: local, on a master, or on Spark Connect.

    Without `master` and `remote`, spark-submit and the environment decide. `settings` override what
    is set there; Tidelog's defaults apply to what nobody has set.
    """
    if master and remote:
        raise UsageError("`master` and `remote` exclude each other: give only one of them")
    require_pyspark()
    explicit = dict(settings or {})
    if not master and not remote:
        master, remote = explicit.pop("spark.master", None), explicit.pop("spark.remote", None)
    session = active_session()
    if session is not None:
        _check_same_place(session, master, remote)
        _apply(session, explicit)
        return session
    if not master:
        remote = remote or os.environ.get("SPARK_REMOTE")
    try:
        return _remote(name, remote, explicit) if remote else _classic(name, master, explicit)
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        where = remote or master or "the configured master"
        first = scrub(str(error).strip().splitlines()[0])
        raise UsageError(f"cannot start Spark at `{where}`: {first}") from error


@contextmanager
def using_session(name: str, **keys: Any) -> Iterator[Any]:
    """Yield what `open_session` returns; stop it at the end, unless it was active before."""
    require_pyspark()
    before = active_session()
    session = open_session(name, **keys)
    try:
        yield session
    finally:
        if session is not before:
            session.stop()


def active_session() -> Any:
    """Return the session that is active in this process; None if there is none."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def ui_address(spark: Any) -> str:
    """Return the address of Spark's UI; empty if there is none, or none is known (Connect)."""
    if "connect" in type(spark).__module__:
        return ""
    return str(spark.sparkContext.uiWebUrl or "")


def require_pyspark() -> None:
    """Raise UsageError, with the way to get it, if PySpark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise UsageError(
            "pipelines need PySpark, which is not installed\n  help: pip install 'tidelog[spark]'"
        ) from None


# --- existing sessions ---


def _check_same_place(session: Any, master: str | None, remote: str | None) -> None:
    """Refuse to ignore a master or a server: a process has one session."""
    here = "" if "connect" in type(session).__module__ else session.sparkContext.master
    if (remote and here) or (master and master != here):
        raise UsageError(
            f"this process has a Spark session already, at `{here or 'a Spark Connect server'}`,"
            f" not at `{master or remote}`\n  help: stop it, or do not name another place"
        )


def _apply(session: Any, settings: Mapping[str, str]) -> None:
    """Change what can be changed in a session that runs; refuse the rest, unless it is so."""
    for key, value in settings.items():
        if session.conf.get(key, None) == value:
            continue
        if not session.conf.isModifiable(key):
            raise UsageError(
                f"`{key}` cannot be changed in the Spark session that is active"
                "\n  help: set it where the session is started, or take it out of the pipeline file"
            )
        session.conf.set(key, value)


# --- new sessions ---


def _remote(name: str, remote: str, explicit: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName(name).remote(remote).getOrCreate()
    known = session.conf.getAll
    for key, value in {**_SETTINGS, **explicit}.items():
        if key in explicit or key not in known:
            session.conf.set(key, value)
    return session


def _classic(name: str, master: str | None, explicit: Mapping[str, str]) -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.pop("SPARK_REMOTE", None)  # a master that was given counts more
    conf, gateway = _configuration(master, explicit)
    chosen = dict(explicit)
    if master:
        chosen["spark.master"] = master
    elif conf.get("spark.master") in (None, _SPARKS_OWN, _started.get("spark.master")):
        chosen["spark.master"] = LOCAL
    if conf.get("spark.app.name", None) in (None, *_UNNAMED, os.path.basename(sys.argv[0])):
        chosen.setdefault("spark.app.name", name)
    defaults = {**_SETTINGS, **_CLASSIC_SETTINGS}
    if "NUMBA_CACHE_DIR" in os.environ:  # executors cache compiled kernels there, too
        defaults["spark.executorEnv.NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
    if chosen.get("spark.master", conf.get("spark.master")).startswith("local"):
        defaults |= _LOCAL_SETTINGS
        if _has_iceberg({**dict(conf.getAll()), **chosen}):
            del defaults[_FILES]
        if not conf.contains("spark.pyspark.python"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ and not _has_own_logging():
        defaults["spark.log.level"] = "WARN"  # under spark-submit, each job would be a page
    for key, value in chosen.items():
        conf.set(key, value)
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
    # What was taken from the environment is a secret, whatever its key is called.
    hidden = [re.escape(key) for key, value in chosen.items() if isinstance(value, Taken)]
    if hidden:
        before = conf.get(_REDACTION, _REDACTED)
        conf.set(_REDACTION, "|".join([before, *(f"^{key}$" for key in hidden)]))
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _has_iceberg(settings: Mapping[str, str], text: str = "") -> bool:
    """Return whether a session has Iceberg's connector, among its jars or catalogs."""
    return any("iceberg" in part.lower() for part in (*settings, *settings.values(), text))


def _configuration(master: str | None, explicit: Mapping[str, str]) -> tuple[Any, Any]:
    """Return all that spark-submit and files have set, and the JVM; it is started if necessary."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    there = SparkConf()
    if there.getAll():  # the JVM of an earlier session
        return there, None
    provide_java()
    start = SparkConf(loadDefaults=False)
    if "spark.ui.showConsoleProgress" not in _defaults_text():  # PySpark turns it on
        start.set("spark.ui.showConsoleProgress", "false")
    if master:
        start.set("spark.master", master)
    for key, value in explicit.items():
        if _AT_START.match(key) and not _is_secret(key, value):
            start.set(key, value)
    java = list(_JAVA_OPTIONS)
    if not _has_own_logging():
        quiet = Path(__file__).with_name("log4j2.properties")
        java.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    own = {"SPARK_SUBMIT_OPTS": f"{' '.join(java)} {options}".strip()}
    if _will_be_local(master):
        # Workers run on this machine: use this Python, which has the package. Spark starts some of
        # them by the environment of the JVM.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        given = _defaults_text() + os.environ.get("PYSPARK_SUBMIT_ARGS", "")
        if _FILES not in explicit and _FILES not in given and not _has_iceberg(explicit, given):
            start.set(_FILES, _LOCAL_SETTINGS[_FILES])  # before spark-submit opens its first file
        if "SPARK_LOCAL_IP" not in os.environ:
            own["SPARK_LOCAL_IP"] = "127.0.0.1"  # else the UI would listen on all interfaces
    with _environment(own):
        gateway = launch_gateway(start)
    _started.update(start.getAll())
    return SparkConf(_jvm=gateway.jvm), gateway


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Add variables to the environment, for the process that is started."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_secret(key: str, value: str) -> bool:
    return isinstance(value, Taken) or re.search(_REDACTED, key) is not None


def _will_be_local(master: str | None) -> bool:
    """Return whether Spark runs on this machine only, as far as is known before it starts."""
    if master:
        return master.startswith("local")
    texts = os.environ.get("PYSPARK_SUBMIT_ARGS", "") + "\n" + _defaults_text()
    named = re.findall(r"(?:--master|spark\.master)[\s=:]+(\S+)", texts)
    named.append(os.environ.get("MASTER", "local"))
    return all(found.startswith("local") for found in named)


def _defaults_text() -> str:
    file = _conf_folder() / "spark-defaults.conf"
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _conf_folder() -> Path:
    import pyspark

    folder = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(folder) if folder else Path(home, "conf")


def _has_own_logging() -> bool:
    return any((_conf_folder() / f"log4j2.{end}").is_file() for end in ("properties", "xml"))
