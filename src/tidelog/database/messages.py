"""Events as JSON: messages for webhooks, and lines for files.

    {"id": "5f..-7-1", "trigger": "alerts", "view": "fraud", "epoch": 7, "part": 1, "parts": 1,
     "inserted": [{"account": "a", "amount": 120}], "deleted": []}

An event with many rows is several messages. Their number depends on the event only, so a message
has the same id and content whenever it is sent. Dates and timestamps are ISO 8601, decimals are
text, and so are floats that are not finite.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.database.view import Rows

JsonRow = dict[str, Any]
"""A row, by the names of its columns."""


@dataclass(frozen=True)
class Message:
    """What is sent in one request."""

    id: str
    """The same whenever it is sent."""
    body: bytes


@dataclass(frozen=True)
class MessageSource:
    """Where the rows of messages come from."""

    id: str
    """The id of the event."""
    trigger: str
    view: str
    epoch: int


def records_of(rows: Rows) -> list[JsonRow]:
    """Return rows as records."""
    if not rows.columns:
        return [{} for _ in range(len(rows))]  # an Arrow table without columns has no rows
    return table_records(rows.to_arrow())


def table_records(table: pa.Table) -> list[JsonRow]:
    """Return the rows of an Arrow table as records."""
    found: list[JsonRow] = table.to_pylist()
    return found


def messages(
    source: MessageSource, inserted: Sequence[JsonRow], deleted: Sequence[JsonRow], most: int
) -> Iterator[Message]:
    """Yield the messages of an event, each with `most` rows at most; deleted rows come first."""
    total = len(inserted) + len(deleted)
    parts = max(1, -(-total // most))
    for part in range(parts):
        low, high = part * most, (part + 1) * most
        less, more = len(deleted), max(0, low - len(deleted))
        content = {
            "id": f"{source.id}-{part + 1}",
            "trigger": source.trigger,
            "view": source.view,
            "epoch": source.epoch,
            "part": part + 1,
            "parts": parts,
            "inserted": inserted[more : max(0, high - less)],
            "deleted": deleted[low:high],
        }
        yield Message(f"{source.id}-{part + 1}", as_json(content))


def lines(source: MessageSource, inserted: Sequence[JsonRow], deleted: Sequence[JsonRow]) -> bytes:
    """Return an event as lines of JSON, one for each row; deleted rows come first."""
    result = []
    for op, rows in (("-", deleted), ("+", inserted)):
        for row in rows:
            content = {
                "id": source.id,
                "trigger": source.trigger,
                "view": source.view,
                "epoch": source.epoch,
                "op": op,
                "row": row,
            }
            result.append(as_json(content) + b"\n")
    return b"".join(result)


def as_json(value: Any) -> bytes:
    """Return a value as JSON.

    >>> as_json({"at": dt.date(2026, 3, 1), "x": [1.5, float("nan")]})
    b'{"at": "2026-03-01", "x": [1.5, "nan"]}'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:  # JSON has no infinity and no NaN
        text = json.dumps(_finite(value), ensure_ascii=False, default=_plain)
    return text.encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    match value:
        case dt.datetime() | dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list():
            return [_finite(part) for part in value]
    return value
