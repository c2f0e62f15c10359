"""The settings of a durable database, checked."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import UsageError

DURABILITIES = ("commit", "group", "periodic")
PROGRAM_CHANGES = ("refuse", "rebuild", "migrate")


@dataclass(frozen=True)
class Settings:
    """When a durable database writes to the disk, and what it retains."""

    durability: str = "commit"
    """When a commit returns. `commit`: when it is on the disk. `group`: the same, and threads share
    the wait. `periodic`: at once; it is on the disk within `sync_seconds`."""
    sync_seconds: float = 0.1
    retain_epochs: int = 100
    """How many epochs `at` and `changes` can go back, at least."""
    retain_seconds: float = 0.0
    """How many seconds `at` and `changes` can go back, at least."""
    on_program_change: str = "refuse"
    verify: bool = True
    """Whether the checksums of mapped data are verified, when it is first read."""
    snapshot_bytes: int = 4 << 20
    """The smallest size of the log at which a snapshot starts."""
    step_bytes: int = 4 << 20
    """How much of a snapshot is written at a commit."""
    segment_bytes: int = 64 << 20
    """The size at which the log continues in a new segment."""

    def __post_init__(self) -> None:
        for name, known in (
            ("durability", DURABILITIES),
            ("on_program_change", PROGRAM_CHANGES),
        ):
            if getattr(self, name) not in known:
                quoted = ", ".join(f'"{word}"' for word in known)
                raise UsageError(f"`{name}` is one of {quoted}, not {getattr(self, name)!r}")
        for name in ("sync_seconds", "retain_epochs", "retain_seconds"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"`{name}` cannot be {getattr(self, name)!r}")
