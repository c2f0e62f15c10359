"""The kernels once more, compiled so that every index of an array is checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_kernel_reads_or_writes_beyond_its_arrays(tmp_path: Path) -> None:
    """Compiled anew, with a cache of its own: the flag is no part of the cache's key."""
    tests = [
        "tests/kernel/test_join.py",
        "tests/maintain/test_paper_example.py",
        "tests/store/test_complement.py",
        "tests/store/test_run_tree.py",
        "tests/store/test_sets.py",
    ]
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert any(tmp_path.rglob("*.nbi")), "nothing was compiled"
