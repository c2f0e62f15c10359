"""Spark jobs as people see them: a description in the UI, and the essential line of an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidelog.spark.environment import scrub

_DESCRIPTION = "spark.job.description"
_WRAPPERS = ("Exception thrown in awaitResult", "Job aborted", "Writing job aborted")
_SECRET = re.compile(r"(?i)(password|passwd|pwd|secret|token|accesskey)(\s*[=:]\s*)[^\s&;,)\"']+")
_CONDITION = re.compile(r"Exception: \[([A-Z_.]+)\]")
_NAMED_SECRET = re.compile(r"(?i)password|passwd|pwd|secret|token|access.?key|credential")


def context_of(spark: Any) -> Any:
    """Return the Spark context of a session; None on Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # Spark's own, of a class that only Connect has
        return None


@contextmanager
def describe(spark: Any, text: str) -> Iterator[None]:
    """Give the jobs of a block a description in Spark's UI; does nothing on Spark Connect."""
    context = context_of(spark)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session for a block; those that are as wanted are left alone."""
    known = {name: spark.conf.get(name, None) for name in values}
    before = {name: value for name, value in known.items() if value != values[name]}
    try:
        for name in before:
            spark.conf.set(name, values[name])
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def reason(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    r"""Return the essential line of a Spark error: that of its first cause, without secrets.

    >>> reason(Exception("Job aborted.\n\tat org.x\nCaused by: java.io.IOException: no space"))
    'java.io.IOException: no space'
    >>> reason(Exception("[NO_TABLE] no `t`. SQLSTATE: 42P01;\n'Project"))
    '[NO_TABLE] no `t`. SQLSTATE: 42P01;'
    >>> reason(Exception("cannot reach jdbc:x://h?password=abc"))
    'cannot reach jdbc:x://h?password=***'
    """
    text = _java_cause(error) or str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines = [lines[1].removeprefix(": "), *lines[2:]]  # the first line is about Py4J
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    found = [line for line in (lines[0], *causes) if not any(word in line for word in _WRAPPERS)]
    line = found[0] if found else (causes or lines)[-1]
    for name, value in (options or {}).items():
        if value and _NAMED_SECRET.search(name):
            line = line.replace(value, "***")
    return _SECRET.sub(r"\1\2***", scrub(line))


def condition_of(error: BaseException) -> str:
    """Return the name of Spark's error, without that of a special case; empty if it has none.

    >>> condition_of(Exception("org.x.SparkException: [DATA_SOURCE_NOT_FOUND] no `cvs`"))
    'DATA_SOURCE_NOT_FOUND'
    """
    name = getattr(error, "getCondition", lambda: None)()
    if not name and (found := _CONDITION.search(str(error))):
        name = found[1]  # of a class of Java that PySpark does not know
    return str(name or "").partition(".")[0]


def _java_cause(error: BaseException) -> str:
    """Return the message of the innermost Java exception; empty if there is none."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        while java is not None and (inner := java.getCause()) is not None:
            java = inner
        return "" if java is None else str(java.toString())
    except Exception:  # the gateway is gone
        return ""
