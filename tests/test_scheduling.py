"""Tests are given to workers so that all run, also when a worker crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The tests of the run inside: each file is one unit.
CRASHES = "import os\n\n\ndef test_crash():\n    os._exit(3)\n"
PASSES = "def test_pass():\n    pass\n"


def run(folder: Path, files: dict[str, str], workers: int) -> str:
    """Run files of tests on workers, given their tests by our scheduler."""
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "conftest.py").write_text(
        "from tests.scheduling import InUnits\n\n\n"
        "def pytest_xdist_make_scheduler(config, log):\n    return InUnits(config, log)\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("files", "workers", "passed"),
    [
        ({"test_a.py": CRASHES, "test_b.py": PASSES}, 1, 1),
        ({"test_a.py": CRASHES + "\n\n" + PASSES}, 1, 1),
        ({"test_a.py": CRASHES} | {f"test_{n}.py": PASSES for n in "bcdefg"}, 2, 6),
    ],
    ids=["last-alone", "same-file", "two-workers"],
)
def test_a_crash_fails_one_test_and_the_others_run(
    tmp_path: Path, files: dict[str, str], workers: int, passed: int
) -> None:
    last_line = run(tmp_path, files, workers).strip().splitlines()[-1]
    assert f"1 failed, {passed} passed" in last_line
