"""Triggers: actions that follow from the changes of views.

A commit appends its changes to a queue, in commit order. When the epoch is durable and no
transaction is open, the thread that committed delivers them: functions are called, everything else
is handed to the thread of its trigger (delivery_worker.py). So an action can open a transaction.
Its events are delivered after those that are being delivered.

    commit ──► queue of (epoch, trigger, change) ──► function
               in commit order                   └─► thread of the trigger ──► webhook, file

If several threads commit, one of them delivers at a time, and it may deliver events of others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidelog.database.actions import action_of
from tidelog.database.condition import Condition, Where, rows_of
from tidelog.database.core import DatabaseCore
from tidelog.database.deliveries import Deliveries, Item, TriggerSpec
from tidelog.database.delivery_worker import DeliveryWorker
from tidelog.database.past import answer_with, changes_since
from tidelog.database.trigger_event import TriggerFailure
from tidelog.database.view import Change, Rows
from tidelog.durable.deliveries import DeadLetter, DeliveryFile
from tidelog.engine.protocol import NetChange
from tidelog.errors import UsageError
from tidelog.logic.program import Program
from tidelog.persist.history import check_retained
from tidelog.persist.state_writer import StateWriter
from tidelog.runtime.retry import Clock, Retry

_STEP = 50
"""Epochs after which a trigger records that it had nothing to deliver."""


@dataclass(frozen=True)
class TriggerStatus:
    """How a trigger is doing."""

    name: str
    on: str
    """The event: `+view`, `-view` or `view`."""
    epoch: int
    """All events up to this epoch are delivered, or dead letters."""
    delivered: int
    """How many events have been delivered."""
    pending: int
    """How many wait; if they wait on disk, how many epochs."""
    failed: int
    """How many are dead letters."""
    last_error: str
    dead_letters: tuple[DeadLetter, ...]
    """The last ones."""


class TriggerHandle:
    """A trigger of a database."""

    def __init__(self, triggers: Triggers, deliveries: Deliveries, worker: DeliveryWorker) -> None:
        self._triggers, self.deliveries, self.worker = triggers, deliveries, worker
        self.is_local = deliveries.spec.action.is_local

    @property
    def name(self) -> str:
        """Its name; made up if none was given."""
        return self.deliveries.spec.name

    @property
    def status(self) -> TriggerStatus:
        """What it has delivered, what waits, and what failed."""
        deliveries, pending = self.deliveries, self.worker.pending
        record = deliveries.record
        return TriggerStatus(
            self.name, deliveries.spec.on, record.epoch, record.delivered, pending, record.failed,
            deliveries.last_error, deliveries.letters,
        )  # fmt: skip

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all committed events are delivered, or dead letters; False after a timeout."""
        return self.worker.wait(timeout)

    def remove(self) -> None:
        """End the trigger. What it has delivered is forgotten, too."""
        self._triggers.remove(self)

    def __repr__(self) -> str:
        return f"<TriggerHandle {self.name} on {self.deliveries.spec.on}>"


class _StoredChanges:
    """The changes of a view in the log of a durable database."""

    def __init__(self, triggers: Triggers, writer: StateWriter, view: str) -> None:
        self._triggers, self._writer, self._view = triggers, writer, view

    @property
    def oldest(self) -> int:
        """The first epoch whose changes after it are all retained."""
        return self._writer.oldest_epoch

    def since(self, epoch: int) -> tuple[int, Iterator[tuple[int, Change]]]:
        """Return the last epoch, and the changes after an epoch up to it."""
        core, last = self._triggers.core, self._triggers.ready
        check_retained(epoch, self.oldest, last)
        records = self._writer.published_records(epoch)
        found = changes_since(
            self._view, core.program, core.kernel.state.codec, records, core.reading
        )
        return last, ((number, change) for number, change in found if number <= last)


