"""What a trigger delivers, and what it reports when that fails."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.database.messages import JsonRow, Message, MessageSource, lines, messages, records_of
from tidelog.database.view import Rows
from tidelog.errors import UsageError
from tidelog.logic.signs import Signs

SIGNS = {"+": Signs.PLUS, "-": Signs.MINUS, "": Signs.BOTH}


@dataclass(frozen=True)
class Event:
    """The net change of a view in one epoch, as a trigger selects it.

    `id` is the same whenever the event is delivered again.
    """

    trigger: str
    view: str
    sign: str
    """`+`, `-`, or the empty text for both."""
    epoch: int
    id: str
    inserted: Rows
    """The inserted rows; none if the trigger is on deletions only."""
    deleted: Rows
    """The deleted rows; none if the trigger is on insertions only."""

    @property
    def rows(self) -> Rows:
        """The rows of a trigger on insertions only, or on deletions only."""
        if not self.sign:
            raise UsageError(
                f"a trigger on `{self.view}` has `inserted` and `deleted` rows"
                f"\n  help: `+{self.view}` is for insertions, `-{self.view}` for deletions"
            )
        return self.inserted if self.sign == "+" else self.deleted

    def messages(self, most: int) -> list[Message]:
        """Return the event as JSON, in messages of at most `most` rows."""
        return list(messages(self._source, *self._records(), most))

    def lines(self) -> bytes:
        """Return the event as lines of JSON, one for each row."""
        return lines(self._source, *self._records())

    @property
    def _source(self) -> MessageSource:
        return MessageSource(self.id, self.trigger, self.view, self.epoch)

    def _records(self) -> tuple[list[JsonRow], list[JsonRow]]:
        return records_of(self.inserted), records_of(self.deleted)

    def __repr__(self) -> str:
        changes = f"+{len(self.inserted)} -{len(self.deleted)}"
        return f"<Event {self.id}: {self.view} {changes}, epoch {self.epoch}>"


@dataclass(frozen=True)
class TriggerFailure:
    """A failed attempt to deliver an event; for `on_error`."""

    trigger: str
    id: str
    """The id of the event; the empty text if epochs were lost."""
    epoch: int
    attempts: int
    is_final: bool
    """Whether it is not tried again: the event is a dead letter."""
    error: Exception
