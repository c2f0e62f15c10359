"""A cluster on this machine, a worker of which is killed in mid-epoch: nothing is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import LONG

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not LONG, reason="test_kills.py kills executors; a worker in long runs only")
def test_a_worker_of_a_cluster_is_killed(tmp_path: Path) -> None:
    import tidelog

    paths = [str(Path(tidelog.__file__).parents[1]), str(ROOT)]  # Spark's workers look there, too
    done = subprocess.run(
        [sys.executable, "tests/spark/clustering.py", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    print(done.stdout, done.stderr[-4000:])
    assert done.returncode == 0
    assert "nothing is lost" in done.stdout
