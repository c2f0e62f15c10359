"""The placement `sharded`: the state in K shards, each an engine with its part of the rows.

An epoch is one Spark job. Spark reads the rows, tasks check and route them (shard_routing.py), the
shuffle sends them to their shards, and one task for each shard applies them (shard_epoch.py). When
all tasks have answered, one file that names what they have written commits the epoch
(sharding/manifest.py). This process sees names and counts, but no rows.

This process and all of Spark's workers must see the files under the same path.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.database.transaction import changes_of
from tidelog.database.view import Change
from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.errors import DataError, StateError, UsageError
from tidelog.io.conversion import ConversionOptions
from tidelog.io.offsets import CommittedOffsets, RowCounts
from tidelog.io.tabular import CheckedRows, arrow_schema
from tidelog.logic.program import Program
from tidelog.sharding.key_relations import Upsert
from tidelog.sharding.layout import ShardLayout
from tidelog.sharding.manifest import Committed, Epochs
from tidelog.sharding.shard_state import ShardRef
from tidelog.sharding.views import ShardViews
from tidelog.spark.envelopes import Shape
from tidelog.spark.epoch_changes import (
    DRIFT,
    Applied,
    EpochChanges,
    Given,
    note_bad_rows,
    table_of,
)
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.frames import to_frame
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.retained_time import RETAINED, RetainedTime, newest_time, retained_offsets
from tidelog.spark.scattered import ScatteredChanges
from tidelog.spark.shard_epoch import (
    EpochWork,
    Tables,
    checked_answers,
    error_in_this_process,
    in_this_process,
)
from tidelog.spark.shard_frames import change_in_files, view_frame
from tidelog.spark.shard_job import BySpark, Runner, here
from tidelog.spark.shard_migration import migrated_shards
from tidelog.spark.shard_routing import AT, SIGN, SourceCheck, routed_table
from tidelog.spark.shard_rule_errors import FAILING, ROUNDS
from tidelog.spark.shard_staging import can_be_staged, remove_staged
from tidelog.spark.shard_task import Work, cells_of, forget
from tidelog.spark.view_changes import ViewChange, change_of
from tidelog.values.types import Row

_CLEAN = 64  # epochs


class ShardedPlacement(CommittedOffsets):
    """The state of a pipeline in shards."""

    name = "sharded"

    def __init__(
        self,
        program: Program,
        folder: Path,
        sides: Sequence[int],
        retain_epochs: int,
        watched: Iterable[str] = (),
        quarantine: Path | None = None,
        first_epoch: int = 0,
        upserts: Sequence[Upsert] = (),
        finds_failing: bool = False,
        taken: Iterable[str] = (),
        migrates: bool = False,
    ) -> None:
        """Open or begin a state; `quarantine` is the folder for bad rows.

        With `migrates`, the difference to another program is applied as an epoch.
        With `finds_failing`, rows on which rules fail go there, too. Changes of `watched` views are
        retained. Sinks take those of `taken` as files of Spark.
        """
        super().__init__()
        self._folder = folder.resolve()
        self._retain = retain_epochs
        self._quarantine = (quarantine or self._folder / "quarantine").resolve()
        self._first_epoch, self._finds_failing = first_epoch, finds_failing
        self._upserts = {upsert.relation: upsert for upsert in upserts}
        self._watched = tuple(dict.fromkeys(watched))
        self._epochs = Epochs(self._folder)
        self._run: Runner = here
        self._spark: Any = None
        files = Files(self._folder)
        files.make_folder()
        self._lock = WriterLock(files)
        self._last: Committed | None = None
        self._identity = secrets.token_hex(16)
        numbers = self._epochs.numbers()
        if numbers:
            self._last = self._epochs.read(numbers[-1])
            self._identity = self._last.identity
            self._committed = self._epochs.read_offsets(self._last)
        self._sides = tuple(sides) if self._last is None else self._last.sides
        self._cells = cells_of(program.text, program.name, self._sides)
        self._program = self._cells.program
        self._sent = next(filter(self._can_be_sent, taken), "")
        self._views = ShardViews(self._program, self._cells, self._folder, self._parts)
        self._scattered = ScatteredChanges(self._folder)
        if self._last is None:
            self._epochs.make_folders(self._cells.count)
        else:
            if migrates and not self._has_same_program(self._last):
                self._migrate(self._last)
            self._check_same(self._last)
            self._epochs.clean(self._last, retain_epochs)
            remove_staged(self._folder)

    def _has_same_program(self, last: Committed) -> bool:
        return last.program.strip() == self._program.text.strip()

    def _migrate(self, last: Committed) -> None:
        """Apply a changed program to all shards."""
        try:
            answers = list(migrated_shards(last, self._work(), self._watched))
            self._commit_answers(last.epoch + 1, answers, EpochChanges())
        except BaseException:
            self.close()
            raise
        finally:
            forget()  # shards in memory are of the old program

    def _check_same(self, last: Committed) -> None:
        if not self._has_same_program(last):
            self.close()
            raise UsageError(
                f"the state in `{self._folder}` belongs to another program"
                '\n  help: on_program_change = "migrate" applies the difference,'
                " `tidelog pipeline rescale` evaluates the new program on the given rows"
            )
        if self._sure.plan != self._plan:
            self.close()
            raise UsageError(
                f"the shards in `{self._folder}` were laid out by another version of Tidelog"
                "\n  help: `tidelog pipeline rescale` lays them out again"
            )

    def _can_be_sent(self, view: str) -> bool:
        """Return whether Spark can write the changes of a view in the job of an epoch."""
        schema = arrow_schema(self._program.relations[view], self._program.records)
        is_last = self.layout.home[view] == self._cells.stages - 1
        return can_be_staged(schema) and is_last and not self._cells.is_scattered(view)

    @property
    def _plan(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                f"{'stage ' + str(stage) + ': ' if stage else ''}{v.name} as {sharding.name_of(v)}"
                for stage, sharding in enumerate(self.layout.shardings)
                for v in sharding.variants
            )
        )

    @property
    def layout(self) -> ShardLayout:
        """Which rows each shard has, stage by stage."""
        return self._cells.layout

    def start(self, spark: Any) -> None:
        """Let Spark do the work from now on."""
        self._spark = spark
        self._by_spark = self._run = BySpark(spark)

    @property
    def epoch(self) -> int:
        """The last committed epoch; -1 before the first one."""
        return -1 if self._last is None else self._last.epoch

    # --- epochs ---

    def apply(self, changes: EpochChanges) -> Applied:
        """Commit an epoch with rows that are in this process, without Spark."""
        work, tables = self._routed(changes)
        answers = in_this_process(work, tables)
        return self._commit_answers(work.epoch, answers, changes)

    def probe(self, changes: EpochChanges) -> DataError | None:
        """Compute such an epoch and undo it; return the error of a rule, if there is one."""
        work, tables = self._routed(changes)
        return error_in_this_process(work, tables)

    def _routed(self, changes: EpochChanges) -> tuple[EpochWork, Tables]:
        """Return an epoch, and the rows for each shard, by number of the source."""
        checks: list[SourceCheck] = []
        tables: dict[int, list[tuple[int, pa.Table]]] = {}
        held = (changes.inserted, changes.deleted, changes.upserts)
        names = [n for n in self._program.relations if any(n in rows for rows in held)]
        for number, name in enumerate(names):
            relation = self._program.relations[name]
            if name in changes.upserts:
                upsert, came = self._upserts[name], changes.upserts[name]
                shape = Shape((), keys=upsert.keys, sequence="at" if upsert.has_sequence else "")
                checks.append(SourceCheck(number, name, name, "upsert", shape, ConversionOptions()))
                table = table_of(came.rows, relation, self._program.records)
                table = table.append_column(SIGN, pa.array(came.inserted))
                if came.at is not None:
                    table = table.append_column(AT, pa.array(came.at))
                tables[number] = [(i, table) for i in range(self._cells.shards)]
                continue
            checks.append(
                SourceCheck(number, name, name, "changes", Shape(()), ConversionOptions())
            )
            parts = []
            for side, sign in ((changes.inserted, True), (changes.deleted, False)):
                rows = side.get(name, CheckedRows())
                if len(rows):
                    table = table_of(rows, relation, self._program.records)
                    signs = pa.array([sign] * len(rows), pa.bool_())
                    parts.append(table.append_column(SIGN, signs))
            tables[number] = [
                routed
                for table in parts
                for routed in routed_table(self._cells.router_of(name), name, table)
            ]
        return self._epoch_work(tuple(checks)), tables

    def apply_input(
        self, epoch: EpochInput, changes: EpochChanges, before_commit: Callable[[EpochInput], None]
    ) -> Applied | None:
        """Let Spark read, route and apply the rows of an epoch, and commit it.

        `before_commit` may still refuse the epoch. Returns None if nothing is new.
        """
        changed = any(changes.offsets.values())
        is_snapshot = any(p.source.spec.mode == "snapshot" for p in epoch.parts)
        if not changed and not is_snapshot:
            return None
        self._note_drift(epoch, changes)
        checks = tuple(
            SourceCheck(
                p.tag, p.source.name, p.source.relation.name, p.source.spec.mode, p.source.shape,
                p.source.conversion, p.part.drift, RetainedTime.of(p.source),
            )
            for p in epoch.parts
        )  # fmt: skip
        # A job that finds failing rows runs again without them, so its files would not count.
        sent = "" if self._last is None or self._finds_failing else self._sent
        work = replace(self._epoch_work(checks, sent), finds_failing=self._finds_failing)
        Quarantine(self._quarantine).remove_from(work.epoch)
        answers = self._without_failing(epoch, work)
        before_commit(epoch)
        heads = [head for _, head in answers]
        for head in heads:
            for name, received in head["received"].items():
                bad = head["bad"].get(name, 0)
                counts = RowCounts(received, received - bad, bad)
                if received:
                    changes.counts[name] = changes.counts.get(name, RowCounts()) + counts
        for source, _ in epoch.batches:
            if source.spec.mode == "snapshot":
                bad = sum(head["bad"].get(source.name, 0) for head in heads)
                note_bad_rows(changes, source.name, self.offsets(source.name), bad)
        self._note_times(heads, changes)
        nothing = not any(any(head["given"]) or head["views"] for head in heads)
        if nothing and not any(changes.offsets.values()):
            forget()  # the same snapshot again: the files of this epoch are not named
            Quarantine(self._quarantine).remove_from(work.epoch)
            return None
        return self._commit_answers(work.epoch, answers, changes)

    def _without_failing(
        self, epoch: EpochInput, work: EpochWork
    ) -> list[tuple[int, dict[str, Any]]]:
        """Let Spark do an epoch, again as long as shards find rows on which rules fail."""
        try:
            for _ in range(ROUNDS):
                answers = self._by_spark.epoch(epoch, work)
                found = [
                    (relation, file)
                    for _, head in answers
                    for relation, file, _ in head.get("failing", ())
                ]
                if not found:
                    return answers
                work = replace(work, failing=(*work.failing, *found))
        finally:
            if work.finds_failing:
                shutil.rmtree(self._folder / FAILING, ignore_errors=True)
        raise DataError(
            f"rules still fail after {ROUNDS} rounds, each without the rows found before"
            "\n  help: let the rules check their values, such as `x != 0`"
        )

    def _note_drift(self, epoch: EpochInput, changes: EpochChanges) -> None:
        """Commit the schema drift of a snapshot, so that it is reported once."""
        for source, batch in epoch.batches:
            if source.spec.mode == "snapshot":
                drift = next((part.drift for part in batch.parts if part.drift), "")
                if drift != self.offsets(source.name).get(DRIFT, ""):
                    changes.offsets[source.name] = {**changes.offsets[source.name], DRIFT: drift}

    def _note_times(self, heads: Sequence[Mapping[str, Any]], changes: EpochChanges) -> None:
        """Commit the newest times of sources that forget old rows, and count those too late."""
        known = self.offsets(RETAINED)
        offsets: dict[str, str] = {}
        for source, newest in (heads[0]["newest"] if heads else {}).items():  # the same in all
            late = sum(head["late"].get(source, 0) for head in heads)
            changes.late += late
            offsets |= retained_offsets(known, source, newest, late)
        if offsets:
            changes.offsets[RETAINED] = offsets

    def _epoch_work(self, checks: tuple[SourceCheck, ...], sent: str = "") -> EpochWork:
        last = self._last
        epoch = self._first_epoch if last is None else last.epoch + 1
        known = self.offsets(RETAINED)
        times = {check.name: newest_time(known, check.name) for check in checks}
        newest = {name: time for name, time in times.items() if time is not None}
        return EpochWork(
            self._work(), epoch, self._watched, checks, str(self._quarantine), newest, sent=sent
        )

    def _commit_answers(
        self, epoch: int, answers: Sequence[tuple[int, dict[str, Any]]], changes: EpochChanges
    ) -> Applied:
        """Commit what the shards have written."""
        last = self._last
        cells: dict[int, ShardRef] = {}
        views: dict[str, list[str]] = {}
        view_rows: dict[str, int] = {}
        inserted = deleted = 0
        bootstrapped = False
        for shard, head in checked_answers(answers):
            for stage, ref in enumerate(head["refs"]):
                cells[self._cells.cell(stage, shard)] = ShardRef.from_data(ref)
            inserted += head["given"][0]
            deleted += head["given"][1]
            bootstrapped |= head["bootstrapped"]
            for view, (file, rows_changed) in head["views"].items():
                views.setdefault(view, []).append(file)
                view_rows[view] = view_rows.get(view, 0) + rows_changed
        missing = set(range(self._cells.count)) - cells.keys()
        if missing:
            shard = min(missing) % self._cells.shards
            raise StateError(f"Spark returned no result for shard {shard}")
        self._commit(epoch, tuple(cells[i] for i in sorted(cells)), changes, views, view_rows)
        if last is not None:
            for number, (old, new) in enumerate(zip(last.shards, self._sure.shards, strict=True)):
                if old.snapshot != new.snapshot:
                    self._epochs.clean_shard(number, new)
        return Applied(epoch, "bootstrap" if bootstrapped else "update", inserted, deleted)

    def _commit(
        self,
        epoch: int,
        shards: tuple[ShardRef, ...],
        changes: EpochChanges,
        views: Mapping[str, Sequence[str]],
        view_rows: Mapping[str, int],
    ) -> None:
        last = self._last
        file, file_epoch = "", epoch - 1
        if last is not None:
            file, file_epoch = last.offsets_file, last.offsets_epoch
        if self._epochs.offsets_due(epoch, last):
            after = self._committed.copy()
            after.add(changes.offsets, changes.counts)
            file, file_epoch = self._epochs.write_offsets(after), epoch
        committed = Committed(
            epoch, self._identity, self._program.text, self._program.name, self._sides, self._plan,
            shards, dict(changes.offsets), dict(changes.counts), file, file_epoch,
            {view: tuple(files) for view, files in views.items()}, self._watched, view_rows,
        )  # fmt: skip
        self._epochs.commit(committed)
        self._views.committed(views)
        self._scattered.clear()
        self._last = committed
        self._committed.add(changes.offsets, changes.counts)
        if epoch % _CLEAN == 0:
            self._epochs.forget(committed, self._retain)

    @property
    def _sure(self) -> Committed:
        assert self._last is not None
        return self._last

    def _work(self, **keys: Any) -> Work:
        return Work(
            str(self._folder), self._identity, self._program.text, self._program.name, self._sides,
            None if self._last is None else self._last.shards, **keys,
        )  # fmt: skip

    # --- views ---

    def _parts(self, view: str, *, given: bool = False) -> list[pa.Table]:
        """Return the rows of a view, or its given rows, from each shard."""
        if self._last is None:
            return []
        answers = sorted(self._run(self._work(view=view, given=given)), key=lambda a: a[0])
        return [pa.ipc.open_stream(data).read_all() for _, _, data in answers]

    def given(self, relation: str) -> Given:
        """Return the rows that sources have given a relation."""
        return CheckedRows(self._views.values(relation, self._parts(relation, given=True)))

    def rows(self, view: str) -> set[Row]:
        """Return the rows of a view."""
        return set(self._views.values(view, self._parts(view)))

    def table(self, view: str) -> pa.Table:
        """Return the rows of a view, in no particular order."""
        return self._views.table(view, self._parts(view))

    def frame(self, spark: Any, view: str, *, together: bool = False) -> Any:
        """Return a view as a DataFrame with a partition for each shard, or with one if `together`.

        It shows the last epoch, and is to be read before the next one.
        """
        relation, records = self._program.relations[view], self._program.records
        if self._last is None:
            return to_frame(spark, arrow_schema(relation, records).empty_table())
        if not relation.columns:
            return spark.range(self.size(view)).select()
        frame = view_frame(spark, self._work(view=view), arrow_schema(relation, records))
        if self._cells.is_scattered(view):
            frame = frame.distinct()
        return frame.repartition(1) if together else frame

    def size(self, view: str) -> int:
        """Return how many rows a view has."""
        if self._last is None:
            return 0
        if self._cells.is_scattered(view):
            if self._spark is None or not self._program.relations[view].columns:
                return len(self.rows(view))
            return int(self.frame(self._spark, view).count())
        return sum(head["rows"] for _, head, _ in self._run(self._work(view=view, counted=True)))

    def unchanged(self, view: str, since: int) -> bool:
        """Return whether a view is known not to have changed since an epoch."""
        epochs = self._since(view, since)
        return epochs is not None and not any(view in epoch.views for epoch in epochs)

    def retains(self, view: str, since: int) -> bool:
        """Return whether the changes of a view after an epoch can be read."""
        return self._since(view, since) is not None

    def _since(self, view: str, since: int) -> list[Committed] | None:
        """Return the epochs after `since`, if all of them have the changes of the view."""
        kept = set(self._epochs.numbers())
        numbers = range(since + 1, self.epoch + 1)
        if since < 0 or since > self.epoch or not kept.issuperset(numbers):
            return None
        epochs = [self._sure if n == self.epoch else self._epochs.read(n) for n in numbers]
        whole = all(
            view in epoch.watched and (view not in epoch.views or view in epoch.view_rows)
            for epoch in epochs  # an earlier version wrote other files, without numbers of rows
        )
        return epochs if whole else None

    def _epochs_since(self, view: str, since: int) -> list[Committed]:
        epochs = self._since(view, since)
        if epochs is None:
            raise UsageError(
                f"the changes of `{view}` since epoch {since} are no longer retained"
                "\n  help: raise `retain_epochs`, or give the sink another path"
            )
        return epochs

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return the net changes of a view in each epoch after `since`."""
        relation, records = self._program.relations[view], self._program.records
        for epoch, net in self._views.net(view, self._epochs_since(view, since)):
            if net:
                yield epoch, changes_of(relation, records, net)

    def change_frames(self, spark: Any, view: str, since: int) -> Iterator[ViewChange]:
        """Return the changes of a view in each epoch after `since`, for sinks.

        The rows stay in the files that tasks have written. Those of a scattered view are counted
        by Spark, to know which of them are new to the whole view (scattered.py).
        """
        relation, records = self._program.relations[view], self._program.records
        schema = arrow_schema(relation, records)
        if self._cells.is_scattered(view):
            if not relation.columns:  # it has one row at most
                for number, change in self.changes(view, since):
                    yield change_of(spark, number, change)
                return
            changed = {e.epoch: e.views.get(view, ()) for e in self._epochs_since(view, since)}
            yield from self._scattered.read(spark, self._work(view=view), schema, changed)
            return
        for epoch in self._epochs_since(view, since):
            if epoch.view_rows.get(view, 0):
                files = [self._folder / file for file in epoch.views[view]]
                rows = epoch.view_rows[view]
                yield change_in_files(spark, epoch.epoch, rows, files, schema)

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()
