"""Drivers and executors that are killed at random moments; see killing.py.

TIDELOG_KILLS says how many drivers are killed, TIDELOG_EXECUTOR_KILLS how many executors.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.seeds import seed_of

ROOT = Path(__file__).resolve().parents[2]
# An ordinary run kills one driver, or one executor.
_ONE = (1, 0) if seed_of("kills") % 3 else (0, 1)
KILLS = int(os.environ.get("TIDELOG_KILLS", _ONE[0]))
EXECUTOR_KILLS = int(os.environ.get("TIDELOG_EXECUTOR_KILLS", _ONE[1]))


def test_killed_drivers_and_executors_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.killing", str(tmp_path)]
    done = subprocess.run(
        [*command, str(seed_of("kills")), str(KILLS), str(EXECUTOR_KILLS)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=7200,
    )  # fmt: skip
    print(done.stdout, done.stderr[-4000:])
    assert done.returncode == 0
    assert f"{KILLS} drivers and {EXECUTOR_KILLS} executors killed" in done.stdout
