"""What every strategy can do.

A strategy keeps the relations of one layer. Rows, levels and counts live in the store; `memory` is
what a strategy knows besides, such as how long its last bootstrap took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.store.run import Words
from tidelog.store.versions import Version


@dataclass(frozen=True)
class Choice:
    """What a strategy did in an epoch, and why."""

    what: str
    """`bootstrap`, `update` or `nothing to do`."""
    why: str = ""
    levels: int = 0
    """How many iterations it took."""


BOOTSTRAP = Choice("bootstrap", "the first evaluation")
UPDATE = Choice("update")
NOTHING = Choice("nothing to do", "nothing it reads has changed")


class Strategy(Protocol):
    """Keeps the relations of one layer up to date."""

    name: str
    choice: Choice
    """What the last `bootstrap` or `update` did."""

    def bootstrap(self) -> None:
        """Compute the relations from the relations below. Nothing is open: no epoch, no log."""

    def prepare(self) -> None:
        """Make ready for small updates: plan their joins, and build the orders that they read."""

    def update(self) -> None:
        """Follow the deltas of the relations below: write the epoch's rows, and the own deltas."""

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""

    def check(self) -> None:
        """Assert that the state is sound: a debugging aid, as slow as it likes."""

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered beside the store."""

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back what `memory` returned."""

    def restored(self) -> None:
        """Build what is kept beside the store: the relations were read back from files."""
