"""The interface of all strategies, and its defaults.

A strategy maintains the relations of one layer. Rows, levels and counts live in the store.
Anything else that a strategy measures, such as the time of its last bootstrap, is in `statistics`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.maintain.epoch_program import EpochProgram
from tidelog.store.versions import Delta

Deltas = Mapping[str, Delta]
"""The net changes of an epoch, by relation. A relation that is missing has not changed."""


@dataclass(frozen=True)
class Choice:
    """What a strategy did in an epoch, and why."""

    what: str
    """`bootstrap`, `update` or `nothing to do`."""
    why: str = ""
    levels: int = 0
    """How many iterations it took."""
    propagated: int = 0
    """How many rows of a virtual view may have changed, as far as propagation can tell."""
    filtered: int = 0
    """How many of them were asked for in the other version."""
    disqualified: int = 0
    """How many of them have not changed."""
    work: str = ""
    """What else was counted, in words."""


BOOTSTRAP = Choice("bootstrap", "the first evaluation")
UPDATE = Choice("update")
NOTHING = Choice("nothing to do", "nothing it reads has changed")


class Strategy(ABC):
    """Maintains the relations of one layer."""

    name = ""
    choice = NOTHING
    """What the last `bootstrap` or `update` did."""
    wants_times = False
    """Whether `was_short` is called."""

    @abstractmethod
    def bootstrap(self) -> None:
        """Compute the relations from the relations below. This happens outside of epochs."""

    def prepare(self) -> None:  # noqa: B027  optional
        """Plan the joins of small updates, and build the orders that they read."""

    def loaded(self) -> None:  # noqa: B027  optional
        """Prepare for small updates again, after an epoch that was as large as a first load."""

    @abstractmethod
    def update(self) -> Deltas:
        """Follow the deltas of the relations below: write the epoch's rows, return their deltas."""

    def add_steps(self, program: EpochProgram) -> bool:
        """Add the layer to a program for short epochs; return False if it cannot take part."""
        return False

    def was_short(self, seconds: float, found: int) -> bool:
        """Note what a short epoch took, and how many rows the layer's joins found in it.

        Returns whether the layer takes no more part in short epochs.
        """
        return False

    def check(self) -> None:  # noqa: B027  optional
        """Assert that the state is sound. A debugging aid, and slow."""

    def statistics(self) -> Mapping[str, float]:
        """Return what the strategy has measured, to be saved with the relations."""
        return {}

    def restore_statistics(self, statistics: Mapping[str, float]) -> None:  # noqa: B027  optional
        """Restore what `statistics` returned."""

    def reuse(self, other: Strategy) -> None:  # noqa: B027  optional
        """Take over the planned joins of another strategy, for the rules that both have."""

    def restored(self) -> None:  # noqa: B027  optional
        """Build what is not saved, after the relations have been restored from files."""
