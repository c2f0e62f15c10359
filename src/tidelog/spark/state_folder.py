"""The state folder of a pipeline: what is in it, who writes to it, and how it is reset.

database, sharded, PLACEMENT     rows, offsets and views
checkpoint                       what Spark's streaming query has read
quarantine                       rows that did not fit
sinks                            the progress of sinks
failures.json                    what fails now
LOCK                             held by the process that runs the pipeline
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog.durable.files import Files
from tidelog.durable.lock import NAME, WriterLock
from tidelog.errors import StateError, UsageError
from tidelog.spark.listing import is_local, plain_path

FAILURES = "failures.json"
CHECKPOINT = "checkpoint"
QUARANTINE = "quarantine"
SINKS = "sinks"
# In this order: without its checkpoint a state is refused, but a checkpoint without its state would
# make Spark skip rows.
_PARTS = (
    CHECKPOINT, SINKS, QUARANTINE, FAILURES, "database", "database-*", "sharded", "sharded-*",
    "PLACEMENT",
)  # fmt: skip


def lock(state: Path) -> WriterLock:
    """Lock a state folder for writing; make it if it does not exist."""
    files = Files(state)
    files.make_folder()
    try:
        return WriterLock(files)
    except StateError as error:
        first = str(error).partition("\n")[0]
        raise StateError(f"{first}\n  help: a state belongs to one running pipeline") from None


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the lock of a state folder for a block."""
    held = lock(state)
    try:
        yield
    finally:
        held.release()


def reset(state: Path, kept: Sequence[str]) -> list[str]:
    """Remove all that a pipeline has written to its state folder; return the names.

    `kept` are the paths of sources and sinks, which must not be in what is removed.
    """
    if not state.is_dir():
        return []
    with locked(state):
        found = [path for part in _PARTS for path in sorted(state.glob(part))]
        for path in found:
            _check_outside(path, kept)
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (state / NAME).unlink(missing_ok=True)
    if not any(state.iterdir()):
        state.rmdir()
    return [path.name for path in found]


def _check_outside(path: Path, kept: Sequence[str]) -> None:
    for place in kept:
        if is_local(place) and Path(plain_path(place)).resolve().is_relative_to(path.resolve()):
            raise UsageError(
                f"`{place}` is inside of `{path}`, which would be removed"
                "\n  help: move it, and name its new place in the pipeline file"
            )
