"""Retries: how often, and how long to wait in between.

External systems can be unavailable for a while: a database, a broker, a disk. This is an `Outage`.
No other error of Tidelog is retried, because somebody has to fix its cause first.

    failures     1    2    3    4   ..          waits double, up to a bound, and vary by half,
    wait         1    2    4    8   .. 60 s     so that many pipelines do not retry at once
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from tidelog.errors import DataError, TidelogError, UsageError
from tidelog.spark.jobs import reason

_LONGEST = 60.0  # seconds, unless the first wait is longer
# Errors of Spark that mean a wrong request, not an outage.
_LASTING = (
    "AnalysisException",
    "ParseException",
    "ClassNotFoundException",
    "IllegalArgumentException",
    "NoSuchMethodError",
    "NoClassDefFoundError",
    "DATA_SOURCE_NOT_FOUND",
    "No suitable driver",
)


class Outage(DataError):
    """An external system cannot be read or written now, but perhaps later."""


def outage(text: str, error: BaseException) -> DataError:
    """Return the error for a failure of Spark: an Outage if waiting may help.

    >>> type(outage("no", ConnectionError("refused"))).__name__
    'Outage'
    >>> type(outage("no", Exception("java.lang.ClassNotFoundException: org.x.Driver"))).__name__
    'DataError'
    """
    line = reason(error)
    if any(name in line or name == type(error).__name__ for name in _LASTING):
        return DataError(text)
    return Outage(text)


def is_lasting(error: BaseException) -> bool:
    """Return whether a retry cannot fix an error. It may fix errors of a user's function."""
    return isinstance(error, TidelogError) and not isinstance(error, Outage)


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
    """With `--once`; a continuous run never gives up."""
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


class Attempts:
    """The failures in a row of one thing that is tried again."""

    def __init__(self, retry: Retry, clock: Clock) -> None:
        self._retry, self._clock = retry, clock
        self.failures = 0
        self.error: BaseException | None = None
        """The last one; None if it works."""
        self.since = 0.0
        """The first failure, in seconds since 1970."""
        self._next = 0.0

    @property
    def is_lasting(self) -> bool:
        """Whether a retry cannot help."""
        return self.error is not None and is_lasting(self.error)

    @property
    def is_exhausted(self) -> bool:
        """Whether it was tried again as often as it should be, with `--once`."""
        return self.is_lasting or self.failures > self._retry.times

    @property
    def wait_seconds(self) -> float:
        """How long to wait before the next try; 0 if it is due, or works."""
        return 0.0 if self.error is None else max(0.0, self._next - self._clock.now())

    @property
    def is_due(self) -> bool:
        """Whether it is time to try. If a retry cannot help, it never is."""
        return not self.is_lasting and not self.wait_seconds

    def failed(self, error: BaseException) -> None:
        """Note a failure."""
        if self.error is None:
            self.since = time.time()
        self.error = error
        self.failures += 1
        self._next = self._clock.now() + self._retry.wait(self.failures, self._clock.chance())

    def succeeded(self) -> None:
        """Note that it works."""
        self.failures, self.error = 0, None
