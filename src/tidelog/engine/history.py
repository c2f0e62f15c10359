"""The past of a durable database: its views as they were, and what changed since.

Rows of a view at epoch e are the rows of now, without those that came since, and with those that
went. What came and went is in the log; so the past costs a reading of the log since then, and a
copy of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

import numpy as np

from tidelog.durable.epochs import EpochRecord, Rows, domain_like
from tidelog.engine import view
from tidelog.engine.changed_rows import Contents, reader_of
from tidelog.engine.reads import Reader
from tidelog.engine.saving import net_change
from tidelog.engine.stored_reads import StoredReader
from tidelog.engine.view import Change, View
from tidelog.errors import UsageError
from tidelog.logic.program import Program, Relation
from tidelog.maintain.catalog import Catalog, extremes
from tidelog.store.codec import Codec
from tidelog.store.relation import StoredRelation, without
from tidelog.store.run import Words, sort_words
from tidelog.store.versions import Version

T = TypeVar("T")
Records = Callable[[int], Iterator[EpochRecord]]
"""Returns the records of all epochs after one."""


class Past:
    """A database as it was at one epoch: views can be read, nothing can be changed."""

    def __init__(
        self,
        epoch: int,
        program: Program,
        catalog: Catalog,
        records: Records,
        reading: AbstractContextManager[object],
    ) -> None:
        self.epoch = epoch
        self._program, self._catalog = program, catalog
        self._records, self._reading = records, reading
        self._held: dict[str, Contents] = {}

    def view(self, name: str) -> View:
        """Return a relation as it was. It is put together when it is first read."""
        relation = declared(self._program, name)
        return View(relation, self._program.records, partial(self._ask, relation))

    def _ask(self, relation: Relation, question: Callable[[Reader], T]) -> T:
        with self._reading:
            held = self._held.get(relation.name)
            if held is None:
                held = self._held[relation.name] = self._contents(relation.name)
            return question(StoredReader(held, relation))

    def _contents(self, name: str) -> Contents:
        current = self._catalog.relations[name]
        domains = [domain_like(domain.bias, domain.bits) for domain in current.domains]
        now = current.ordinals(current.rows(Version.OLD))
        changes = [part.ordinals() for _, part in parts_of(name, self._records(self.epoch))]
        came, went = net_change(changes) if changes else (now[:, :0], now[:, :0])
        # What is gone may be wider than all that is left.
        for low, high, domain in extremes(went, domains):
            domain.widen(low, high)
        past = StoredRelation(name, domains)
        rows, came, went = (
            sort_words(past.pack_ordinals(ordinals)) for ordinals in (now, came, went)
        )
        if changes:
            rows = sort_words(np.concatenate([without(rows, came), went], axis=1))
        past.replace(rows, None, None)
        return Contents(self._catalog.codec, {name: past})

    def __repr__(self) -> str:
        return f"<{self._program.name} at epoch {self.epoch}>"


def changes_since(
    name: str, program: Program, codec: Codec, records: Iterator[EpochRecord]
) -> Iterator[tuple[int, Change]]:
    """Yield what each epoch changed in a view, with its number; epochs without change are not."""
    relation = declared(program, name)
    for epoch, part in parts_of(name, records):
        inserted, deleted = (
            _stored_rows(relation, program, codec, part, words)
            for words in (part.inserted, part.deleted)
        )
        yield epoch, Change(inserted, deleted)


def _stored_rows(
    relation: Relation, program: Program, codec: Codec, part: Rows, words: Words
) -> view.Rows:
    """Return rows of a record, packed as they are; they are decoded when somebody looks."""
    reader = reader_of(relation, codec, part.domains(), sort_words(words.copy()))
    return view.Rows(relation, program.records, partial(_answer, reader))


def _answer(reader: Reader, question: Callable[[Reader], T]) -> T:
    return question(reader)


def parts_of(name: str, records: Iterator[EpochRecord]) -> Iterator[tuple[int, Rows]]:
    """Yield the changes of one view, with the epochs."""
    for record in records:
        for part in record.changes:
            if part.relation == name and part.role.is_view:
                yield record.epoch, part


def check_retained(epoch: int, oldest: int, newest: int) -> None:
    """Raise UsageError for an epoch that has not come yet, or that is not kept any more."""
    if epoch > newest:
        raise UsageError(f"there is no epoch {epoch} yet: the last one is {newest}")
    if epoch < oldest:
        raise UsageError(
            f"epoch {epoch} is not kept any more: the first one is {oldest}"
            "\n  help: `retain_epochs` and `retain_seconds` set how many are"
        )


def declared(program: Program, name: str) -> Relation:
    """Return the declaration of a relation; raise UsageError if there is none."""
    from tidelog.errors import did_you_mean

    if name not in program.relations:
        hint = did_you_mean(name, program.relations)
        raise UsageError(f"relation `{name}` is not declared" + (f"; {hint}" if hint else ""))
    return program.relations[name]
