"""A streaming query that is restarted after a source was unavailable.

An error that a retry cannot fix, such as one of a rule, ends the run instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.failures import Failures
from tidelog.spark.retries import Outage
from tidelog.spark.stream import EpochStream

_STEP = 0.2  # seconds between two looks


class RestartedStream:
    """The streaming query of a continuous run."""

    def __init__(
        self,
        name: str,
        make: Callable[[], EpochStream],
        begin: Callable[[EpochStream], None],
        retry: Retry,
        failures: Failures,
        clock: Clock,
    ) -> None:
        self._name, self._make, self._begin = name, make, begin
        self._failures, self._clock = failures, clock
        self._attempts = failures.of("query", name, retry)
        self._stream = make()
        self._runs = False

    @property
    def has_streams(self) -> bool:
        """Whether there is anything to stream."""
        return bool(self._stream.streams)

    def turn(self) -> AbstractContextManager[None]:
        """Return a context in which no other epoch runs."""
        return self._stream.turn()

    def wait(self, stop: threading.Event) -> bool:
        """Look after the query for a moment; return whether it has ended."""
        if not self._runs:
            if not self._attempts.is_due:
                self._clock.wait(min(_STEP, self._attempts.wait_seconds), stop)
                return False
            return self._start()
        try:
            ended = self._stream.wait(_STEP)
        except Outage as error:
            self._restart(error)
            return False
        if self._attempts.error is not None and self._stream.progress is not None:
            self._failures.succeeded("query", self._name)
        return ended

    def _start(self) -> bool:
        try:
            self._begin(self._stream)
            self._runs = True
        except Outage as error:
            self._restart(error)
        return False

    def _restart(self, error: Outage) -> None:
        self._failures.failed("query", self._name, error)
        self._stream.stop()
        self._stream, self._runs = self._make(), False

    def stop(self) -> None:
        """Stop the query after the epoch that runs, if any."""
        self._stream.stop()
