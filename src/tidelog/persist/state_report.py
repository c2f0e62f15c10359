"""Reports about the files of a durable database: `db.opened`, `db.state`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Opened:
    """How a durable database was opened."""

    epoch: int
    """The last committed epoch."""
    snapshot_epoch: int
    """The epoch of the snapshot that was read."""
    mapped_bytes: int
    """The size of the arrays that were mapped: runs, levels, counts, sums, indexes, dictionaries.

    They are read, and their checksums verified, when they are first needed.
    """
    replayed_epochs: int
    """How many epochs were replayed from the log."""
    cut_bytes: int
    """Bytes cut off the end of the log: an epoch that had not committed."""
    rebuilt: str
    """Why everything was re-evaluated; empty if it was not."""
    seconds: float
    migrated: bool = False
    """Whether the difference to another program was applied, as the last epoch."""


@dataclass(frozen=True)
class StateReport:
    """What the files of a durable database contain."""

    path: str
    epoch: int
    durable_epoch: int
    """The last epoch that is known to be on the disk."""
    snapshot_epoch: int
    oldest_epoch: int
    """The first epoch that `at` and `changes` can go back to."""
    snapshot_bytes: int
    log_bytes: int
    files: int
    problem: str
    """Why the last snapshot could not be written; empty if it could."""
