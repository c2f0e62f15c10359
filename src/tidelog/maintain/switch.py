"""When to try an update, and when to abandon it for a bootstrap (the paper's section 3.4).

The paper gives an update a fifth of the last bootstrap's time; here it is 15 %, which leaves room
for the comparison of two versions after a failed attempt. Beyond that, the cost of earlier updates,
for each row of the change, predicts the next one: an update that will cost more than a bootstrap is
not tried, and one that will take long, but less than a bootstrap, gets the time it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUDGET = 0.15  # of the last bootstrap's time, for an update that cannot be predicted
LEAST_SECONDS = 0.05  # an update always gets this long: plans are made on first use

_WEIGHT = 0.3  # of the latest update in the average
_HOPELESS = 1.1  # bootstraps: an update that is predicted to take longer is not tried
_PROMISING = 0.8  # bootstraps: an update that is predicted to take less gets more time
_PATIENCE = 1.5  # times the prediction
_DOUBT = 0.8  # an estimate that prevents an update shrinks by this, so that one is tried again


@dataclass(frozen=True)
class Verdict:
    """How long an update may take, in seconds; None: do not try. And why, in words."""

    seconds: float | None
    why: str


class Switch:
    """Learns what bootstraps and updates of one layer cost."""

    def __init__(self) -> None:
        self.bootstrap_seconds = 0.0
        self._per_row = {"inserted": 0.0, "deleted": 0.0}
        """Seconds of an update for each row of the change, by the kind of most of its rows."""

    def bootstrapped(self, seconds: float) -> None:
        """Learn from a bootstrap."""
        self.bootstrap_seconds = seconds

    def verdict(self, inserted: int, deleted: int, share: float) -> Verdict:
        """Return how long an update for a change may take; `share` is the usual budget."""
        whole = self.bootstrap_seconds
        usual = max(LEAST_SECONDS, share * whole) if share else 0.0
        kind, rows = _kind(inserted, deleted)
        predicted = self._per_row[kind] * rows
        if predicted > max(_HOPELESS * whole, usual):
            self._per_row[kind] *= _DOUBT
            why = f"an update was predicted to take {predicted:.2g} s, a bootstrap {whole:.2g} s"
            return Verdict(None, why)
        if predicted < _PROMISING * whole:
            usual = max(usual, min(_PATIENCE * predicted, whole))
        return Verdict(usual, f"the update exceeded its budget of {usual:.2g} s")

    def updated(self, inserted: int, deleted: int, seconds: float) -> None:
        """Learn from an update that was completed."""
        kind, rows = _kind(inserted, deleted)
        cost = seconds / max(rows, 1)
        known = self._per_row[kind]
        self._per_row[kind] = cost if known == 0.0 else known + _WEIGHT * (cost - known)

    def statistics(self) -> Mapping[str, float]:
        """Return what has been learnt."""
        return {"bootstrap_seconds": self.bootstrap_seconds, **self._per_row}

    def restore_statistics(self, statistics: Mapping[str, float]) -> None:
        """Restore what `statistics` returned."""
        self.bootstrap_seconds = statistics["bootstrap_seconds"]
        for kind in self._per_row:
            self._per_row[kind] = statistics[kind]


def _kind(inserted: int, deleted: int) -> tuple[str, int]:
    rows = inserted + deleted
    return ("deleted" if deleted >= inserted else "inserted"), rows
