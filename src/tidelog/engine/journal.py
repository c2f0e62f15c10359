"""Writes down each epoch of an engine before it is kept in memory.

With `in_parts` what was given is on its way to the disk while the views are computed
(durable/log.py). An epoch that fails then takes it back, so that nothing has happened.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.durable.epochs import EpochRecord
from tidelog.durable.log import Log
from tidelog.durable.tables import Watermarks
from tidelog.engine import saving
from tidelog.errors import DataError, UsageError
from tidelog.values.types import Row

if TYPE_CHECKING:
    from tidelog.engine.kernel import KernelEngine


class Journal:
    """The records of an engine's epochs, in a log."""

    def __init__(self, engine: KernelEngine, *, in_parts: bool) -> None:
        self._engine = engine
        self._in_parts = in_parts
        self.log: Log
        self.watermarks = Watermarks(engine._catalog.codec)
        self.is_from_files = False
        """Whether some of what the engine holds may not have been read yet."""
        self.is_closed = False
        self.since_snapshot = 0
        """Bytes of the log that an opening would replay."""
        self._last: list[EpochRecord] = []  # the parts of the last epoch
        self._given: EpochRecord | None = None  # of an epoch that is under way

    def attach(self) -> None:
        """Be told of all epochs from now on."""
        self._engine.journal = self.keep
        if self._in_parts:
            self._engine.journal_given = self.begin
            self._engine.journal_undone = self.undo

    def begin(self, stated: Mapping[str, set[Row]]) -> None:
        """Write what is given in the epoch whose views are about to be computed."""
        self._check_open()
        entries = self.watermarks.new_entries()
        changes = saving.given_changes(self._engine, stated)
        record = EpochRecord(self.log.epoch + 1, time.time(), changes, entries)
        self.log.begin(record.epoch, record.encode())
        if entries:
            self.watermarks.written(entries)
        self._given = record

    def keep(self, stated: Mapping[str, set[Row]]) -> None:
        """Write the rest of the epoch that is about to be kept. What this raises undoes it."""
        self._check_open()
        engine, log, given = self._engine, self.log, self._given
        if self.is_from_files:
            saving.read_for_commit(engine)
        entries = self.watermarks.new_entries()
        before = log.end
        if given is not None:
            changes = saving.view_changes(engine)
            views = EpochRecord(given.epoch, time.time(), changes, entries)
            log.finish(views.encode(), views.time)
            self._last, self._given = [given, views], None
        else:
            record = saving.record_of(engine, log.epoch + 1, stated, entries)
            log.append(record.epoch, record.encode(), record.time, sync=self._in_parts)
            self._last = [record]
        self.since_snapshot += log.end - before
        if entries:
            self.watermarks.written(entries)

    @property
    def last_record(self) -> EpochRecord | None:
        """The record of the last epoch: whoever follows asks for it."""
        if len(self._last) > 1:
            given, views = self._last
            self._last = [given.with_views(views)]
        return self._last[0] if self._last else None

    def undo(self) -> None:
        """Take back what was written of an epoch that has failed."""
        given, self._given = self._given, None
        if given is not None:
            self.watermarks.taken_back(given.entries)
            self.log.undo()

    def complete(self, given: EpochRecord, *, committed: bool) -> bool:
        """Compute the views of an epoch that was found without them; return whether it counts.

        It was being committed when the machine stopped, or had just been. If it cannot be computed,
        it had not, and is cut off; unless it is known to be `committed`.
        """
        self._given = given
        self._engine.journal = self.keep
        try:
            saving.replay(self._engine, [given])
        except DataError:
            if committed:
                raise
            self.undo()
            return False
        self.log.sync()
        return True

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError("the database is closed")
