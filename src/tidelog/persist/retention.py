"""Which files of a durable database are still needed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from tidelog.durable.log_reading import HEADER
from tidelog.durable.manifest import Manifest, Segment
from tidelog.durable.saved import SavedSnapshot
from tidelog.persist.settings import Settings

_OURS = ("log-", "data-", "words-", "tables-", "snapshot-", "MANIFEST.new")


def retained(
    manifest: Manifest, settings: Settings, snapshot_epoch: int, epoch: int
) -> tuple[Segment, ...]:
    """Return the files of the log to keep: those to replay, and those within retention."""
    keep: list[Segment] = []
    oldest = epoch - settings.retain_epochs
    since = time.time() - settings.retain_seconds
    for segment in manifest.segments:
        needed = segment.last < 0 or segment.last > snapshot_epoch
        recent = segment.last > oldest or segment.time > since
        if needed or recent or keep:  # without gaps
            keep.append(segment)
    return tuple(keep)


def replayed_bytes(manifest: Manifest, end: int) -> int:
    """Return how much of the log an opening would replay; the file being written has `end`."""
    return sum(
        end - HEADER if segment.last < 0 else segment.bytes
        for segment in manifest.segments
        if segment.last < 0 or segment.last > manifest.snapshot.epoch
    )


def unused(names: Iterable[str], manifest: Manifest, saved: SavedSnapshot) -> Iterator[str]:
    """Yield the files that a manifest does not need. Files with other names are left alone."""
    used = {segment.name for segment in manifest.segments}
    used |= saved.files() | {manifest.snapshot.name}
    for name in names:
        if name.startswith(_OURS) and name not in used:
            yield name


def largest_number(names: Iterable[str]) -> int:
    """Return the largest number in the names of files: new ones get larger ones."""
    numbers = [0]
    for name in names:
        parts = name.removesuffix(".tide").removesuffix(".json").split("-")
        if name.startswith(_OURS) and len(parts) > 1 and parts[1].isdecimal():
            numbers.append(int(parts[1]))
    return max(numbers)
