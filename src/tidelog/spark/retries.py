"""Retries of what depends on external systems.

External systems can be unavailable for a while: a database, a broker, a disk. This is an `Outage`.
No other error of Tidelog is retried, because somebody has to fix its cause first. How long to wait
is in runtime/retry.py.
"""

from __future__ import annotations

import time

from tidelog.errors import DataError, TidelogError
from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.jobs import reason

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
