"""The pipeline: epochs from sources to sinks.

An epoch takes what has come to all sources, in one Spark job; sets apart what does not fit; commits
the rows together with the offsets of the sources; and then has the sinks written. A process that
dies leaves an epoch that is durable, whose sinks are caught up at the next start, or one that never
was, which is polled again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError, did_you_mean
from tidelog.logic.program import Program
from tidelog.spark.checking import BadRow, Checked
from tidelog.spark.declared import Sink, Source, named
from tidelog.spark.gathering import gather
from tidelog.spark.netting import difference, net
from tidelog.spark.pipeline_file import PipelineFile, read_pipeline_file
from tidelog.spark.placement_driver import DriverPlacement, with_memory
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Placement, choose
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.remembered import Applied, Changes, Count
from tidelog.spark.sinks import SinkRun, SinkState, writer
from tidelog.spark.sources import Batch, FileSource, FrameSource, PolledSource, polled

_DRIFT = "drift"  # the mark of a snapshot whose columns are not those of the relation


@dataclass(frozen=True)
class EpochDone:
    """What one epoch did, for whoever watches."""

    epoch: int
    received: int
    accepted: int
    quarantined: int
    inserted: int
    """Given rows that came."""
    deleted: int
    written: int
    """Rows that sinks were given."""
    how: str
    """`bootstrap` or `update`."""
    waiting: int
    """Items of sources that are left for the next epoch."""
    lag: float | None
    """Seconds since the oldest item of the epoch came; None where sources do not tell."""
    seconds: float


class Pipeline:
    """Keeps sinks fresh while sources change.

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
    ) -> None:
        self.name = name
        self._own_program = _checked(program)
        self._program = with_memory(self._own_program)
        self._state = Path(state)
        self.chosen = choose(self._own_program, self._state, placement, shards, sources)
        self.placement = self.chosen.name
        self._settings = (on_program_change, retain_epochs)
        self._sources = self._polled_sources(sources)
        names = named([s.name or f"{s.view}-{s.what}-{s.format}" for s in sinks])
        self._sinks = []
        for sink_name, sink in zip(names, sinks, strict=True):
            relation = self._relation(sink.view, "sink", "view")
            wrote = SinkState(self._state / "sinks", sink_name, sink, self._program.text)
            self._sinks.append(
                SinkRun(sink_name, writer(sink, relation, self._program.records), wrote)
            )
        self._quarantine = Quarantine(self._state / "quarantine")
        self._placement: Placement | None = None
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
            )
        except UsageError as error:
            raise UsageError(f"{spec.file}: {error}") from None

    def _polled_sources(self, sources: Sequence[Source]) -> list[PolledSource]:
        result = []
        names = named([spec.name or spec.relation for spec in sources])
        for name, spec in zip(names, sources, strict=True):
            relation = self._relation(spec.relation, "source", "relation")
            result.append(polled(spec, name, relation, self._program.records))
        for source in result:
            others = [s for s in result if s.relation is source.relation and s is not source]
            if others and source.spec.mode == "snapshot":
                raise UsageError(
                    f"source `{source.name}` has the whole of `{source.relation.name}`, so"
                    f" `{others[0].name}` cannot give it rows as well"
                    '\n  help: one source for a relation with mode = "snapshot"'
                )
        return result

    def _relation(self, name: str, kind: str, key: str) -> Any:
        if name not in self._program.relations:
            hint = did_you_mean(name, self._program.relations)
            raise UsageError(
                f"a {kind} names the {key} `{name}`, which the program does not declare"
                + (f"\n  help: {hint}" if hint else "")
            )
        return self._program.relations[name]

    # --- running ---

    @property
    def database(self) -> Any:
        """The database with the views; there is one after the first epoch."""
        placement = self._opened()
        if not isinstance(placement, DriverPlacement):
            raise UsageError(
                "a sharded pipeline has no database in one place\n  help: `table` gives a view"
            )
        return placement.database

    def table(self, view: str) -> Any:
        """Return the rows of a view as an Arrow table."""
        self._relation(view, "question", "view")
        return self._opened().table(view)

    @property
    def epoch(self) -> int:
        """The last committed epoch; -1 before the first one."""
        return self._opened().epoch

    def totals(self) -> Count:
        """Return how many rows of all sources there were in all epochs."""
        return sum(self._opened().counts().values(), start=Count())

    def overlooked(self) -> list[str]:
        """Say which files are not as they were when they were taken: they are not read again."""
        found = []
        for source in self._sources:
            if isinstance(source, FileSource):
                names = source.changed(self._opened().offsets(source.name))
                if names:
                    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                    found.append(
                        f"source `{source.name}`: changed since they were taken, and not read"
                        f" again: {', '.join(names[:5])}{more}"
                    )
        return found

    @property
    def sources(self) -> Sequence[PolledSource]:
        """The sources at work."""
        return self._sources

    @property
    def sinks(self) -> Sequence[SinkRun]:
        """The sinks at work."""
        return self._sinks

    def run(
        self,
        spark: Any,
        *,
        once: bool = True,
        poll_seconds: float = 1.0,
        watch: Callable[[EpochDone], object] | None = None,
    ) -> list[EpochDone]:
        """Take what is there, in one or more epochs, and end; or go on until `stop`.

        `watch` is called after each epoch. Returns what the last epochs did, 1000 at most.
        """
        self.start(spark)
        done: list[EpochDone] = []
        seen_whole: set[str] = set()
        while not self._stop.is_set():
            # A table that is always read whole is read once, if the run is to end.
            skipped = seen_whole if once else set()
            epoch = self.step(spark, skipped, tables=not once)
            seen_whole |= {source.name for source in self._sources if source.always}
            if epoch is not None:
                done = [*done[-999:], epoch]
                if watch is not None:
                    watch(epoch)
            elif once:
                break
            else:
                self._stop.wait(poll_seconds)
        self._finish()
        return done

    def stop(self) -> None:
        """Have `run` return when the epoch that is under way is done."""
        self._stop.set()

    def start(self, spark: Any) -> None:
        """Open the state, and bring the sinks to its last epoch."""
        placement = self._opened()
        placement.start(spark)
        self._quarantine.remove_from(placement.epoch + 1)
        for sink in self._sinks:
            sink.start(spark)
        if placement.epoch >= 0:
            for sink in self._sinks:
                sink.catch_up(placement)

    def step(
        self, spark: Any, skipped: set[str] | None = None, *, tables: bool = True
    ) -> EpochDone | None:
        """Do one epoch; return None if there was nothing to do. Sinks of tables can wait."""
        placement = self._opened()
        begun = time.perf_counter()
        batches: list[tuple[PolledSource, Batch]] = []
        for source in self._sources:
            if source.name in (skipped or ()):
                continue
            batch = source.poll(spark, placement.offsets(source.name))
            if batch is not None:
                batches.append((source, batch))
        return self._epoch(batches, begun, tables)

    def take(self, source_name: str, frame: Any, number: int) -> EpochDone | None:
        """Do an epoch with a numbered micro-batch of a source; None if it was taken before."""
        for source in self._sources:
            if source.name == source_name and isinstance(source, FrameSource):
                batch = source.batch(frame, number, self._opened().offsets(source.name))
                begun = time.perf_counter()
                return None if batch is None else self._epoch([(source, batch)], begun, True)
        raise UsageError(f"there is no source `{source_name}` that takes frames")

    def _epoch(
        self, batches: Sequence[tuple[PolledSource, Batch]], begun: float, with_tables: bool
    ) -> EpochDone | None:
        if not batches:
            return None
        placement = self._opened()
        if isinstance(placement, ShardedPlacement) and placement.takes(batches):
            applied, changes = placement.apply_files(batches)
            written = sum(sink.catch_up(placement, tables=with_tables) for sink in self._sinks)
            return _done(changes, applied, written, [batch for _, batch in batches], begun)
        gathered = iter(gather([part for _, batch in batches for part in batch.parts]))
        changes = Changes()
        bad: dict[str, list[BadRow]] = {}
        parts: dict[str, list[Checked]] = {}
        for source, batch in batches:
            tables = [next(gathered) for _ in batch.parts]
            checked = [
                source.checker.check(table, part.ranks, part.drift)
                for table, part in zip(tables, batch.parts, strict=True)
            ]
            known = placement.offsets(source.name)
            marks = batch.marks if batch.marks_of is None else batch.marks_of(tables)
            marks = {item: mark for item, mark in marks.items() if known.get(item) != mark}
            name = source.relation.name
            if source.spec.mode == "snapshot":  # it has its relation to itself
                drift = next((part.drift for part in batch.parts if part.drift), "")
                if drift != known.get(_DRIFT, ""):
                    marks[_DRIFT] = drift  # so that it is told once
                changed = False
                if not drift:  # else nobody knows what is missing: the relation stays as it is
                    came, went = difference(placement.given(name), checked)
                    changes.inserted[name], changes.deleted[name] = came, went
                    changed = len(came) + len(went) > 0
            else:
                parts.setdefault(name, []).extend(checked)
                changed = any(len(part.rows) for part in checked)
            if not changed and not marks:
                continue  # the same snapshot again, or no message: nothing has happened
            rows = [row for part in checked for row in part.bad]
            received = sum(part.received for part in checked)
            changes.marks[source.name] = marks
            changes.counts[source.name] = Count(received, received - len(rows), len(rows))
            bad[source.name] = rows
        if not changes.counts:
            return None
        for name, found in parts.items():
            changes.inserted[name], changes.deleted[name] = net(found)
        self._quarantine.write(placement.epoch + 1, bad)
        applied = placement.apply(changes)
        written = sum(sink.catch_up(placement, tables=with_tables) for sink in self._sinks)
        return _done(changes, applied, written, [batch for _, batch in batches], begun)

    def _finish(self) -> None:
        placement = self._opened()
        if placement.epoch < 0 and not self._stop.is_set():
            placement.apply(Changes())  # no rows at all: the views are those of the program
        if placement.epoch >= 0:
            for sink in self._sinks:
                sink.catch_up(placement)

    def _opened(self) -> Placement:
        if self._placement is None:
            chosen, (on_program_change, retain_epochs) = self.chosen, self._settings
            if chosen.name == "sharded":
                views = [sink.view for sink in self._sinks]
                self._placement = ShardedPlacement(
                    self._own_program, chosen.folder, chosen.sides, retain_epochs, views,
                    self._quarantine.write,
                )  # fmt: skip
            else:
                self._placement = DriverPlacement(
                    self._program, chosen.folder, on_program_change, retain_epochs
                )
        return self._placement

    def close(self) -> None:
        """Have everything on the disk, and let others run the pipeline."""
        if self._placement is not None:
            self._placement.close()
            self._placement = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _done(
    changes: Changes, applied: Applied, written: int, batches: Sequence[Batch], begun: float
) -> EpochDone:
    total = sum(changes.counts.values(), start=Count())
    oldest = [batch.oldest for batch in batches if batch.oldest is not None]
    return EpochDone(
        applied.epoch,
        total.received,
        total.accepted,
        total.quarantined,
        applied.inserted,
        applied.deleted,
        written,
        applied.how,
        sum(batch.waiting for batch in batches),
        time.time() - min(oldest) if oldest else None,
        time.perf_counter() - begun,
    )


def _checked(program: str | Path | Program) -> Program:
    if isinstance(program, Program):
        return program
    if isinstance(program, Path):
        return Program.load(program)
    return Program.parse(program)
