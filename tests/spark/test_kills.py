"""Drivers that are killed at random moments. TIDELOG_KILLS says how often; see killing.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("TIDELOG_KILLS", "4"))


@pytest.mark.parametrize("placement", ["driver", "sharded"])
def test_killed_drivers_lose_nothing(placement: str, remote: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDELOG_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"TIDELOG_SEED={seed}")
    command = [sys.executable, "tests/spark/killing.py", str(tmp_path), remote]
    done = subprocess.run(
        [*command, str(seed), str(KILLS), placement],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert f"{KILLS} kills" in done.stdout
