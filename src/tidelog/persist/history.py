"""The past of a durable database, from its log.

A view at epoch e has the current rows, without those inserted since, and with those deleted since.
Both are in the log. So the cost is that of reading the log since then and copying the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tidelog.durable.epochs import EpochRecord, PackedChange, domain_like
from tidelog.errors import UsageError
from tidelog.persist.replay import net_change
from tidelog.store.catalog import extremes
from tidelog.store.relation import StoredRelation, without
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version


def past_relation(
    name: str, current: StoredRelation, records: Iterable[EpochRecord]
) -> StoredRelation:
    """Return the rows of a view as they were before the epochs of these records."""
    domains = [domain_like(domain.bias, domain.bits) for domain in current.domains]
    now = current.ordinals(current.rows(Version.OLD))
    changes = [part.ordinals() for _, part in view_parts(name, records)]
    inserted, deleted = net_change(changes) if changes else (now[:, :0], now[:, :0])
    # Deleted rows may have values outside the range of the current ones.
    for low, high, domain in extremes(deleted, domains):
        domain.widen(low, high)
    past = StoredRelation(name, domains)
    rows, inserted, deleted = (
        sort_words(past.pack_ordinals(ordinals)) for ordinals in (now, inserted, deleted)
    )
    if changes:
        rows = sort_words(np.concatenate([without(rows, inserted), deleted], axis=1))
    past.replace(rows, None, None)
    return past


def while_declared(name: str, epoch: int, records: Iterable[EpochRecord]) -> Iterator[EpochRecord]:
    """Yield records after an epoch; raise UsageError if a relation was declared after it."""
    for record in records:
        if record.program is not None and name in record.program.declared:
            raise UsageError(
                f"`{name}` was not declared at epoch {epoch}:"
                f" the program has it since epoch {record.epoch}"
            )
        yield record


def view_parts(name: str, records: Iterable[EpochRecord]) -> Iterator[tuple[int, PackedChange]]:
    """Yield the changes of one view, with their epochs."""
    for record in records:
        for part in record.changes:
            if part.relation == name and part.role.is_view:
                yield record.epoch, part


def check_retained(epoch: int, oldest: int, newest: int) -> None:
    """Raise UsageError for an epoch that does not exist yet, or is no longer retained."""
    if epoch > newest:
        raise UsageError(f"there is no epoch {epoch} yet: the last one is {newest}")
    if epoch < oldest:
        raise UsageError(
            f"epoch {epoch} is not retained any more: the first one is {oldest}"
            "\n  help: `retain_epochs` and `retain_seconds` set how many are"
        )
