"""A listener of Spark's streaming queries that also knows the epochs of a pipeline.

Spark reports each micro-batch on its listener bus: offsets, rates, durations. `MetricsListener`
adds what the epoch did with it: rows accepted and quarantined, rows out, lag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.spark.epoch_done import EpochDone
from tidelog.spark.pipeline import Pipeline

try:
    from pyspark.sql.streaming import StreamingQueryListener
except ImportError:  # all modules can be imported without PySpark
    StreamingQueryListener = object

_KEPT = 100  # epochs whose progress has not been reported yet


class MetricsListener(StreamingQueryListener):  # type: ignore[misc]
    """Calls a function with each epoch of a pipeline, and Spark's progress of its micro-batch.

    Register it with `spark.streams.addListener`. The progress comes a little after the epoch. An
    epoch without a micro-batch, of tables that are polled, has none: the progress is None then.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[EpochDone, Any | None], object]) -> None:
        self._tell = tell
        self._name = f"tidelog {pipeline.name}"
        self._epochs: dict[int, EpochDone] = {}
        pipeline.watchers.append(self._note)

    def _note(self, done: EpochDone) -> None:
        if done.batch is None:
            self._tell(done, None)
            return
        self._epochs[done.batch] = done
        for batch in list(self._epochs)[:-_KEPT]:
            del self._epochs[batch]

    def onQueryProgress(self, event: Any) -> None:
        """Report an epoch."""
        progress = event.progress
        if progress.name == self._name and (done := self._epochs.pop(progress.batchId, None)):
            self._tell(done, progress)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""
