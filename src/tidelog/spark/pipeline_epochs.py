"""The epochs of a pipeline: read by Spark, applied by the placement, written to the sinks.

One Spark job reads an epoch. Rows that do not fit are quarantined. The rest is committed together
with the offsets of the sources and the ids of query and batch. Then the sinks are written. If the
process dies, the epoch is either committed, and sinks catch up at the next start, or Spark runs
the batch again.

A source that cannot be read does not hold up the others: the epoch is tried without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.epoch_changes import Applied, EpochChanges
from tidelog.spark.epoch_done import EpochDone, numbers_of
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.file_log import files_of_batch
from tidelog.spark.job_counts import counted_jobs
from tidelog.spark.jobs import describe
from tidelog.spark.pipeline_parts import PipelineParts
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Placement
from tidelog.spark.polling import Polled
from tidelog.spark.retries import Outage
from tidelog.spark.sources import FrameSource, PipelineSource
from tidelog.spark.stream import QUERY, batch_of, is_committed, query_offsets
from tidelog.spark.union import TaggedFrame

Note = Callable[[EpochDone | None], None]
"""Is called with what an epoch did; with None if there was none."""


class PipelineEpochs:
    """Does the epochs of a pipeline."""

    def __init__(self, parts: PipelineParts) -> None:
        self._parts = parts
        self._sources, self._opened = parts.sources, parts.opened
        self._polling = parts.polling
        self.is_busy = False
        """Whether an epoch is under way, from the reading of its files on."""
        self.watchers: list[Callable[[EpochDone], object]] = []
        """Functions that are called after each epoch."""

    def micro_batch(
        self,
        stream: TaggedFrame,
        query: str,
        batch: int,
        streams: Sequence[PipelineSource],
        *,
        tables: bool,
    ) -> EpochDone | None:
        """Do the epoch of a micro-batch; None if it was committed before."""
        self.is_busy = True
        try:
            return self._micro_batch(stream, query, batch, streams, tables=tables)
        finally:
            self.is_busy = False

    def _micro_batch(
        self,
        stream: TaggedFrame,
        query: str,
        batch: int,
        streams: Sequence[PipelineSource],
        *,
        tables: bool,
    ) -> EpochDone | None:
        begun = time.perf_counter()
        if is_committed(self._opened().offsets(QUERY), query, batch):
            return None
        spark = stream.frame.sparkSession
        tags = [tag for tag, source in enumerate(streams) if source.spec.is_files]
        files = files_of_batch(self._parts.checkpoint, batch, tags) if tags else {}
        batches = [(s, s.arrived(spark, files.get(tag, ()))) for tag, s in enumerate(streams)]
        if any(part.frame is not None for _, found in batches for part in found.parts):
            # The frame of a micro-batch is read whole or not at all, and by one schema a source.
            batches = [(source, source.apart(spark, found)) for source, found in batches]
        addresses = [address for found in files.values() for address in found]
        polled = self.due(spark, [source for source in self._sources if source not in streams])

        def epoch_of(more: Polled) -> EpochDone | None:
            order = [source.name for source in self._sources]
            all_ = sorted([*batches, *more], key=lambda pair: order.index(pair[0].name))
            epoch = EpochInput(spark, all_, stream, streams, addresses)
            ids = query_offsets(query, batch)
            return self._epoch(spark, epoch, tables=tables, query=ids, begun=begun)

        sources = [source for source, _ in polled]
        try:
            done = epoch_of(polled)
        except Outage as error:
            if not polled:
                raise
            for source in sources:
                source.missed()
            done = epoch_of([])  # if this can be read, it is the others that cannot
            self._polling.failed(sources, error)
        else:
            self._polling.succeeded(sources)
        return done

    def due(self, spark: Any, sources: Sequence[PipelineSource], *, once: bool = False) -> Polled:
        """Return what is new in the sources without a stream that are due."""
        return self._polling.due(spark, sources, self._opened().offsets, once=once)

    def polled(
        self, spark: Any, batches: Polled, note: Note, *, tables: bool
    ) -> list[PipelineSource]:
        """Do an epoch with sources that were polled; one for each if that fails.

        Returns the sources that could be read.
        """
        sources = [source for source, _ in batches]
        self.is_busy = True
        try:
            note(self._epoch(spark, EpochInput(spark, batches), tables=tables))
        except Outage as error:
            if len(batches) == 1:
                self._polling.failed(sources, error)
                return []
            apart = [self.polled(spark, [one], note, tables=tables) for one in batches]
            return [source for taken in apart for source in taken]
        finally:
            self.is_busy = False
        self._polling.succeeded(sources)
        return sources

    def take(self, source_name: str, frame: Any, number: int, query: str) -> EpochDone | None:
        """Do an epoch with a numbered micro-batch of a source; None if it was committed before."""
        for source in self._sources:
            if source.name == source_name and isinstance(source, FrameSource):
                batch = source.batch(frame, number, query, self._opened().offsets(source.name))
                if batch is None:
                    return None
                spark = frame.sparkSession
                return self._epoch(spark, EpochInput(spark, [(source, batch)]), tables=True)
        raise UsageError(f"there is no source `{source_name}` that takes frames")

    def _epoch(
        self,
        spark: Any,
        epoch: EpochInput,
        *,
        tables: bool,
        query: dict[str, str] | None = None,
        begun: float | None = None,
    ) -> EpochDone | None:
        """Do an epoch; None if it changes nothing. Without `tables`, write changes only."""
        begun = time.perf_counter() if begun is None else begun
        placement = self._opened()
        title = f"tidelog {self._parts.name} · epoch {placement.epoch + 1} · apply"
        with counted_jobs(spark, f"tidelog {self._parts.name}") as jobs:
            changes = EpochChanges()
            for source, batch in epoch.batches:
                known = placement.offsets(source.name)
                changes.offsets[source.name] = {
                    item: new for item, new in batch.offsets.items() if known.get(item) != new
                }
            if query is not None:
                changes.offsets[QUERY] = query
            with describe(spark, title):
                applied = self._apply(placement, epoch, changes)
            if applied is None:
                return None
            for source, batch in epoch.batches:
                source.started |= bool(batch.parts)
            written = self._parts.group.write(placement, tables=tables)
        number = None if query is None else batch_of(query)
        done = numbers_of(epoch, changes, applied, begun, written, jobs, number)
        for watch in self.watchers:
            watch(done)
        return done

    def _apply(
        self, placement: Placement, epoch: EpochInput, changes: EpochChanges
    ) -> Applied | None:
        if isinstance(placement, ShardedPlacement):
            return placement.apply_input(epoch, changes, _unless_rewritten)
        return self._parts.on_driver.apply(placement, epoch, changes, _unless_rewritten)


def _unless_rewritten(epoch: EpochInput) -> None:
    """Raise Outage if a file has changed since the epoch began."""
    rewritten = epoch.rewritten()
    if rewritten:
        # Not read again here: Spark has planned the job with the old length of the file.
        raise Outage(
            f"`{rewritten[0]}` was rewritten while it was read"
            "\n  help: write a file under a name that begins with a dot, then rename it"
        )
