"""Events of triggers: sent to a webhook, or appended to a file as lines of JSON.

An event is the changes of one epoch. Its id consists of the token of the trigger and the epoch, and
is the same when the event is delivered again: after a failure, or after a crash. The rows of an
event are sorted, so that its messages are the same, too.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.database.actions import JsonLines
from tidelog.database.messages import JsonRow, MessageSource, lines, messages, table_records
from tidelog.database.webhook import DeliveryError, post
from tidelog.spark.declared import Trigger
from tidelog.spark.retries import Outage
from tidelog.spark.sinks import Writer
from tidelog.spark.view_changes import EPOCH, OP


class EventWriter(Writer):
    """Delivers events in the process of the driver."""

    collects = True

    @property
    def _trigger(self) -> Trigger:
        assert self.spec.trigger is not None
        return self.spec.trigger

    @property
    def where(self) -> str:
        """The target, for messages; an address may be a secret."""
        return self.spec.path or "a webhook"

    def write_table(self, epoch: int, frame: Any) -> None:
        """Never called: a trigger takes changes, and declarations are checked."""
        raise AssertionError

    def write_changes(self, epoch: int, frame: pa.Table) -> None:
        """Deliver the event of an epoch."""
        if not frame.num_rows:
            return
        source = MessageSource(f"{self.token}-{epoch}", self.spec.name, self.spec.view, epoch)
        try:
            self._deliver(source, _records(frame, "+"), _records(frame, "-"))
        except DeliveryError as error:
            raise Outage(f"trigger `{self.spec.name}`: {error}") from None

    def _deliver(
        self, source: MessageSource, inserted: list[JsonRow], deleted: list[JsonRow]
    ) -> None:
        raise NotImplementedError


class WebhookWriter(EventWriter):
    """Sends events to a web server."""

    def _deliver(
        self, source: MessageSource, inserted: list[JsonRow], deleted: list[JsonRow]
    ) -> None:
        spec = self._trigger
        secret = str.__str__(spec.secret).encode()
        for message in messages(source, inserted, deleted, spec.max_rows):
            post(
                str.__str__(spec.webhook), message, secret,
                timeout=spec.timeout, ca_file=spec.ca_file,
            )  # fmt: skip


class LinesWriter(EventWriter):
    """Appends events to a local file."""

    def _deliver(
        self, source: MessageSource, inserted: list[JsonRow], deleted: list[JsonRow]
    ) -> None:
        JsonLines(self.spec.path).append(lines(source, inserted, deleted))


def _records(table: pa.Table, op: str) -> list[JsonRow]:
    """Return the rows of one sign, in the order of their values as far as Arrow has one."""
    import pyarrow.compute as pc

    rows = table.filter(pc.equal(table.column(OP), op)).drop_columns([OP, EPOCH])
    if not rows.num_columns:
        return [{} for _ in range(int(pc.sum(pc.equal(table.column(OP), op)).as_py() or 0))]
    keys = [(f.name, "ascending") for f in rows.schema if not pa.types.is_nested(f.type)]
    return table_records(rows.sort_by(keys) if keys else rows)
