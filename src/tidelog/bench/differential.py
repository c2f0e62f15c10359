"""Differential dataflow as a peer: a small Rust program of our own in `bench/peers`, on one worker.

It is built when it is first needed, if `cargo` is there and this is a checkout of the project.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from tidelog.bench.facts import Pair
from tidelog.bench.model import Figure
from tidelog.bench.ours import percentile
from tidelog.errors import UsageError

NAME = "differential"
TOOLS = ("cargo",)
"""The commands that have to be there."""
_ROOT = Path(__file__).resolve().parents[3]
_CRATE = _ROOT / "bench" / "peers"
_BUILT = _ROOT / "build" / "peers"


def measure(
    program: Literal["closure", "join"],
    rows: Iterable[tuple[int, Pair]],
    changes: Iterable[tuple[int, Pair]],
    first: Literal["insert", "delete"],
    what: tuple[str, str],
) -> Iterator[Figure]:
    """Yield the first evaluation, and the epochs of one row, with the names `what`.

    A row has the number of its relation. Each change is undone by the next epoch.
    """
    with tempfile.TemporaryDirectory(prefix="tidelog-peers-") as folder:
        files = [Path(folder) / name for name in ("rows.txt", "changes.txt")]
        for file, part in zip(files, (rows, changes), strict=True):
            file.write_text("".join(f"{number} {x} {y}\n" for number, (x, y) in part))
        lines = _run([str(_program()), program, *map(str, files), first]).split()
    size, seconds, *epochs = int(lines[0]), *map(float, lines[1:])
    bootstrap, one = what
    yield Figure(bootstrap, seconds, size, note="one worker; its memory is not measured")
    for name, share in (("median", 50), ("p99", 99)):
        yield Figure(f"{one}, {name}", percentile(epochs, share))


def _program() -> Path:
    """Build the program; return where it is."""
    if not _CRATE.is_dir():
        raise UsageError(f"`{_CRATE}` is not there: this is not a checkout of the project")
    manifest = str(_CRATE / "Cargo.toml")
    _run(["cargo", "build", "--release", "--quiet", "--manifest-path", manifest])
    return _BUILT / "release" / "tidelog-peers"


def _run(command: list[str]) -> str:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(_BUILT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise UsageError(f"`{command[0]}` failed:\n{done.stderr}")
    return done.stdout
