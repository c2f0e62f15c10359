"""Sources without a stream: when each is read, and what happens if it cannot be.

A source that is unavailable is tried again with growing waits (retries.py), while the others
continue. It is never taken for an empty table: its relation stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.failures import Failures
from tidelog.spark.retries import Attempts, Outage
from tidelog.spark.sources import Batch, PipelineSource

Polled = list[tuple[PipelineSource, Batch]]


class Polling:
    """Polls sources, and tries those again that fail."""

    def __init__(self, retry: Retry, failures: Failures, clock: Clock) -> None:
        self._retry, self._failures, self._clock = retry, failures, clock

    def _of(self, source: PipelineSource) -> Attempts:
        return self._failures.of("source", source.name, self._retry)

    def due(
        self,
        spark: Any,
        sources: Iterable[PipelineSource],
        offsets: Callable[[str], Mapping[str, str]],
        *,
        once: bool = False,
    ) -> Polled:
        """Return what is new in the sources that are due."""
        found: Polled = []
        for source in sources:
            attempts = self._of(source)
            failing = attempts.error is not None
            if once and failing and attempts.is_exhausted:
                continue
            if attempts.is_due if failing else source.is_due():
                try:
                    batch = source.poll(spark, offsets(source.name))
                except Outage as error:
                    self._failures.failed("source", source.name, error)
                    continue
                if batch is None:
                    self.succeeded([source])
                else:
                    found.append((source, batch))
        return found

    def failed(self, sources: Iterable[PipelineSource], error: BaseException) -> None:
        """Note that sources could not be read."""
        for source in sources:
            self._of(source)
            self._failures.failed("source", source.name, error)

    def succeeded(self, sources: Iterable[PipelineSource]) -> None:
        """Note that sources were read."""
        for source in sources:
            self._of(source)
            self._failures.succeeded("source", source.name)

    def wait(self, sources: Sequence[PipelineSource], stop: threading.Event) -> bool:
        """Wait until a source that fails is to be tried again; return whether there is one."""
        waiting = [self._of(source) for source in sources]
        waiting = [a for a in waiting if a.error is not None and not a.is_exhausted]
        if waiting:
            self._clock.wait(min(attempts.wait_seconds for attempts in waiting), stop)
        return bool(waiting)
