"""The pipeline, as users see it: declared, started, run, read, closed.

What an epoch does is in pipeline_epochs.py; when epochs take place is in pipeline_loop.py. A source
or a sink that is unavailable does not stop the others: see polling.py, restarting.py and
sink_group.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError
from tidelog.io.offsets import RowCounts
from tidelog.logic.program import Program
from tidelog.runtime.retry import Clock, Retry
from tidelog.sharding.key_relations import Upsert, with_upserts
from tidelog.spark.declared import Declaration, Sink, Source, Trigger, one_of
from tidelog.spark.declared_parts import declared_sinks, declared_sources, relation_of
from tidelog.spark.driver_epoch import DriverEpochs
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.epoch_done import EpochDone
from tidelog.spark.failing_rows import ON_RULE_ERROR
from tidelog.spark.failures import Failures, print_report
from tidelog.spark.job_counts import counted_jobs
from tidelog.spark.metrics import Metrics, PipelineState
from tidelog.spark.metrics_server import MetricsServer
from tidelog.spark.opened_state import OpenedState
from tidelog.spark.pipeline_epochs import PipelineEpochs
from tidelog.spark.pipeline_file import PipelineFile, read_pipeline_file
from tidelog.spark.pipeline_loop import PipelineLoop
from tidelog.spark.pipeline_parts import PipelineParts
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placements import choose
from tidelog.spark.polling import Polling
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.replaying import Replay, Replayed
from tidelog.spark.retained_time import RetainedTime
from tidelog.spark.retention import Retention
from tidelog.spark.sink_group import SinkGroup
from tidelog.spark.sink_run import SinkRun
from tidelog.spark.source_files import FileSource
from tidelog.spark.sources import PipelineSource
from tidelog.spark.state_folder import CHECKPOINT, FAILURES, QUARANTINE


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
        triggers: Sequence[Trigger] = (),
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
        sinks = [*sinks, *(trigger.sink() for trigger in triggers)]
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
        self.chosen = choose(self._own_program, self._state, placement, shards, sources)
        self.placement = self.chosen.name
        self._sources = declared_sources(self._own_program, sources)
        self._upserts = tuple(source.upsert for source in self._sources if source.upsert)
        keyed = with_upserts(self._own_program, self._upserts)
        text = with_offsets(keyed).text
        self._sinks = declared_sinks(
            self._own_program, sinks, self._state, name, text,
            migrates=on_program_change == "migrate",
        )  # fmt: skip
        views = [sink.view for sink in self._sinks]
        taken = [sink.view for sink in self._sinks if sink.takes_files]
        self._opened = OpenedState(
            self._state, self.chosen, keyed, views, self._upserts, on_program_change,
            retain_epochs, on_rule_error, taken,
        )  # fmt: skip
        records = self._own_program.records
        retention = [
            Retention(source, time, records)
            for source in self._sources
            if (time := RetainedTime.of(source)) is not None
        ]
        self._quarantine = Quarantine(self._state / QUARANTINE)
        self._replay = Replay(self._state / QUARANTINE, self._sources, records)
        clock, retrying = clock or Clock(), Retry(retry, retry_seconds)
        self.failures = Failures(self._state / FAILURES, clock, report)
        self._group = SinkGroup(self._sinks, retrying, self.failures, clock)
        self.metrics = Metrics(name, self._now, Path(metrics) if metrics else None)
        self._metrics_port = metrics_port
        self._server: MetricsServer | None = None
        parts = PipelineParts(
            name, self._sources, self._group, self._opened, (self._state / CHECKPOINT).absolute(),
            DriverEpochs(self._quarantine, retention, on_rule_error),
            Polling(retrying, self.failures, clock), retrying, clock, self.failures, self.metrics,
        )  # fmt: skip
        self._epochs = PipelineEpochs(parts)
        self._loop = PipelineLoop(parts, self._epochs)
        self.watchers = self._epochs.watchers
        """Functions that are called after each epoch."""
        self.watchers.append(self.metrics.add)
        self._spark: Any = None

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
                triggers=spec.triggers,
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
        relation_of(self._own_program, view, "question", "view")
        return self._opened().table(view)

    def frame(self, view: str) -> Any:
        """Return a view as a DataFrame, with a partition for each shard if there are shards.

        It shows the last epoch; read it before the next one.
        """
        relation_of(self._own_program, view, "question", "view")
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

    @property
    def is_started(self) -> bool:
        """Whether it has been given a session."""
        return self._spark is not None

    @property
    def is_busy(self) -> bool:
        """Whether an epoch is under way, in another thread."""
        return self._epochs.is_busy

    def totals(self) -> RowCounts:
        """Return the numbers of rows of all sources, over all epochs."""
        return sum(self._opened().counts().values(), start=RowCounts())

    def overlooked(self) -> list[str]:
        """Return warnings: sources without files, and files that changed or were never read."""
        found = []
        for source in self._sources:
            if isinstance(source, FileSource):
                offsets = self._opened().offsets(source.name)
                if not offsets and source.is_empty:
                    found.append(f"source `{source.name}`: there are no files in `{source.where}`")
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
            self._loop.once(spark, note)
        else:
            self._loop.until_stopped(spark, note, poll_seconds)
        try:
            self._finish(spark, done)
        finally:
            self.metrics.write()
        self.failures.check()
        return done

    def stop(self) -> None:
        """Let `run` return after the current epoch."""
        self._loop.stop.set()

    def open(self) -> None:
        """Lock the state and open it, before anything else takes time; otherwise `start` does."""
        self._opened()

    def start(self, spark: Any) -> None:
        """Open the state, and write the epochs that sinks are missing."""
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
        self._group.begin_at(placement.epoch)
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

    def take(self, source_name: str, frame: Any, number: int, query: str = "") -> EpochDone | None:
        """Do an epoch with a numbered micro-batch of a source; None if it was committed before."""
        done = self._epochs.take(source_name, frame, number, query)
        if done is not None and self.failures.errors("sink"):
            self._group.finish(self._opened(), self._loop.stop)  # no later batch may try again
            self.failures.check()
        return done

    def _finish(self, spark: Any, done: list[EpochDone]) -> None:
        """Write the epochs that sinks are missing; their rows count for the last epoch."""
        placement = self._opened()
        is_failing = bool(self.failures.errors("source"))  # it is not known to be empty
        if placement.epoch < 0 and not self._loop.stop.is_set() and not is_failing:
            placement.apply(EpochChanges())  # no rows: the views have only program facts
        if placement.epoch < 0:
            return
        with counted_jobs(spark, f"tidelog {self.name}") as jobs:
            written = self._group.finish(placement, self._loop.stop)
        if done:
            last = done[-1]
            done[-1] = replace(
                last,
                written=last.written + written,
                jobs=last.jobs + jobs.jobs,
                tasks=last.tasks + jobs.tasks,
            )

    def close(self) -> None:
        """Sync everything to disk, and release the lock."""
        self._opened.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
