"""The parts of a pipeline that its epochs (pipeline_epochs.py) and its loop use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.driver_epoch import DriverEpochs
from tidelog.spark.failures import Failures
from tidelog.spark.metrics import Metrics
from tidelog.spark.opened_state import OpenedState
from tidelog.spark.polling import Polling
from tidelog.spark.sink_group import SinkGroup
from tidelog.spark.sources import PipelineSource


@dataclass(frozen=True)
class PipelineParts:
    """The parts of a pipeline."""

    name: str
    sources: Sequence[PipelineSource]
    group: SinkGroup
    """The sinks."""
    opened: OpenedState
    checkpoint: Path
    """The folder in which Spark remembers what the streaming query has read."""
    on_driver: DriverEpochs
    """Does epochs in the placement `driver`."""
    polling: Polling
    """Reads the sources without a stream."""
    retry: Retry
    clock: Clock
    failures: Failures
    metrics: Metrics
