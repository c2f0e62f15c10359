"""All sinks of a pipeline: each is written on its own.

A sink that fails delays neither the others nor the epochs. It is tried again with growing waits
(retries.py), and then catches up from the changes that the state retains.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.failures import Failures
from tidelog.spark.retries import Attempts
from tidelog.spark.sink_run import SinkRun

if TYPE_CHECKING:
    from tidelog.spark.placements import Placement


class SinkGroup:
    """The sinks of a pipeline, and when each is tried again."""

    def __init__(
        self, sinks: Sequence[SinkRun], retry: Retry, failures: Failures, clock: Clock
    ) -> None:
        self.sinks = sinks
        self._failures, self._clock = failures, clock
        self._spark: Any = None
        self._started: set[str] = set()
        self._attempts: dict[str, Attempts] = {}
        for sink in sinks:
            own = Retry(
                retry.times if sink.spec.retry is None else sink.spec.retry,
                retry.seconds if sink.spec.retry_seconds is None else sink.spec.retry_seconds,
            )
            self._attempts[sink.name] = failures.of("sink", sink.name, own)

    def start(self, spark: Any) -> None:
        """Prepare for writing. Wrong usage is an error; an unavailable target is tried again."""
        self._spark = spark
        self._started.clear()
        for sink in self.sinks:
            try:
                self._start(sink)
            except UsageError:
                raise
            except Exception as error:
                self._failures.failed("sink", sink.name, error)

    def begin_at(self, epoch: int) -> None:
        """Let new triggers begin after an epoch."""
        for sink in self.sinks:
            sink.begin_at(epoch)

    def _start(self, sink: SinkRun) -> None:
        if sink.name not in self._started:
            sink.start(self._spark)
            self._started.add(sink.name)

    def write(self, placement: Placement, *, tables: bool = True) -> int:
        """Write missing epochs, except to sinks that wait for their next try; return the rows.

        Without `tables`, write changes only.
        """
        return sum(
            self._write(sink, placement)
            for sink in self.sinks
            if (tables or not sink.is_table) and self._attempts[sink.name].is_due
        )

    def _write(self, sink: SinkRun, placement: Placement) -> int:
        try:
            self._start(sink)
            rows = sink.catch_up(placement)
        except Exception as error:  # of Spark, of a target, or of a user's function
            self._failures.failed("sink", sink.name, error)
            return 0
        self._failures.succeeded("sink", sink.name)
        return rows

    @property
    def is_due(self) -> bool:
        """Whether a sink that has failed is to be tried again now."""
        return any(a.error is not None and a.is_due for a in self._attempts.values())

    def write_again(self, placement: Placement, view: str | None) -> dict[str, int]:
        """Rewrite the tables of all views, or of one; return the rows by sink."""
        return {
            sink.name: sink.write_again(placement)
            for sink in self.sinks
            if sink.is_table and view in (None, sink.view)
        }

    def finish(self, placement: Placement, stop: threading.Event) -> int:
        """Write to all sinks; retry those that fail as often as declared, unless `stop` is set.

        Returns the number of rows.
        """
        written = self.write(placement)
        while not stop.is_set():
            waiting = [
                attempts
                for attempts in self._attempts.values()
                if attempts.error is not None and not attempts.is_exhausted
            ]
            if not waiting:
                break
            self._clock.wait(min(attempts.wait_seconds for attempts in waiting), stop)
            written += self._again(placement)
        return written

    def _again(self, placement: Placement) -> int:
        written = 0
        for sink in self.sinks:
            attempts = self._attempts[sink.name]
            if attempts.error is not None and not attempts.is_exhausted and attempts.is_due:
                written += self._write(sink, placement)
        return written
