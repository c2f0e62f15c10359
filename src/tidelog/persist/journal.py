"""Writes each epoch of an engine to the log before the engine commits it.

With `in_parts`, the given rows are written and synced while the views are computed
(durable/log.py). If the epoch fails, the journal removes them from the log again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog.durable.dictionaries import Watermarks
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.log import Log
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import NoObserver
from tidelog.errors import DataError, UsageError
from tidelog.persist.replay import replay


class Journal:
    """The records of an engine's epochs, in a log. It is an `EpochObserver` of the engine."""

    def __init__(self, engine: KernelEngine, *, in_parts: bool) -> None:
        self._engine, self._state = engine, engine.state
        self._in_parts = in_parts
        self.log: Log
        self.watermarks = Watermarks(engine.state.codec)
        self.is_from_files = False
        """Whether some of the engine's state may not have been read from files yet."""
        self.is_closed = False
        self.since_snapshot = 0
        """Bytes of the log that an opening would replay."""
        self._last: list[EpochRecord] = []  # the parts of the last epoch
        self._begun: EpochRecord | None = None  # the given part of the epoch under way

    def attach(self) -> None:
        """Write all epochs from now on."""
        self._engine.observer = self

    # --- an epoch ---

    def given(self) -> None:
        """Write the given part of the epoch, if it is written in parts."""
        if not self._in_parts:
            return
        self._check_open()
        entries = self.watermarks.new_entries()
        changes = self._state.given_changes()
        program = self._engine.new_program
        record = EpochRecord(self.log.epoch + 1, time.time(), changes, entries, program)
        self.log.begin(record.epoch, record.encode())
        if entries:
            self.watermarks.note_written(entries)
        self._begun = record

    def computed(self) -> None:
        """Write the rest of the epoch, which is about to be committed."""
        self._check_open()
        state, log, begun = self._state, self.log, self._begun
        if self.is_from_files:
            state.read_for_commit()
        entries = self.watermarks.new_entries()
        before = log.end
        if begun is not None:
            views = EpochRecord(begun.epoch, time.time(), state.view_changes(), entries)
            log.finish(views.encode(), views.time)
            self._last, self._begun = [begun, views], None
        else:
            changes = state.given_changes() + state.view_changes()
            program = self._engine.new_program
            record = EpochRecord(log.epoch + 1, time.time(), changes, entries, program)
            log.append(record.epoch, record.encode(), record.time, sync=self._in_parts)
            self._last = [record]
        self.since_snapshot += log.end - before
        if entries:
            self.watermarks.note_written(entries)

    def undone(self) -> None:
        """Remove from the log what was written of an epoch that has failed."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self.watermarks.note_unwritten(begun.entries)
            self.log.undo()

    @property
    def last_record(self) -> EpochRecord | None:
        """The record of the last epoch, for those who follow each epoch."""
        if len(self._last) > 1:
            given, views = self._last
            self._last = [given.with_views(views)]
        return self._last[0] if self._last else None

    # --- opening ---

    def complete(self, given: EpochRecord, *, committed: bool) -> bool:
        """Compute the views of an epoch without a view part; return whether it is committed.

        The machine stopped during its commit, or shortly after. If it cannot be computed, it was
        not committed, and is cut off; unless it is known to be `committed`.
        """
        self._begun = given
        self._engine.observer = _ViewsOnly(self.computed)
        try:
            replay(self._engine, [given])
        except DataError:
            if committed:
                raise
            self.undone()
            return False
        self.log.sync()
        return True

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError("the database is closed")


class _ViewsOnly(NoObserver):
    """Observes an epoch whose given part is in the log already."""

    def __init__(self, computed: Callable[[], None]) -> None:
        self._computed = computed

    def computed(self) -> None:
        """Write the view part."""
        self._computed()
