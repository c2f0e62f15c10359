"""What a trigger can do with an event: call a function, fill a queue, append to a file, send it.

A *local* action runs on the thread that commits, after the commit. Others run on a thread of their
own, so that no commit waits for a network or a disk.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidelog.database.trigger_event import Event
from tidelog.database.webhook import DeliveryError, Webhook
from tidelog.errors import UsageError
from tidelog.runtime.retry import Retry


@dataclass(frozen=True)
class JsonLines:
    """A file to which events are appended: a line of JSON for each row."""

    path: str | Path

    def append(self, data: bytes) -> None:
        """Append whole lines, and return when they are on the disk."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    data = b"\n" + data  # the last line was not finished
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise DeliveryError(f"cannot write `{self.path}`: {error.strerror}") from None


class Action(Protocol):
    """Takes one event; an exception means that it was not delivered."""

    @property
    def retry(self) -> Retry:
        """How often an event that fails is tried again, unless the trigger says otherwise."""

    @property
    def is_local(self) -> bool:
        """Whether it runs on the thread that commits."""

    def __call__(self, event: Event) -> None:
        """Deliver an event."""


@dataclass(frozen=True)
class Calling:
    """Calls a function."""

    function: Callable[[Event], object]
    is_local: bool = True

    @property
    def retry(self) -> Retry:
        """Not again: a function that is called twice may do something twice."""
        return Retry(0)

    def __call__(self, event: Event) -> None:
        """Call the function."""
        self.function(event)


@dataclass(frozen=True)
class Appending:
    """Appends to a file."""

    file: JsonLines
    is_local: bool = False

    @property
    def retry(self) -> Retry:
        """As a webhook does by default."""
        return Retry(5)

    def __call__(self, event: Event) -> None:
        """Append the lines of an event."""
        self.file.append(event.lines())


@dataclass(frozen=True)
class Posting:
    """Sends messages to a webhook."""

    webhook: Webhook
    is_local: bool = False

    @property
    def retry(self) -> Retry:
        """As the webhook says."""
        return Retry(self.webhook.retry, self.webhook.retry_seconds)

    def __call__(self, event: Event) -> None:
        """Send the messages of an event. If one fails, all are sent again."""
        for message in event.messages(self.webhook.max_rows):
            self.webhook.send(message)


def action_of(action: Any) -> Action:
    """Return what a trigger does: for a function, a queue, a `JsonLines` or a `Webhook`."""
    match action:
        case Webhook():
            return Posting(action)
        case JsonLines():
            return Appending(action)
        case queue.Queue():
            return Calling(action.put_nowait)
    if callable(action):
        return Calling(action)
    raise UsageError(
        "the action of a trigger is a function, a queue.Queue, a JsonLines or a Webhook,"
        f" not {type(action).__name__}"
    )
