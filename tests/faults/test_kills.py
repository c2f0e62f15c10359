"""Writers that are killed at random moments. TIDELOG_KILLS says how often; see killing.py."""

import os
import subprocess
import sys
from pathlib import Path

from tests.seeds import SEED

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("TIDELOG_KILLS", "25"))


def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.killing", str(tmp_path), str(SEED), str(KILLS)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert f"{KILLS} kills" in done.stdout
