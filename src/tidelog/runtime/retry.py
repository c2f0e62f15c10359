"""Trying again: how often, and how long to wait in between.

failures     1    2    3    4   ..          waits double, up to a bound, and vary by half,
wait         1    2    4    8   .. 60 s     so that many clients do not retry at once
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from tidelog.errors import UsageError

_LONGEST = 60.0  # seconds, unless the first wait is longer


class Clock:
    """The time, and waiting; tests have another one."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set back."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait, or until `stop` is set."""
        stop.wait(seconds)

    def chance(self) -> float:
        """Return a random number between 0 and 1."""
        return random.random()


@dataclass(frozen=True)
class Retry:
    """How often something that fails is tried again, and how long to wait before."""

    times: int = 3
    """For a pipeline: with `--once`; a continuous run never gives up."""
    seconds: float = 1.0
    """Before the first time. The wait doubles each time."""

    def __post_init__(self) -> None:
        if self.times < 0:
            raise UsageError(f"`retry` cannot be below 0, and is {self.times}")
        if self.seconds < 0:
            raise UsageError(f"`retry_seconds` cannot be below 0, and is {self.seconds}")

    def wait(self, failures: int, chance: float) -> float:
        """Return how long to wait after a number of failures in a row; `chance` is from 0 to 1.

        >>> [Retry().wait(failures, 1.0) for failures in (1, 2, 3, 10, 10_000)]
        [1.0, 2.0, 4.0, 60.0, 60.0]
        >>> Retry(seconds=100).wait(2, 0.0)
        50.0
        """
        bound = max(_LONGEST, self.seconds)
        return min(bound, self.seconds * 2.0 ** min(failures - 1, 60)) * (0.5 + 0.5 * chance)
