"""Sinks in tables of Delta and Iceberg, which take changes by MERGE, exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.sampled(1)

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ["epochs", "deaths", "several", "shards", "others", "types", "names"]


class Checker:
    """A process with the jars of both formats, for all checks: it takes long to start."""

    def __init__(self, folder: Path) -> None:
        self._log = open(folder / "log", "w+", encoding="utf-8")  # noqa: SIM115
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "tests/spark/table_sinks.py", str(folder)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    def check(self, format: str, name: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{format} {name}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("checked: "):
                assert line == "checked: fine\n", self._said()
                return
        raise AssertionError(f"the process has ended: {self._said()}")

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-6000:]

    def end(self) -> None:
        self._process.communicate(timeout=120)
        self._log.close()


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checker]:
    running = Checker(tmp_path_factory.mktemp("tables"))
    yield running
    running.end()


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_table_sinks(checker: Checker, format: str, name: str) -> None:
    checker.check(format, name)
