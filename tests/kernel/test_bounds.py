"""Kernels stay within their arrays, those that index them and those that read by address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.samples import sample
from tests.seeds import seeded

ROOT = Path(__file__).parents[2]


CHECKED = [
    "tests/kernel/test_join.py",
    "tests/maintain/test_leapfrog_skipping.py",
    "tests/maintain/test_nested_results.py",
    "tests/maintain/test_paper_example.py",
    "tests/store/test_complement.py",
    "tests/store/test_run_tree.py",
    "tests/store/test_sets.py",
]


def run_tests(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run some tests in a process of its own."""
    words = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*words, *arguments], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip


def test_no_kernel_indexes_beyond_its_arrays(tmp_path: Path) -> None:
    """Numba checks every index of an array; it does not see reads by address.

    The cache is separate, because the flag is not part of the cache's key. Without optimisation
    compiling takes less time, and the checks are the same. Some kernels with checks cannot be
    cached, and Numba warns about it.
    """
    done = run_tests(
        "-k", "not every_order",
        "-W", "ignore:Cannot cache compiled function",
        *sample(seeded("bounds").sample(CHECKED, 2), CHECKED),
        NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path), NUMBA_OPT="0",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert any(tmp_path.rglob("*.nbi")), "nothing was compiled"


# An array takes 17 us then, not 0.5: so only some.
CHOSEN = (
    "(go_on_from and 7) or test_find or example or (walks_give and closure) or some_of_the_results"
)


def test_no_kernel_reads_by_address_behind_an_array() -> None:
    """On arrays behind which no memory can be touched: a kernel that does is killed."""
    done = run_tests(
        "-p", "tests.kernel.guarded", "-k", CHOSEN,
        "tests/kernel/test_join.py",
        "tests/kernel/test_find.py",
        "tests/maintain/test_leapfrog_skipping.py",
        "tests/maintain/test_nested_results.py",
        "tests/maintain/test_paper_example.py",
        "tests/maintain/test_walk.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


SCRIPT = """
import ctypes
import tests.kernel.guarded
import numpy as np
from numpy._core.multiarray import get_handler_name

grown = np.arange({size})
grown.resize(2 * {size}, refcheck=False)
for array in (np.arange({size}), np.zeros({size}, np.int64), np.full({size}, 7), grown):
    assert get_handler_name(array) == "guarded"
    assert array.tolist() == array[:].copy().tolist()
    def at(position):
        return ctypes.c_int64.from_address(array.ctypes.data + 8 * position).value
    assert [at(0), at(len(array) - 1)] == [array[0], array[-1]]
    print("inside")
at(len(array) {behind})
print("outside")
"""


def guarded_reads(size: int, behind: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-u", "-c", SCRIPT.format(size=size, behind=behind)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.split()


def test_reading_behind_a_guarded_array_kills() -> None:
    assert guarded_reads(100, "- 1") == (0, ["inside"] * 4 + ["outside"])
    assert guarded_reads(100, "") == (-signal.SIGSEGV, ["inside"] * 4)
    assert guarded_reads(512, "") == (-signal.SIGSEGV, ["inside"] * 4)
