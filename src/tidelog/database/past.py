"""A durable database as it was at an earlier epoch, and what each epoch changed in a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.database.view import Change, Rows, View
from tidelog.durable.epochs import EpochRecord, PackedChange
from tidelog.engine.changed_rows import reader_of
from tidelog.engine.reads import Reader
from tidelog.engine.stored_reads import StoredReader
from tidelog.engine.tree_reads import stored_rows
from tidelog.logic.program import Program, Relation
from tidelog.persist.history import past_relation, view_parts, while_declared
from tidelog.store.catalog import Catalog
from tidelog.store.codec import Codec
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.sorting import sort_words

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Records = Callable[[int], Iterator[EpochRecord]]
"""Returns the records of all epochs after one."""


class Past:
    """A database as it was at one epoch: its views can be read, nothing can be changed."""

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
        self._views: dict[str, StoredRelation] = {}

    def view(self, name: str) -> View:
        """Return a relation as it was. Its rows are computed when it is first read."""
        relation = self._program.relation(name)
        return View(relation, self._program.records, partial(self._ask, relation))

    def batches(self, view: str, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a view in no particular order, or one of `parts` shares of them."""
        with self._reading:
            yield from self._reader(self._program.relation(view)).batches(part, parts)

    def _ask(self, relation: Relation, question: Callable[[Reader], T]) -> T:
        with self._reading:
            return question(self._reader(relation))

    def _reader(self, relation: Relation) -> StoredReader:
        name, catalog = relation.name, self._catalog
        past = self._views.get(name)
        if past is None:
            records = while_declared(name, self.epoch, self._records(self.epoch))
            past = past_relation(name, stored_rows(catalog, relation), records)
            self._views[name] = past
        return StoredReader(catalog.codec, past, relation)

    def __repr__(self) -> str:
        return f"<{self._program.name} at epoch {self.epoch}>"


def changes_since(
    name: str,
    program: Program,
    codec: Codec,
    records: Iterator[EpochRecord],
    reading: AbstractContextManager[object] | None = None,
) -> Iterator[tuple[int, Change]]:
    """Yield each epoch that changed a view, with its change.

    `reading` is held while rows are decoded, if another thread may commit meanwhile.
    """
    relation = program.relation(name)
    lock = reading or nullcontext()
    for epoch, part in view_parts(name, records):
        inserted, deleted = (
            _stored_rows(relation, program, codec, part, words, lock)
            for words in (part.inserted, part.deleted)
        )
        yield epoch, Change(inserted, deleted)


def _stored_rows(
    relation: Relation,
    program: Program,
    codec: Codec,
    part: PackedChange,
    words: Words,
    reading: AbstractContextManager[object],
) -> Rows:
    """Return rows of a record as they are packed; they are decoded when they are read."""
    reader = reader_of(relation, codec, part.domains(), sort_words(words.copy()))
    return Rows(relation, program.records, partial(answer_with, reading, reader))


def answer_with(
    reading: AbstractContextManager[object], reader: Reader, question: Callable[[Reader], T]
) -> T:
    """Return the answer of a reader, which is asked while a lock is held."""
    with reading:
        return question(reader)
