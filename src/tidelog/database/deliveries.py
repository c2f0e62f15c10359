"""The deliveries of one trigger: attempts, failures, dead letters, and how far it is.

An event that fails is tried again as its policy says, and then becomes a dead letter. Later events
of the trigger wait until then, so that they are delivered in order. A named trigger of a durable
database records its progress (durable/deliveries.py), so that the next process continues there.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelog.database.actions import Action
from tidelog.database.condition import Condition
from tidelog.database.trigger_event import SIGNS, Event, TriggerFailure
from tidelog.database.view import Change, Rows
from tidelog.durable.deliveries import DeadLetter, DeliveryFile, DeliveryRecord
from tidelog.errors import StateError
from tidelog.logic.signs import Signs
from tidelog.runtime.retry import Retry

LOGGER = logging.getLogger("tidelog.triggers")
_LETTERS = 100  # dead letters that are remembered


@dataclass(frozen=True)
class TriggerSpec:
    """What a trigger is on, and what it does."""

    name: str
    view: str
    sign: str
    action: Action
    retry: Retry
    on_error: Callable[[TriggerFailure], object] | None = None

    @property
    def on(self) -> str:
        """The event, as it was given."""
        return self.sign + self.view

    @property
    def signs(self) -> Signs:
        """The signs of the changes that it is on."""
        return SIGNS[self.sign]


@dataclass
class Item:
    """A change that waits to be delivered."""

    epoch: int
    change: Change
    attempts: int = 0


class Deliveries:
    """Delivers the events of one trigger. One thread at a time attempts it."""

    def __init__(
        self,
        spec: TriggerSpec,
        condition: Condition,
        nothing: Rows,
        epoch: int,
        file: DeliveryFile | None,
    ) -> None:
        """`nothing` is the view without rows; `file` is for a named trigger."""
        self.spec, self._condition, self._nothing = spec, condition, nothing
        self._file = file
        self._updating = threading.RLock()
        token = secrets.token_hex(8)
        self.record = DeliveryRecord(spec.view, spec.sign, token, epoch)
        self._recorded = epoch
        self.letters: tuple[DeadLetter, ...] = ()
        self.last_error = ""

    def resume(self, record: DeliveryRecord) -> None:
        """Continue what an earlier process has recorded."""
        self.record, self._recorded = record, record.epoch
        self.letters = record.letters

    def restart(self, epoch: int) -> None:
        """Begin again at an epoch, with other ids."""
        self.record = replace(self.record, epoch=epoch, token=secrets.token_hex(8))
        self._write()

    @property
    def epoch(self) -> int:
        """All events up to this epoch are delivered, or dead letters."""
        return self.record.epoch

    def wants(self, change: Change) -> bool:
        """Return whether a change has rows of the trigger's sign."""
        return bool((self.spec.sign != "-" and change.inserted)
                    or (self.spec.sign != "+" and change.deleted))  # fmt: skip

    # --- attempts ---

    def attempt(self, item: Item) -> bool:
        """Deliver an event; return False if it failed and is to be tried again."""
        item.attempts += 1
        try:
            event = self._event(item)
            if event is not None:
                self.spec.action(event)
        except Exception as error:
            is_final = item.attempts > self.spec.retry.times
            self._failed(item, error, is_final=is_final)
            return is_final
        except BaseException as error:  # Ctrl-C, or the end of the process
            self._failed(item, RuntimeError(type(error).__name__), is_final=True)
            raise
        self._move(item.epoch, delivered=event is not None)
        return True

    def _event(self, item: Item) -> Event | None:
        """Return the event of a change; None if no row fulfils the condition."""
        spec, change = self.spec, item.change
        inserted = self._condition(change.inserted) if spec.sign != "-" else self._nothing
        deleted = self._condition(change.deleted) if spec.sign != "+" else self._nothing
        if not inserted and not deleted:
            return None
        id_ = self._id(item.epoch)
        return Event(spec.name, spec.view, spec.sign, item.epoch, id_, inserted, deleted)

    def _id(self, epoch: int) -> str:
        return f"{self.record.token}-{epoch}"

    def give_up(self, item: Item, why: str) -> None:
        """Make a dead letter of an event, without another attempt."""
        self._failed(item, DroppedEventError(why), is_final=True)

    def lost(self, last: int, why: str) -> None:
        """Report that the events after the trigger's epoch, up to `last`, cannot be delivered."""
        self.last_error = why
        error = DroppedEventError(why)
        self._report(TriggerFailure(self.spec.name, "", last, 0, is_final=True, error=error))
        self._letter("", last, 0, error)
        self._move(last, delivered=False)

    def _failed(self, item: Item, error: Exception, *, is_final: bool) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        id_ = self._id(item.epoch)
        if is_final:
            self._letter(id_, item.epoch, item.attempts, error)
            self._move(item.epoch, delivered=False)
        self._report(
            TriggerFailure(self.spec.name, id_, item.epoch, item.attempts, is_final, error)
        )

    def _letter(self, id_: str, epoch: int, attempts: int, error: Exception) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        letter = DeadLetter(id_, epoch, attempts, self.last_error, now)
        # The text of an error may quote rows, so that files have only its kind.
        stored = replace(letter, error=type(error).__name__)
        with self._updating:
            record = self.record
            self.letters = (*self.letters, letter)[-_LETTERS:]
            self.record = replace(
                record, failed=record.failed + 1, letters=(*record.letters, stored)[-_LETTERS:]
            )

    def _report(self, failure: TriggerFailure) -> None:
        then = "it is not tried again" if failure.is_final else "it is tried again"
        LOGGER.log(
            logging.ERROR if failure.is_final else logging.WARNING,
            "trigger `%s`: epoch %d failed, %s: %s",
            failure.trigger, failure.epoch, then, self.last_error,
        )  # fmt: skip
        if self.spec.on_error is not None:
            try:
                self.spec.on_error(failure)
            except Exception:
                LOGGER.exception("`on_error` of trigger `%s` failed", self.spec.name)

    # --- progress ---

    def pass_to(self, epoch: int, step: int) -> None:
        """Note that no event waits up to an epoch; record it if the last record is `step` old."""
        with self._updating:
            if epoch > self.record.epoch:
                self.record = replace(self.record, epoch=epoch)
                if epoch - self._recorded >= step:
                    self._write()

    def problem(self, error: StateError) -> None:
        """Note that a file cannot be read or written. Nothing is lost by that."""
        self.last_error = str(error)
        LOGGER.error("trigger `%s`: %s", self.spec.name, error)

    def _move(self, epoch: int, *, delivered: bool) -> None:
        with self._updating:
            record = self.record
            self.record = replace(
                record, epoch=max(epoch, record.epoch), delivered=record.delivered + delivered
            )
            self._write()

    def _write(self) -> None:
        with self._updating:
            if self._file is None:
                return
            try:
                self._file.write(self.record)
                self._recorded = self.record.epoch
            except StateError as error:  # events since the last record may be delivered again
                self.problem(error)

    def close(self) -> None:
        """Record where the trigger is."""
        with self._updating:
            self._write()
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def forget(self) -> None:
        """Remove the record."""
        with self._updating:
            file, self._file = self._file, None
            if file is not None:
                file.remove()


class DroppedEventError(Exception):
    """An event that was not delivered, and is not tried again."""
