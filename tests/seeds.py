"""The one seed from which all random tests draw.

It follows from the commit: every change is tested with new input, and a run that is repeated gets
the same input again. pytest prints it in its header and beside every failure.

    TIDELOG_SEED=1234 make test        replaces it

Without git (an archive of the source, say) it is a hash of the files. It is put into the
environment, so that all workers of pytest-xdist and all processes that a test starts have the same
one, also when somebody commits in the middle of a run.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "TIDELOG_SEED"


def _number(*parts: object) -> int:
    """Return a number of 31 bits that depends on all parts, the same in every process."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def commit(root: Path) -> str | None:
    """Return the commit that is checked out at `root`, if git knows this folder."""
    command = ["git", "rev-parse", "--show-toplevel", "HEAD"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 2 or Path(lines[0]).resolve() != root:
        return None
    return lines[1]


def hash_of_files(root: Path) -> str:
    """Return a hash of all Python files and grammars of the source and the tests."""
    files = [p for folder in ("src", "tests") for p in sorted((root / folder).rglob("*"))]
    found = hashlib.sha256()
    for path in files:
        if path.suffix in {".py", ".lark"}:
            found.update(f"{path.relative_to(root)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def find(root: Path = ROOT) -> tuple[int, str]:
    """Return the seed, and where it comes from."""
    if given := os.environ.get(VARIABLE):
        return int(given), f"given by {VARIABLE}"
    if known := commit(root):
        return _number(known), f"from commit {known[:12]}"
    return _number(hash_of_files(root)), "from a hash of the files, without git"


SEED, ORIGIN = find()
os.environ[VARIABLE] = str(SEED)


def header() -> str:
    """Return the line that tells the seed."""
    return f"seed: {SEED}, {ORIGIN}; {again()} draws the same input again"


def again() -> str:
    """Return what to set to draw the same input again."""
    return f"{VARIABLE}={SEED}"


def seed_of(*labels: object) -> int:
    """Return the seed of one test, or of one case of it: the labels tell them apart."""
    return _number(SEED, *labels)


def seeded(*labels: object) -> random.Random:
    """Return a generator for one test."""
    print(f"{again()}, drawing for {labels}")
    return random.Random(seed_of(*labels))


def seeded_arrays(*labels: object) -> np.random.Generator:
    """Return NumPy's generator for one test."""
    print(f"{again()}, drawing for {labels}")
    return np.random.default_rng(seed_of(*labels))


def case_seeds(cases: int, offset: int = 0) -> range:
    """Return the seeds of so many random cases; the offset tells one test's from another's."""
    return range(SEED + offset, SEED + offset + cases)


def seed_blocks(cases: int, block: int, offset: int = 0) -> list[Any]:
    """Return the seeds of many cases, in blocks: one for each parametrized test.

    The name of a block has the numbers of its cases, not their seeds: names of tests stay the same.
    """
    every = case_seeds(cases, offset)
    return [
        pytest.param(every[start : start + block], id=f"{start}-{min(start + block, cases) - 1}")
        for start in range(0, cases, block)
    ]
