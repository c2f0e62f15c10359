"""The pipeline: epochs from sources to sinks.

An epoch is a micro-batch of one Spark streaming query over all streams (stream.py), together with
those sources without a stream that are due. One Spark job reads it. Rows that do not fit are
quarantined. The rest is committed together with the offsets of the sources and the ids of query and
batch. Then the sinks are written. If the process dies, the epoch is either committed, and sinks
catch up at the next start, or Spark runs the batch again.

A source or a sink that is away does not stop the others: see polling.py, restarting.py and
sink_group.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.durable.lock import WriterLock
from tidelog.errors import UsageError, did_you_mean
from tidelog.io.offsets import RowCounts
from tidelog.logic.program import Program
from tidelog.sharding.key_relations import Upsert, with_upserts
from tidelog.spark.declared import Declaration, Sink, Source, named, one_of
from tidelog.spark.driver_epoch import DriverEpochs
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.epoch_done import EpochDone, numbers_of
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.failures import Failures, print_report
from tidelog.spark.file_log import files_of_batch
from tidelog.spark.frames import is_remote
from tidelog.spark.job_counts import counted_jobs
from tidelog.spark.jobs import describe
from tidelog.spark.metrics import Metrics, PipelineState
from tidelog.spark.metrics_server import MetricsServer
from tidelog.spark.pipeline_file import PipelineFile, read_pipeline_file
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Placement, choose, existing, needs_driver
from tidelog.spark.polling import Polled, Polling
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.replaying import Replay, Replayed
from tidelog.spark.restarting import RestartedStream
from tidelog.spark.retained_time import RetainedTime
from tidelog.spark.retention import Retention
from tidelog.spark.retries import Clock, Outage, Retry
from tidelog.spark.rule_errors import ON_RULE_ERROR
from tidelog.spark.sink_group import SinkGroup
from tidelog.spark.sinks import SinkRun, SinkState, writer
from tidelog.spark.source_files import FileSource
from tidelog.spark.sources import FrameSource, PipelineSource, pipeline_source
from tidelog.spark.state_folder import CHECKPOINT, FAILURES, QUARANTINE, SINKS, lock
from tidelog.spark.stream import (
    QUERY,
    EpochStream,
    batch_of,
    check_connect,
    is_committed,
    query_offsets,
)
from tidelog.spark.union import TaggedFrame


class Pipeline:
    """Keeps sinks up to date while sources change.

    `program` is the text of a program, a Path to one, or a checked `Program`; `state` is a folder.
    """

    def __init__(
        self,
        program: str | Path | Program,
        *,
        state: str | Path,
        sources: Sequence[Source],
        sinks: Sequence[Sink] = (),
        name: str = "pipeline",
        placement: str = "auto",
        shards: int | None = None,
        on_program_change: str = "refuse",
        retain_epochs: int = 1000,
        on_rule_error: str = "fail",
        retry: int = 3,
        retry_seconds: float = 1.0,
        metrics: str | Path = "",
        metrics_port: int | None = None,
        clock: Clock | None = None,
        report: Callable[[str], object] = print_report,
    ) -> None:
        """Declare a pipeline. `report` is called with a line for each failure of a part."""
        self.name = name
        self._own_program = Program.of(program)
        self._state = Path(state)
        self.declaration = Declaration(
            self._own_program.text, self._own_program.name, str(self._state.absolute()),
            tuple(sources), tuple(sinks),
            {
                "name": name, "placement": placement, "shards": shards,
                "on_program_change": on_program_change, "retain_epochs": retain_epochs,
                "on_rule_error": on_rule_error, "retry": retry, "retry_seconds": retry_seconds,
                "metrics": str(metrics), "metrics_port": metrics_port,
            },
        )  # fmt: skip
        one_of("on_rule_error", on_rule_error, ON_RULE_ERROR)
        only = needs_driver(on_rule_error)
        if only and placement == "auto" and shards is None and existing(self._state) is None:
            placement = "driver"
        self.chosen = choose(self._own_program, self._state, placement, shards, sources)
        if only and self.chosen.name != "driver":
            raise UsageError(
                f'{only} needs placement = "driver", and this one is {self.chosen.name}'
            )
        self.placement = self.chosen.name
        self._settings = (on_program_change, retain_epochs)
        self._sources = self._declared_sources(sources)
        self._upserts = tuple(source.upsert for source in self._sources if source.upsert)
        self._keyed_program = with_upserts(self._own_program, self._upserts)
        """The program with the relations that upserts need."""
        self._program = with_offsets(self._keyed_program)
        self._retention = [
            Retention(source, time, self._program.records)
            for source in self._sources
            if (time := RetainedTime.of(source)) is not None
        ]
        names = named([s.name or f"{s.view}-{s.what}-{s.format}" for s in sinks])
        self._sinks: list[SinkRun] = []
        for sink_name, sink in zip(names, sinks, strict=True):
            relation = self._relation(sink.view, "sink", "view")
            wrote = SinkState(self._state / SINKS, sink_name, sink, self._program.text)
            written = writer(sink, relation, self._program.records)
            self._sinks.append(SinkRun(sink_name, written, wrote, name))
        self._quarantine = Quarantine(self._state / QUARANTINE)
        self._here = DriverEpochs(self._quarantine, self._retention, on_rule_error)
        self._replay = Replay(self._state / QUARANTINE, self._sources, self._program.records)
        self._clock = clock or Clock()
        self._retry = Retry(retry, retry_seconds)
        self.failures = Failures(self._state / FAILURES, self._clock, report)
        self._group = SinkGroup(self._sinks, self._retry, self.failures, self._clock)
        self._polling = Polling(self._retry, self.failures, self._clock)
        self.metrics = Metrics(name, self._now, Path(metrics) if metrics else None)
        self._metrics_port = metrics_port
        self._server: MetricsServer | None = None
        self.watchers: list[Callable[[EpochDone], object]] = [self.metrics.add]
        """Functions that are called after each epoch."""
        self._checkpoint = (self._state / CHECKPOINT).absolute()
        self._placement: Placement | None = None
        self._lock: WriterLock | None = None
        self._spark: Any = None
        self._stop = threading.Event()

    @staticmethod
    def from_file(
        path: str | Path | PipelineFile,
        *,
        placement: str | None = None,
        shards: int | None = None,
    ) -> Pipeline:
        """Return the pipeline that a file declares."""
        spec = path if isinstance(path, PipelineFile) else read_pipeline_file(path)
        try:
            return Pipeline(
                spec.program,
                state=spec.state,
                sources=spec.sources,
                sinks=spec.sinks,
                name=spec.name,
                placement=placement or spec.placement,
                shards=shards or spec.shards,
                on_program_change=spec.on_program_change,
                retain_epochs=spec.retain_epochs,
                on_rule_error=spec.on_rule_error,
                retry=spec.retry,
                retry_seconds=spec.retry_seconds,
                metrics=spec.metrics,
                metrics_port=spec.metrics_port,
            )
        except UsageError as error:
            raise UsageError(f"{spec.file}: {error}") from None

    def _declared_sources(self, sources: Sequence[Source]) -> list[PipelineSource]:
        result = []
        names = named([spec.name or spec.relation for spec in sources])
        for name, spec in zip(names, sources, strict=True):
            relation = self._relation(spec.relation, "source", "relation")
            result.append(pipeline_source(spec, name, relation, self._own_program.records))
        for source in result:
            others = [s for s in result if s.relation is source.relation and s is not source]
            if others and source.spec.retain:
                raise UsageError(
                    f"source `{source.name}` has `retain`, so `{others[0].name}` cannot add rows to"
                    f" `{source.relation.name}`, too"
                )
            if others and source.upsert is not None:
                raise UsageError(
                    f"source `{source.name}` replaces rows of `{source.relation.name}` by key, so"
                    f" `{others[0].name}` cannot add rows to it"
                    "\n  help: a relation with a source that has `keys` has no other source"
                )
            if others and source.spec.mode == "snapshot":
                raise UsageError(
                    f"source `{source.name}` is a snapshot of `{source.relation.name}`, so"
                    f" `{others[0].name}` cannot add rows to it"
                    '\n  help: a relation with a source of mode = "snapshot" has no other source'
                )
        return result

    def _relation(self, name: str, kind: str, key: str) -> Any:
        relations = self._own_program.relations
        if name not in relations:
            hint = did_you_mean(name, relations)
            raise UsageError(
                f"a {kind} names the {key} `{name}`, which the program does not declare"
                + (f"\n  help: {hint}" if hint else "")
            )
        return relations[name]

    # --- running ---

    @property
    def database(self) -> Any:
        """The database with the views; there is one after the first epoch."""
        placement = self._opened()
        if not isinstance(placement, DriverPlacement):
            raise UsageError(
                "a sharded pipeline has no single database\n  help: `table` returns a view"
            )
        return placement.database

    def table(self, view: str) -> Any:
        """Return the rows of a view as an Arrow table."""
        self._relation(view, "question", "view")
        return self._opened().table(view)

    def frame(self, view: str) -> Any:
        """Return a view as a DataFrame, with a partition for each shard if there are shards.

        It shows the last epoch; read it before the next one.
        """
        self._relation(view, "question", "view")
        placement = self._opened()
        if self._spark is None:
            raise UsageError("there is no session yet\n  help: call `start` or `run` first")
        if placement.epoch < 0:
            raise UsageError(f"`{view}` has no rows yet: there was no epoch")
        return placement.frame(self._spark, view)

    @property
    def epoch(self) -> int:
        """The last committed epoch; -1 before the first one."""
        return self._opened().epoch

    def totals(self) -> RowCounts:
        """Return the numbers of rows of all sources, over all epochs."""
        return sum(self._opened().counts().values(), start=RowCounts())

    def overlooked(self) -> list[str]:
        """Say which files were never read, or have changed since: they are not read again."""
        found = []
        for source in self._sources:
            if isinstance(source, FileSource):
                offsets = self._opened().offsets(source.name)
                for what, names in (
                    (
                        "changed after they were read, and are not read again",
                        source.changed(offsets),
                    ),
                    ("were removed before they were read", source.removed(offsets)),
                ):
                    if names:
                        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                        shown = f"{', '.join(names[:5])}{more}"
                        found.append(f"source `{source.name}`: files {what}: {shown}")
        return found

    @property
    def sources(self) -> Sequence[PipelineSource]:
        """The sources."""
        return self._sources

    @property
    def sinks(self) -> Sequence[SinkRun]:
        """The sinks."""
        return self._sinks

    def _now(self) -> PipelineState:
        placement = self._opened()
        return PipelineState(
            placement.epoch,
            dict(placement.counts()),
            {sink.name: sink.epoch for sink in self._sinks},
            [(failure.kind, failure.name) for failure in self.failures.now()],
            dict(self.failures.counts),
        )

    @property
    def upserts(self) -> Sequence[Upsert]:
        """The relations whose rows are replaced by key."""
        return self._upserts

    def run(
        self,
        spark: Any,
        *,
        once: bool = True,
        poll_seconds: float = 1.0,
        watch: Callable[[EpochDone], object] | None = None,
    ) -> list[EpochDone]:
        """Read all new rows, in one or more epochs, and return; or continue until `stop`.

        `watch` is called after each epoch. Returns what the last epochs did, 1000 at most. With
        `once`, whole tables are written at the end: they count for the last epoch.
        """
        done: list[EpochDone] = []

        def note(epoch: EpochDone | None) -> None:
            if epoch is not None:
                done[:] = [*done[-999:], epoch]
                if watch is not None:
                    watch(epoch)

        self.start(spark)
        if once:
            self._run_once(spark, note)
        else:
            self._run_on(spark, note, poll_seconds)
        try:
            self._finish(spark, done)
        finally:
            self.metrics.write()
        self.failures.check()
        return done

    def _stream_of(self, spark: Any) -> EpochStream:
        placement = self._opened()
        streams = [source for source in self._sources if source.is_stream]
        committed = placement.offsets(QUERY)
        if is_remote(spark):
            check_connect(streams, bool(committed))
            streams = []  # files are listed and read in batches there, by Spark
        stream = EpochStream(spark, self.name, streams, self._checkpoint)
        has_rows = any(placement.offsets(source.name) for source in streams)
        stream.check(committed, has_rows)
        return stream

    def _polled_sources(self, stream: EpochStream) -> list[PipelineSource]:
        return [source for source in self._sources if source not in stream.streams]

    def _run_once(self, spark: Any, note: _Note) -> None:
        """Wait until the query has read all that there is; read sources without a stream once."""
        stream = self._stream_of(spark)
        try:
            if stream.streams and not self._stop.is_set():
                stream.start(self._each_batch(stream, note, tables=False), None)
            while not self._stop.is_set() and not stream.wait():
                pass
        finally:
            stream.stop()
        # Those that no micro-batch has read; and the rest of files, if there are many.
        left = self._polled_sources(stream)
        while not self._stop.is_set():
            batches = self._due(spark, left, once=True)
            if batches:
                taken = self._polled_epochs(spark, batches, note, tables=False)
                left = [s for s in left if s not in taken or isinstance(s, FileSource)]
            elif not self._polling.wait(left, self._stop):
                break

    def _run_on(self, spark: Any, note: _Note, poll_seconds: float) -> None:
        """Keep the query running, and poll the sources without a stream, until `stop`."""

        def begin(stream: EpochStream) -> None:
            stream.start(self._each_batch(stream, note, tables=True), poll_seconds)

        stream = RestartedStream(
            self.name, lambda: self._stream_of(spark), begin, self._retry, self.failures,
            self._clock,
        )  # fmt: skip
        polled = self._polled_sources(self._stream_of(spark))
        next_poll = 0.0
        try:
            while not self._stop.is_set():
                if stream.has_streams and stream.wait(self._stop):
                    break
                if not stream.has_streams:
                    self._stop.wait(min(0.2, max(0.0, next_poll - time.monotonic())))
                if polled and time.monotonic() >= next_poll:
                    next_poll = time.monotonic() + poll_seconds
                    with stream.turn():
                        batches = self._due(spark, polled)
                        if batches:
                            self._polled_epochs(spark, batches, note, tables=True)
                            next_poll = 0.0
                if self._group.is_due:
                    with stream.turn():
                        self._group.write(self._opened())
                    self.metrics.write()
        finally:
            stream.stop()

    def _each_batch(
        self, stream: EpochStream, note: _Note, *, tables: bool
    ) -> Callable[[Any, str, int], None]:
        return lambda frame, query, batch: note(
            self._micro_batch(
                TaggedFrame(frame, stream.columns), query, batch, stream.streams, tables=tables
            )
        )

    def stop(self) -> None:
        """Let `run` return after the current epoch."""
        self._stop.set()

    def start(self, spark: Any) -> None:
        """Open the state, and write the epochs that sinks lack."""
        placement = self._opened()
        self._spark = spark
        placement.start(spark)
        self._quarantine.remove_from(placement.epoch + 1)
        for source in self._sources:
            source.started = bool(placement.offsets(source.name))
        if self._metrics_port is not None and self._server is None:
            self._server = MetricsServer(self._metrics_port, self.metrics.text)
        self.failures.clear()
        self._replay.finish(placement)
        self._group.start(spark)
        if placement.epoch >= 0:
            self._group.write(placement)

    def replay(self, spark: Any, source: str | None = None) -> Replayed:
        """Do an epoch with the rows of the quarantine that fit now, of all sources or of one."""
        self.start(spark)
        placement = self._opened()
        done = self._replay.run(spark, placement, source)
        self._finish(spark, [])
        self.failures.check()
        return done

    def write_again(self, view: str | None = None) -> dict[str, int]:
        """Rewrite the tables of all views, or of one; return the rows by sink."""
        return self._group.write_again(self._opened(), view)

    def _due(self, spark: Any, sources: Sequence[PipelineSource], *, once: bool = False) -> Polled:
        """Return what is new in the sources without a stream that are due."""
        return self._polling.due(spark, sources, self._opened().offsets, once=once)

    def _polled_epochs(
        self, spark: Any, batches: Polled, note: _Note, *, tables: bool
    ) -> list[PipelineSource]:
        """Do an epoch with sources that were polled; one for each if that fails.

        Returns the sources that could be read.
        """
        sources = [source for source, _ in batches]
        try:
            note(self._epoch(spark, EpochInput(spark, batches), tables=tables))
        except Outage as error:
            if len(batches) == 1:
                self._polling.failed(sources, error)
                return []
            apart = [self._polled_epochs(spark, [one], note, tables=tables) for one in batches]
            return [source for taken in apart for source in taken]
        self._polling.succeeded(sources)
        return sources

    def _micro_batch(
        self,
        stream: TaggedFrame,
        query: str,
        batch: int,
        streams: Sequence[PipelineSource],
        *,
        tables: bool,
    ) -> EpochDone | None:
        """Do the epoch of a micro-batch; None if it was committed before."""
        begun = time.perf_counter()
        placement = self._opened()
        if is_committed(placement.offsets(QUERY), query, batch):
            return None
        spark = stream.frame.sparkSession
        tags = [tag for tag, source in enumerate(streams) if source.spec.is_files]
        files = files_of_batch(self._checkpoint, batch, tags) if tags else {}
        batches = [(s, s.arrived(spark, files.get(tag, ()))) for tag, s in enumerate(streams)]
        if any(part.frame is not None for _, found in batches for part in found.parts):
            # The frame of a micro-batch is read whole or not at all, and by one schema a source.
            batches = [(source, source.apart(spark, found)) for source, found in batches]
        addresses = [address for found in files.values() for address in found]
        polled = self._due(spark, [source for source in self._sources if source not in streams])

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

    def take(self, source_name: str, frame: Any, number: int, query: str = "") -> EpochDone | None:
        """Do an epoch with a numbered micro-batch of a source; None if it was committed before."""
        for source in self._sources:
            if source.name == source_name and isinstance(source, FrameSource):
                batch = source.batch(frame, number, query, self._opened().offsets(source.name))
                if batch is None:
                    return None
                spark = frame.sparkSession
                done = self._epoch(spark, EpochInput(spark, [(source, batch)]), tables=True)
                if self.failures.errors("sink"):  # no later batch may come to try them again
                    self._group.finish(self._opened(), self._stop)
                    self.failures.check()
                return done
        raise UsageError(f"there is no source `{source_name}` that takes frames")

    # --- an epoch ---

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
        title = f"tidelog {self.name} · epoch {placement.epoch + 1} · apply"
        with counted_jobs(spark, f"tidelog {self.name}") as jobs:
            changes = EpochChanges()
            for source, batch in epoch.batches:
                known = placement.offsets(source.name)
                changes.offsets[source.name] = {
                    item: new for item, new in batch.offsets.items() if known.get(item) != new
                }
            if query is not None:
                changes.offsets[QUERY] = query
            with describe(spark, title):
                if isinstance(placement, ShardedPlacement):
                    applied = placement.apply_input(epoch, changes, self._unless_rewritten)
                else:
                    assert isinstance(placement, DriverPlacement)
                    applied = self._here.apply(placement, epoch, changes, self._unless_rewritten)
            if applied is None:
                return None
            for source, batch in epoch.batches:
                source.started |= bool(batch.parts)
            written = self._group.write(placement, tables=tables)
        number = None if query is None else batch_of(query)
        done = numbers_of(epoch, changes, applied, begun, written, jobs, number)
        for watch in self.watchers:
            watch(done)
        return done

    def _unless_rewritten(self, epoch: EpochInput) -> None:
        rewritten = epoch.rewritten()
        if rewritten:
            # Not read again here: Spark has planned the job with the old length of the file.
            raise Outage(
                f"`{rewritten[0]}` was rewritten while it was read"
                "\n  help: write a file under a name that begins with a dot, then rename it"
            )

    def _finish(self, spark: Any, done: list[EpochDone]) -> None:
        """Write what sinks still lack; it counts for the last epoch."""
        placement = self._opened()
        is_away = bool(self.failures.errors("source"))  # which says nothing about its rows
        if placement.epoch < 0 and not self._stop.is_set() and not is_away:
            placement.apply(EpochChanges())  # no rows: the views have only program facts
        if placement.epoch < 0:
            return
        with counted_jobs(spark, f"tidelog {self.name}") as jobs:
            written = self._group.finish(placement, self._stop)
        if done:
            last = done[-1]
            done[-1] = replace(
                last,
                written=last.written + written,
                jobs=last.jobs + jobs.jobs,
                tasks=last.tasks + jobs.tasks,
            )

    def _opened(self) -> Placement:
        if self._lock is None:
            self._lock = lock(self._state)
        if self._placement is None:
            chosen, (on_program_change, retain_epochs) = self.chosen, self._settings
            if chosen.name == "sharded":
                views = [sink.view for sink in self._sinks]
                self._placement = ShardedPlacement(
                    self._keyed_program, chosen.folder, chosen.sides, retain_epochs, views,
                    self._state / QUARANTINE, upserts=self._upserts,
                )  # fmt: skip
            else:
                self._placement = DriverPlacement(
                    self._program, chosen.folder, on_program_change, retain_epochs,
                    upserts=self._upserts,
                )  # fmt: skip
        return self._placement

    def close(self) -> None:
        """Sync everything to disk, and release the lock."""
        if self._placement is not None:
            self._placement.close()
            self._placement = None
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_Note = Callable[[EpochDone | None], None]
