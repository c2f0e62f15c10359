"""How a durable database is kept: the settings, checked."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import UsageError

DURABILITIES = ("commit", "group", "periodic")
PROGRAM_CHANGES = ("refuse", "rebuild")


@dataclass(frozen=True)
class Settings:
    """How a durable database is kept."""

    durability: str = "commit"
    """When a commit returns: `commit`, on the disk; `group`, on the disk, sharing the wait with
    other threads; `periodic`, at once, and on the disk within `sync_seconds`."""
    sync_seconds: float = 0.1
    retain_epochs: int = 100
    """So many epochs can be looked back to, at least."""
    retain_seconds: float = 0.0
    """Epochs of so many last seconds can be looked back to, at least."""
    on_program_change: str = "refuse"
    verify: bool = True
    """Whether opening recomputes the checksums of all that it maps."""
    snapshot_bytes: int = 4 << 20
    """The least size of the log at which a snapshot is begun."""
    step_bytes: int = 4 << 20
    """How much of a snapshot is written at a commit."""
    segment_bytes: int = 64 << 20
    """The size at which a file of the log is followed by another one."""

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
