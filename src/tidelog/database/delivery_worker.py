"""A thread that delivers the events of one trigger, from a queue of bounded length.

A commit only appends to the queue, and never waits. If the queue is full, the events of a named
trigger of a durable database wait on disk: the log has them, and the thread reads them there when
the queue is empty. Other events that do not fit become dead letters.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from tidelog.database.deliveries import Deliveries, Item
from tidelog.database.view import Change
from tidelog.errors import StateError, UsageError
from tidelog.runtime.retry import Clock

_CLOSING = 5.0  # seconds for what waits when a database is closed
_PAUSE = 1.0  # seconds, if the log cannot be read


class Stored(Protocol):
    """The changes of a view that a durable database retains."""

    def since(self, epoch: int) -> tuple[int, Iterator[tuple[int, Change]]]:
        """Return the last epoch, and the changes after an epoch up to it.

        Raises UsageError if they are no longer retained.
        """

    @property
    def oldest(self) -> int:
        """The first epoch whose changes after it are all retained."""


class DeliveryWorker:
    """Delivers events on a thread of its own, which is started by the first one."""

    def __init__(
        self, deliveries: Deliveries, most: int, stored: Stored | None, clock: Clock
    ) -> None:
        self._deliveries, self._most, self._stored = deliveries, most, stored
        self._clock = clock
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._latest = deliveries.epoch  # the last epoch with an event
        self._behind = False  # whether events are on disk that are not in the queue
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """How many events wait; if they are on disk, how many epochs."""
        with self._changed:
            if self._behind:
                return max(1, self._latest - self._deliveries.epoch)
            return len(self._items)

    def put(self, item: Item) -> None:
        """Add an event. This never waits."""
        with self._changed:
            if self._stop.is_set() or item.epoch <= self._deliveries.epoch:
                return  # it was read from disk before
            self._latest = item.epoch
            fits = len(self._items) < self._most
            if fits and not self._behind:
                self._items.append(item)
            elif self._stored is not None:
                self._behind = True
            if fits or self._stored is not None:
                self.start()
                return
        self._deliveries.give_up(item, f"the queue is full, with {self._most:,} events")

    def fall_behind(self, latest: int) -> None:
        """Note that events up to an epoch are on disk."""
        with self._changed:
            self._latest, self._behind = latest, True

    def catch_up(self) -> None:
        """Deliver what is on disk, on this thread."""
        while self._behind and not self._stop.is_set():
            self._from_disk()

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        with self._changed:
            if self._thread is None:
                name = f"tidelog trigger {self._deliveries.spec.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                while not self._items and not self._behind and not self._stop.is_set():
                    self._changed.wait()
                item = self._items[0] if self._items else None
            if self._stop.is_set():
                return
            if item is None:
                self._from_disk()
            elif self._deliver(item):
                with self._changed:
                    self._items.popleft()
                    self._changed.notify_all()

    def _deliver(self, item: Item) -> bool:
        """Deliver an event, or give it up; return False if the worker is stopped before."""
        retry = self._deliveries.spec.retry
        while not self._stop.is_set():
            if item.attempts:  # it has failed before
                self._clock.wait(retry.wait(item.attempts, self._clock.chance()), self._stop)
                if self._stop.is_set():
                    return False
            if self._deliveries.attempt(item):
                return True
        return False

    def _from_disk(self) -> None:
        deliveries, stored = self._deliveries, self._stored
        assert stored is not None
        try:
            last, changes = stored.since(deliveries.epoch)
            for epoch, change in changes:
                if deliveries.wants(change) and not self._deliver(Item(epoch, change)):
                    return
        except UsageError as error:  # not retained any more
            deliveries.lost(max(stored.oldest, deliveries.epoch), str(error).partition("\n")[0])
            return
        except StateError as error:
            deliveries.problem(error)
            self._clock.wait(_PAUSE, self._stop)
            return
        deliveries.pass_to(last, 0)
        with self._changed:
            if self._latest <= last:
                self._behind = False
                self._changed.notify_all()

    # --- waiting ---

    def wait(self, timeout: float | None) -> bool:
        """Wait until nothing is pending; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._items and not self._behind, timeout)

    def close(self) -> None:
        """Stop. Events that are not on disk get some seconds, and then become dead letters."""
        if self._stored is None:
            self.wait(_CLOSING)
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSING)
        if self._stored is None:
            for item in self._items:
                self._deliveries.give_up(item, "the database was closed")
            self._items.clear()

    def stop(self) -> None:
        """Stop after the attempt that is under way."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()