class Triggers:
    """All triggers of a database."""

    def __init__(self, core: DatabaseCore) -> None:
        self.core = core
        self._handles: tuple[TriggerHandle, ...] = ()
        self._waiting: deque[tuple[int, TriggerHandle, NetChange]] = deque()
        self.ready = core.epoch
        """Epochs up to this one may be delivered: they are durable."""
        self._turn = threading.Lock()  # held by the thread that delivers
        self._owner = 0
        self._count = 0
        self._step = _STEP
        if core.state_writer is not None:
            self._step = max(1, min(_STEP, core.state_writer.retained_epochs // 2))
        self.clock = Clock()

    def __iter__(self) -> Iterator[TriggerHandle]:
        return iter(self._handles)

    # --- registering ---

    def on(
        self,
        event: str,
        action: Any,
        where: Where,
        name: str | None,
        retry: Retry | None,
        on_error: Callable[[TriggerFailure], object] | None,
        queue: int,
    ) -> TriggerHandle:
        """Register a trigger. If it has a name that is known, deliver what it is missing."""
        core = self.core
        sign, view = (event[0], event[1:]) if event[:1] in ("+", "-") else ("", event)
        relation, records = core.program.relation(view), core.program.records
        if queue < 1:
            raise UsageError(f"`queue` must be 1 or more, not {queue}")
        does = action_of(action)
        if name is not None and any(name == handle.name for handle in self._handles):
            raise UsageError(f"there is a trigger `{name}` already")
        condition = Condition(core.program, view, where, core.engine.name)
        self._count += 1
        called = name if name is not None else f"trigger {self._count}"
        spec = TriggerSpec(called, view, sign, does, retry or does.retry, on_error)
        is_recorded = name is not None and core.state_writer is not None
        file = DeliveryFile(_writer_of(core).files, called) if is_recorded else None
        nothing = rows_of(frozenset(), relation, records)
        core.begin()  # the epoch at which it begins
        try:
            core.wait_until_durable(core.epoch)
            self.ready = max(self.ready, core.epoch)
            deliveries = Deliveries(spec, condition, nothing, core.epoch, file)
            if file is not None:
                self._resume(deliveries, file)
            stored = None if file is None else _StoredChanges(self, _writer_of(core), view)
            worker = DeliveryWorker(deliveries, queue, stored, self.clock)
            handle = TriggerHandle(self, deliveries, worker)
            is_missing = deliveries.epoch < core.epoch
            if is_missing:
                worker.fall_behind(core.epoch)  # later events wait for those on disk
            self._handles = (*self._handles, handle)
        finally:
            core.end()
        if is_missing:
            self._catch_up(handle)
        return handle

    def _catch_up(self, handle: TriggerHandle) -> None:
        """Deliver what a trigger is missing; on this thread, if its action is local."""
        if not handle.is_local:
            handle.worker.start()
        elif self._owner == threading.get_ident():
            handle.worker.catch_up()
        else:
            with self._turn:
                self._owner = threading.get_ident()
                try:
                    handle.worker.catch_up()
                finally:
                    self._owner = 0
            self.run(self.ready)

    def _resume(self, deliveries: Deliveries, file: DeliveryFile) -> None:
        """Continue where an earlier process has stopped."""
        spec, epoch = deliveries.spec, self.core.epoch
        record = file.read()
        if record is None:
            file.create(deliveries.record)
            return
        if (record.view, record.sign) != (spec.view, spec.sign):
            file.close()
            raise UsageError(
                f"trigger `{spec.name}` was on `{record.sign}{record.view}` before"
                "\n  help: give it another name, or `remove` the old one first"
            )
        deliveries.resume(record)
        if record.epoch > epoch:
            deliveries.lost(
                record.epoch,
                f"it has delivered epoch {record.epoch}, but the database is at epoch {epoch}",
            )
            deliveries.restart(epoch)

    def remove(self, handle: TriggerHandle) -> None:
        """Remove a trigger and its record."""
        if handle in self._handles:
            self._handles = tuple(other for other in self._handles if other is not handle)
            handle.worker.stop()
            handle.deliveries.forget()

    def close(self) -> None:
        """Stop all triggers, and record where they are."""
        handles, self._handles = self._handles, ()
        for handle in handles:
            handle.worker.close()
            handle.deliveries.close()

    # --- an epoch ---

    def check(self, program: Program) -> None:
        """Raise UsageError if a new program does not declare what a trigger watches."""
        for view in (handle.deliveries.spec.view for handle in self._handles):
            if view not in program.relations:
                raise UsageError(
                    f"a trigger watches `{view}`, so its declaration cannot be dropped"
                    "\n  help: remove the trigger first"
                )

    def committed(self, epoch: int, changes: Mapping[str, NetChange]) -> None:
        """Add the events of an epoch that has just committed. No row is decoded here."""
        for handle in self._handles:
            spec = handle.deliveries.spec
            net = changes.get(spec.view)
            if net is not None and net.signs & spec.signs:
                self._waiting.append((epoch, handle, net))

    def run(self, epoch: int) -> None:
        """Deliver what waits, up to an epoch that is durable; unless another thread does."""
        self.ready = max(self.ready, epoch)
        me = threading.get_ident()
        while self._owner != me and self._turn.acquire(blocking=False):
            self._owner = me
            try:
                self._deliver()
            finally:
                self._owner = 0
                self._turn.release()
            if not self._waiting or self._waiting[0][0] > self.ready:
                return  # else another thread has added more, and left it to this one

    def _deliver(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.ready:
            epoch, handle, net = waiting.popleft()
            if handle in self._handles:
                self._hand_over(handle, Item(epoch, self._change(handle, net)))
        for handle in self._handles:
            if not handle.worker.pending:
                handle.deliveries.pass_to(self.ready, self._step)

    def _hand_over(self, handle: TriggerHandle, item: Item) -> None:
        """Deliver an event here, if its action is local and no earlier event waits."""
        if not handle.is_local or handle.worker.pending or not handle.deliveries.attempt(item):
            handle.worker.put(item)

    def _change(self, handle: TriggerHandle, net: NetChange) -> Change:
        """Return a net change, to be read by any thread."""
        core, view = self.core, handle.deliveries.spec.view
        relation, records = core.program.relations[view], core.program.records
        inserted, deleted = (
            Rows(relation, records, partial(answer_with, core.reading, reader))
            for reader in net.readers(relation, records)
        )
        return Change(inserted, deleted)


def _writer_of(core: DatabaseCore) -> StateWriter:
    """Return what writes the files of a durable database."""
    assert core.state_writer is not None
    return core.state_writer
