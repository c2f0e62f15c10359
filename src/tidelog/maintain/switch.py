"""When an update is worth a try, and when to give it up for a bootstrap (the paper's section 3.4).

The paper gives an update a fifth of the last bootstrap's time; here it is 15 %, so that an attempt
in vain and the comparison of two versions take little more than that. Beyond that timer, what
updates have cost so far, for each row of the change, foretells the next one: an update that will
cost more than a bootstrap is not tried, and one that will take a while but less gets the time it
needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUDGET = 0.15  # of the last bootstrap's time, for an update that cannot be foretold
LEAST_SECONDS = 0.05  # an update always gets this long: plans are made on first use

_WEIGHT = 0.3  # of the latest update in the average
_HOPELESS = 1.1  # bootstraps: an update that is foretold to take longer is not tried
_PROMISING = 0.8  # bootstraps: one that is foretold to take less gets more time
_PATIENCE = 1.5  # times what was foretold
_DOUBT = 0.8  # an estimate that kept updates from being tried shrinks, so that one is tried again


@dataclass(frozen=True)
class Verdict:
    """How long an update may take, in seconds; None: do not try. And why, in words."""

    seconds: float | None
    why: str


class Switch:
    """Learns what bootstraps and updates of one stratum cost."""

    def __init__(self) -> None:
        self.bootstrap_seconds = 0.0
        self._per_row = {"inserted": 0.0, "deleted": 0.0}
        """Seconds of an update for each row of the change, by what most of its rows were."""

    def bootstrapped(self, seconds: float) -> None:
        """Learn from a bootstrap."""
        self.bootstrap_seconds = seconds

    def verdict(self, inserted: int, deleted: int, share: float) -> Verdict:
        """Return how long an update for so many rows may take; `share` is the usual budget."""
        whole = self.bootstrap_seconds
        usual = max(LEAST_SECONDS, share * whole) if share else 0.0
        kind, rows = _kind(inserted, deleted)
        foretold = self._per_row[kind] * rows
        if foretold > max(_HOPELESS * whole, usual):
            self._per_row[kind] *= _DOUBT
            why = f"an update was foretold to take {foretold:.2g} s, a bootstrap {whole:.2g} s"
            return Verdict(None, why)
        if foretold < _PROMISING * whole:
            usual = max(usual, min(_PATIENCE * foretold, whole))
        return Verdict(usual, f"the update went over its budget of {usual:.2g} s")

    def updated(self, inserted: int, deleted: int, seconds: float) -> None:
        """Learn from an update that came to its end."""
        kind, rows = _kind(inserted, deleted)
        cost = seconds / max(rows, 1)
        known = self._per_row[kind]
        self._per_row[kind] = cost if known == 0.0 else known + _WEIGHT * (cost - known)

    def memory(self) -> Mapping[str, float]:
        """Return all that was learnt."""
        return {"bootstrap_seconds": self.bootstrap_seconds, **self._per_row}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back what `memory` returned."""
        self.bootstrap_seconds = memory["bootstrap_seconds"]
        for kind in self._per_row:
            self._per_row[kind] = memory[kind]


def _kind(inserted: int, deleted: int) -> tuple[str, int]:
    rows = inserted + deleted
    return ("deleted" if deleted >= inserted else "inserted"), rows
