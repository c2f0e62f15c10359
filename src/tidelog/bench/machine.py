"""The machine and the software of a measurement."""

from __future__ import annotations

import datetime as dt
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("tidelog", "numba", "numpy", "duckdb", "pathway")


def machine() -> dict[str, object]:
    """Return what a reader needs to judge the figures."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "cpus": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "load": _load(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def describe(about: dict[str, object]) -> str:
    """Return the description as one line."""
    versions = about["versions"]
    assert isinstance(versions, dict)
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    memory = about["memory_bytes"]
    size = f", {memory / 1e9:.0f} GB" if isinstance(memory, int) else ""
    commit = f", commit {about['commit']}" if about["commit"] is not None else ""
    load = f", load {about['load']} before" if about["load"] is not None else ""
    return (
        f"{about['date']}, {about['cpus']} CPUs{load}{size}, {about['system']},"
        f" Python {about['python']}, {installed}{commit}"
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit that is measured, if this is a clone of the project."""
    source = Path(__file__).parents[3]
    git = shutil.which("git")
    if git is None or not (source / ".git").exists():
        return None
    command = [git, "-C", str(source), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _load() -> float | None:
    """Return the load of the machine before the run: on a busy machine, times are too long."""
    try:
        return round(os.getloadavg()[0], 1)
    except OSError:
        return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
