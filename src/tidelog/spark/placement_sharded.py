"""The placement `sharded`: the state in K shards, each an engine over its part, in files.

An epoch is one Spark job with a task for each shard (shard_task.py). When all have answered, the
epoch is committed by one file that names what they have written (shard_manifest.py). Parquet files
are read by the tasks themselves. What comes in any other way is gathered here, and sent along with
the job if it is little, or else written for the tasks to read.

The files must be where this process and all of Spark's workers find them by the same path.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.durable.files import Files
from tidelog.durable.lock import WriterLock
from tidelog.engine.shard_state import ShardRef
from tidelog.engine.shards import routed
from tidelog.engine.transaction import changes_of
from tidelog.engine.view import Change
from tidelog.errors import StateError, UsageError
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows, to_arrow
from tidelog.logic.program import Program
from tidelog.plan.sharding import Sharding
from tidelog.spark.checking import BadRow
from tidelog.spark.declared import Source
from tidelog.spark.listing import is_local
from tidelog.spark.remembered import Applied, Changes, Count, Given, Remembering
from tidelog.spark.shard_job import Answer, BySpark, here
from tidelog.spark.shard_manifest import Committed, Epochs
from tidelog.spark.shard_reading import FilePart
from tidelog.spark.shard_task import Rows, Work, router_of
from tidelog.spark.shard_views import ShardViews
from tidelog.spark.sources import Batch, PolledSource
from tidelog.values.types import Row

_SENT = 10_000  # rows that go along with the job
_OP = "tidelog op"
_CLEAN = 64  # epochs
SetApart = Callable[[int, Mapping[str, Sequence[BadRow]]], None]


class ShardedPlacement(Remembering):
    """The state of a pipeline in shards, opened when there is one."""

    name = "sharded"

    def __init__(
        self,
        program: Program,
        folder: Path,
        sides: Sequence[int],
        retain_epochs: int,
        watched: Iterable[str] = (),
        set_apart: SetApart = lambda epoch, bad: None,
        first_epoch: int = 0,
    ) -> None:
        """Open or begin a state; `set_apart` gets the rows that did not fit before a commit."""
        super().__init__()
        self._folder = folder.resolve()
        self._retain, self._set_apart = retain_epochs, set_apart
        self._first_epoch = first_epoch
        self._watched = tuple(dict.fromkeys(watched))
        self._epochs = Epochs(self._folder)
        self._run: Answer = here
        files = Files(self._folder)
        files.make_folder()
        self._lock = WriterLock(files)
        self._last: Committed | None = None
        self._identity = secrets.token_hex(16)
        numbers = self._epochs.numbers()
        if numbers:
            self._last = self._epochs.read(numbers[-1])
            self._identity = self._last.identity
            self._memory = self._epochs.memory(self._last)
        self._sides = tuple(sides) if self._last is None else self._last.sides
        self._program, self._router = router_of(program.text, program.name, self._sides)
        self._views = ShardViews(self._program, self.sharding, self._folder, self._parts)
        self._check_same()
        if self._last is None:
            self._epochs.make_folders(self.sharding.grid.shards)
        else:
            self._epochs.clean(self._last, retain_epochs)
        shutil.rmtree(self._folder / "staging", ignore_errors=True)
        shutil.rmtree(self._folder / "claims", ignore_errors=True)

    def _check_same(self) -> None:
        last = self._last
        if last is None:
            return
        if last.program.strip() != self._program.text.strip():
            self.close()
            raise UsageError(
                f"the state in `{self._folder}` is of another program"
                "\n  help: `tidelog pipeline rescale` evaluates the new one on the given rows"
            )
        if last.plan != self._plan:
            self.close()
            raise UsageError(
                f"the shards in `{self._folder}` were laid out by another version of Tidelog"
                "\n  help: `tidelog pipeline rescale` lays them out anew"
            )

    @property
    def _plan(self) -> tuple[str, ...]:
        sharding = self.sharding
        return tuple(sorted(f"{v.name} as {sharding.name_of(v)}" for v in sharding.versions))

    @property
    def sharding(self) -> Sharding:
        """Where rows are."""
        return self._router.sharding

    def start(self, spark: Any) -> None:
        """Have the work done by Spark from now on."""
        self._run = BySpark(spark)

    # --- what is remembered ---

    @property
    def epoch(self) -> int:
        """The last committed epoch; -1 before the first one."""
        return -1 if self._last is None else self._last.epoch

    # --- epochs ---

    def apply(self, changes: Changes) -> Applied:
        """Commit an epoch: the rows together with the offsets."""
        inserted, deleted = changes.inserted, changes.deleted
        if self._last is None:
            deleted = {}
        total = sum(map(len, (*inserted.values(), *deleted.values())))
        if total <= _SENT:
            rows = Rows(routed(self._router, inserted), routed(self._router, deleted))
            return self._epoch(changes, rows=rows)
        staging = self._folder / "staging"
        staging.mkdir(exist_ok=True)
        try:
            return self._epoch(changes, files=self._staged(staging, inserted, deleted))
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _staged(
        self, folder: Path, inserted: Mapping[str, Given], deleted: Mapping[str, Given]
    ) -> tuple[FilePart, ...]:
        """Write rows for the tasks to read."""
        import pyarrow.parquet as pq

        parts = []
        for number, name in enumerate({**inserted, **deleted}):
            came, went = inserted.get(name, CheckedRows()), deleted.get(name, CheckedRows())
            if not len(came) and not len(went):
                continue
            table = pa.table({_OP: pa.array(["+"] * len(came) + ["-"] * len(went), pa.string())})
            if self._program.relations[name].columns:
                both = pa.concat_tables([self._columns(name, came), self._columns(name, went)])
                table = both.append_column(_OP, table[_OP])
            path = folder / f"{number}.parquet"
            pq.write_table(table, path)
            source = Source(name, "parquet", str(path), "changes", op=_OP)
            parts.append(FilePart(name, source, (str(path),), (path.name,)))
        return tuple(parts)

    def _columns(self, name: str, rows: Given) -> pa.Table:
        if isinstance(rows, CheckedTable):
            return rows.table
        return to_arrow(list(rows), self._program.relations[name], self._program.records)

    def takes(self, batches: Sequence[tuple[PolledSource, Batch]]) -> bool:
        """Return whether tasks are to read the files of an epoch themselves."""
        parts = [(source, part) for source, batch in batches for part in batch.parts]
        return all(
            source.spec.format == "parquet"
            and source.spec.mode in ("append", "changes")
            and part.files
            and not part.drift
            and all(is_local(file.path) for file in part.files)
            for source, part in parts
        )

    def apply_files(self, batches: Sequence[tuple[PolledSource, Batch]]) -> tuple[Applied, Changes]:
        """Have tasks read and check the files, and commit; return what was done and received."""
        changes = Changes()
        parts = []
        for source, batch in batches:
            known = self.offsets(source.name)
            changes.marks[source.name] = {
                item: mark for item, mark in batch.marks.items() if known.get(item) != mark
            }
            for part in batch.parts:
                paths = tuple(
                    os.path.abspath(file.path.removeprefix("file://")) for file in part.files
                )
                labels = tuple(file.name for file in part.files)
                parts.append(FilePart(source.name, source.spec, paths, labels))
        return self._epoch(changes, files=tuple(parts), checked=False), changes

    def _epoch(
        self,
        changes: Changes,
        *,
        rows: Rows | None = None,
        files: tuple[FilePart, ...] = (),
        checked: bool = True,
    ) -> Applied:
        """Have the shards do an epoch, and commit it; files that are not `checked` are by them."""
        last = self._last
        epoch = self._first_epoch if last is None else last.epoch + 1
        work = self._work(epoch=epoch, watched=self._watched, rows=rows, files=files)
        shards: dict[int, ShardRef] = {}
        views: dict[str, list[str]] = {}
        came = went = 0
        bootstrapped = False
        bad: dict[str, list[BadRow]] = {}
        for shard, head, _ in self._run(work):
            shards[shard] = ShardRef.from_data(head["ref"])
            came, went = came + head["given"][0], went + head["given"][1]
            bootstrapped |= head["bootstrapped"]
            for view, file in head["views"].items():
                views.setdefault(view, []).append(file)
            for source, count in () if checked else head.get("received", {}).items():
                bad[source] = [BadRow(**row) for row in head["bad"].get(source, ())]
                changes.counts[source] = Count(count, count - len(bad[source]), len(bad[source]))
        missing = set(range(self.sharding.grid.shards)) - shards.keys()
        if missing:
            raise StateError(f"Spark has lost the work of shard {min(missing)}")
        if not checked:
            self._set_apart(epoch, bad)
        self._commit(epoch, tuple(shards[i] for i in sorted(shards)), changes, views)
        if last is not None:
            for number, (old, new) in enumerate(zip(last.shards, self._sure.shards, strict=True)):
                if old.snapshot != new.snapshot:
                    self._epochs.clean_shard(number, new)
        return Applied(epoch, "bootstrap" if bootstrapped else "update", came, went)

    def _commit(
        self,
        epoch: int,
        shards: tuple[ShardRef, ...],
        changes: Changes,
        views: Mapping[str, Sequence[str]],
    ) -> None:
        last = self._last
        memory, memory_epoch = ("", epoch - 1) if last is None else (last.memory, last.memory_epoch)
        if self._epochs.is_time(epoch, last):
            after = self._memory.copy()
            after.add(changes.marks, changes.counts)
            memory, memory_epoch = self._epochs.write_memory(after), epoch
        committed = Committed(
            epoch, self._identity, self._program.text, self._program.name, self._sides, self._plan,
            shards, dict(changes.marks), dict(changes.counts), memory, memory_epoch,
            {view: tuple(files) for view, files in views.items()}, self._watched,
        )  # fmt: skip
        self._epochs.commit(committed)
        self._views.committed(views)
        self._last = committed
        self._memory.add(changes.marks, changes.counts)
        if epoch % _CLEAN == 0:
            self._epochs.forget(committed, self._retain)

    @property
    def _sure(self) -> Committed:
        assert self._last is not None
        return self._last

    def _work(self, **keys: Any) -> Work:
        return Work(
            str(self._folder), self._identity, self._program.text, self._program.name, self._sides,
            None if self._last is None else self._last.shards, secrets.token_hex(8),
            **keys,
        )  # fmt: skip

    # --- views ---

    def _parts(self, view: str, *, given: bool = False) -> list[pa.Table]:
        """Return the rows of a view, or those given to it, as the shards have them."""
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

    def size(self, view: str) -> int:
        """Return how many rows a view has."""
        return int(self.table(view).num_rows)

    def unchanged(self, view: str, since: int) -> bool:
        """Return whether a view is as it was at an epoch, as far as that is still known."""
        epochs = self._since(view, since)
        return epochs is not None and not any(view in epoch.views for epoch in epochs)

    def _since(self, view: str, since: int) -> list[Committed] | None:
        """Return the epochs after one, if the changes of the view were written down in all."""
        kept = set(self._epochs.numbers())
        numbers = range(since + 1, self.epoch + 1)
        if since < 0 or not kept.issuperset(numbers):
            return None
        epochs = [self._sure if n == self.epoch else self._epochs.read(n) for n in numbers]
        return epochs if all(view in epoch.watched for epoch in epochs) else None

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return what each epoch after `since` changed in a view."""
        epochs = self._since(view, since)
        if epochs is None:
            raise UsageError(
                f"what changed in `{view}` since epoch {since} is not kept any more"
                "\n  help: `retain_epochs` sets how many epochs are; or give the sink another path"
            )
        relation, records = self._program.relations[view], self._program.records
        for epoch, net in self._views.net(view, epochs):
            if net:
                yield epoch, changes_of(relation, records, net)

    def close(self) -> None:
        """Let others write."""
        self._lock.release()
