"""When the epochs of a pipeline take place: until all is read, or until the pipeline is stopped.

An epoch is a micro-batch of one Spark streaming query over all streams (stream.py), together with
those sources without a stream that are due. A pipeline without streams polls its sources.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tidelog.spark.frames import is_remote
from tidelog.spark.pipeline_epochs import Note, PipelineEpochs
from tidelog.spark.pipeline_parts import PipelineParts
from tidelog.spark.restarting import RestartedStream
from tidelog.spark.source_files import FileSource
from tidelog.spark.sources import PipelineSource
from tidelog.spark.stream import QUERY, EpochStream, check_connect
from tidelog.spark.union import TaggedFrame


class PipelineLoop:
    """Runs the epochs of a pipeline."""

    def __init__(self, parts: PipelineParts, epochs: PipelineEpochs) -> None:
        self._parts, self._epochs = parts, epochs
        self._sources, self._opened = parts.sources, parts.opened
        self.stop = threading.Event()
        """Ends the loop after the current epoch when it is set."""

    def once(self, spark: Any, note: Note) -> None:
        """Run the query until it has read everything; read sources without a stream once."""
        stream = self._stream_of(spark)
        try:
            if stream.streams and not self.stop.is_set():
                stream.start(self._each_batch(stream, note, tables=False), None)
            while not self.stop.is_set() and not stream.wait():
                pass
        finally:
            stream.stop()
        # Sources that no micro-batch has read, and the remaining files if there are many.
        left = self._polled_sources(stream)
        while not self.stop.is_set():
            batches = self._epochs.due(spark, left, once=True)
            if batches:
                taken = self._epochs.polled(spark, batches, note, tables=False)
                left = [s for s in left if s not in taken or isinstance(s, FileSource)]
            elif not self._parts.polling.wait(left, self.stop):
                break

    def until_stopped(self, spark: Any, note: Note, poll_seconds: float) -> None:
        """Keep the query running, and poll the sources without a stream."""
        parts = self._parts

        def begin(stream: EpochStream) -> None:
            stream.start(self._each_batch(stream, note, tables=True), poll_seconds)

        stream = RestartedStream(
            parts.name, lambda: self._stream_of(spark), begin, parts.retry, parts.failures,
            parts.clock,
        )  # fmt: skip
        polled = self._polled_sources(self._stream_of(spark))
        next_poll = 0.0
        try:
            while not self.stop.is_set():
                if stream.has_streams and stream.wait(self.stop):
                    break
                if not stream.has_streams:
                    self.stop.wait(min(0.2, max(0.0, next_poll - time.monotonic())))
                if polled and time.monotonic() >= next_poll:
                    next_poll = time.monotonic() + poll_seconds
                    with stream.turn():
                        batches = self._epochs.due(spark, polled)
                        if batches:
                            self._epochs.polled(spark, batches, note, tables=True)
                            next_poll = 0.0
                if parts.group.is_due:
                    with stream.turn():
                        parts.group.write(self._opened())
                    parts.metrics.write()
        finally:
            stream.stop()

    def _stream_of(self, spark: Any) -> EpochStream:
        placement = self._opened()
        streams = [source for source in self._sources if source.is_stream]
        committed = placement.offsets(QUERY)
        if is_remote(spark):
            check_connect(streams, bool(committed))
            streams = []  # files are listed and read in batches there, by Spark
        stream = EpochStream(spark, self._parts.name, streams, self._parts.checkpoint)
        has_rows = any(placement.offsets(source.name) for source in streams)
        stream.check(committed, has_rows)
        return stream

    def _polled_sources(self, stream: EpochStream) -> list[PipelineSource]:
        return [source for source in self._sources if source not in stream.streams]

    def _each_batch(
        self, stream: EpochStream, note: Note, *, tables: bool
    ) -> Callable[[Any, str, int], None]:
        return lambda frame, query, batch: note(
            self._epochs.micro_batch(
                TaggedFrame(frame, stream.columns), query, batch, stream.streams, tables=tables
            )
        )
