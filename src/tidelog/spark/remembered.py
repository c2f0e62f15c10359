"""What an epoch of a pipeline brings, what it did, and what is remembered of the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows

Given = CheckedTable | CheckedRows
"""Rows for a relation, checked: in columns if all of them are of scalars."""


@dataclass(frozen=True)
class Count:
    """How many rows of a source there were."""

    received: int = 0
    accepted: int = 0
    quarantined: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.received + other.received,
            self.accepted + other.accepted,
            self.quarantined + other.quarantined,
        )


@dataclass
class Changes:
    """All that one epoch changes: rows, offsets and counts."""

    inserted: dict[str, Given] = field(default_factory=dict)
    deleted: dict[str, Given] = field(default_factory=dict)
    marks: dict[str, Mapping[str, str]] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class Applied:
    """What an epoch did."""

    epoch: int
    how: str
    """`bootstrap` or `update`."""
    inserted: int
    """Rows of relations that came, given ones."""
    deleted: int


@dataclass
class Memory:
    """The offsets of all sources, by item, and how many rows each has brought."""

    offsets: dict[str, dict[str, str]] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)

    def add(self, marks: Mapping[str, Mapping[str, str]], counts: Mapping[str, Count]) -> None:
        """Bring it to where an epoch leaves it."""
        for source, items in marks.items():
            self.offsets.setdefault(source, {}).update(items)
        for source, count in counts.items():
            self.counts[source] = self.counts.get(source, Count()) + count

    def copy(self) -> Memory:
        """Return the same, to be changed on its own."""
        offsets = {source: dict(items) for source, items in self.offsets.items()}
        return Memory(offsets, dict(self.counts))


class Remembering:
    """Tells what is committed of the sources."""

    def __init__(self) -> None:
        self._memory = Memory()

    def offsets(self, source: str) -> Mapping[str, str]:
        """Return the committed offsets of a source, by item."""
        return self._memory.offsets.get(source, {})

    def all_offsets(self) -> dict[str, Mapping[str, str]]:
        """Return the committed offsets of all sources."""
        return dict(self._memory.offsets)

    def counts(self) -> Mapping[str, Count]:
        """Return how many rows of each source there were in all epochs."""
        return self._memory.counts
