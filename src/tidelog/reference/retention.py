"""Old given rows are deleted: `.retain payment(at, "1h")`, on Python sets."""

from __future__ import annotations

from collections.abc import Set

from tidelog.logic.program import Retain
from tidelog.values.types import Row

Rows = frozenset[Row]


def retained(retain: Retain, given: Set[Row], inserted: Set[Row]) -> tuple[Rows, Rows]:
    """Return the rows of an epoch that are late, and the given rows that expire with it."""
    if not inserted:
        return frozenset(), frozenset()
    newest = max(row[retain.column] for row in given | inserted)

    def old(rows: Set[Row]) -> Rows:
        return frozenset(r for r in rows if retain.is_too_old(r[retain.column], newest))

    return old(inserted), old(given)
