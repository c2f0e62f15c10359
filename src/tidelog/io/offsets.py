"""The offsets to which sources have been read, and the numbers of rows read from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of a source."""

    received: int = 0
    accepted: int = 0
    quarantined: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.received + other.received,
            self.accepted + other.accepted,
            self.quarantined + other.quarantined,
        )


@dataclass
class SourceOffsets:
    """The offsets of all sources, by source and item, and the rows read from each source."""

    offsets: dict[str, dict[str, str]] = field(default_factory=dict)
    counts: dict[str, RowCounts] = field(default_factory=dict)

    def add(
        self, offsets: Mapping[str, Mapping[str, str]], counts: Mapping[str, RowCounts]
    ) -> None:
        """Add the offsets and counts of one epoch."""
        for source, items in offsets.items():
            self.offsets.setdefault(source, {}).update(items)
        for source, count in counts.items():
            self.counts[source] = self.counts.get(source, RowCounts()) + count

    def copy(self) -> SourceOffsets:
        """Return an independent copy."""
        offsets = {source: dict(items) for source, items in self.offsets.items()}
        return SourceOffsets(offsets, dict(self.counts))


class CommittedOffsets:
    """The committed offsets and counts of all sources; a base class of placements."""

    def __init__(self) -> None:
        self._committed = SourceOffsets()

    def offsets(self, source: str) -> Mapping[str, str]:
        """Return the committed offsets of a source, by item."""
        return self._committed.offsets.get(source, {})

    def all_offsets(self) -> dict[str, Mapping[str, str]]:
        """Return the committed offsets of all sources."""
        return dict(self._committed.offsets)

    def counts(self) -> Mapping[str, RowCounts]:
        """Return the numbers of rows of each source, over all epochs."""
        return self._committed.counts
