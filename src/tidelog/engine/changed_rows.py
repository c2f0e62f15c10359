"""The rows of a net change, packed as they are stored, and decoded when they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.durable.epochs import domain_like
from tidelog.engine.piece_reads import PieceReader
from tidelog.engine.protocol import NetChange
from tidelog.engine.reads import Reader
from tidelog.engine.stored_reads import StoredReader
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.logic.signs import Signs
from tidelog.store.codec import Codec
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.versions import Delta, UnsortedRows
from tidelog.values.types import Row

_NOTHING = UnsortedRows([])


class ChangedRows(NetChange):
    """The net change of a stored relation. It is decoded only if it is read."""

    __slots__ = ("_codec", "_codes", "_delta", "_fields", "_relation")

    def __init__(
        self, codec: Codec, relation: Relation, stored: StoredRelation, delta: Delta
    ) -> None:
        self._codec, self._relation, self._delta = codec, relation, delta
        # The relation's layout may change, that of these rows does not.
        self._codes, self._fields = stored.codes, stored.primary.layout.biased

    @property
    def inserted(self) -> frozenset[Row]:
        """The inserted rows, decoded at each call."""
        return frozenset(self._reader(self._delta.inserted).rows())

    @property
    def deleted(self) -> frozenset[Row]:
        """The deleted rows, decoded at each call."""
        return frozenset(self._reader(self._delta.deleted).rows())

    def readers(self, relation: Relation, records: Records) -> tuple[Reader, Reader]:
        """Return readers for the inserted and the deleted rows."""
        inserted, deleted = self._delta.as_found
        return (
            self._found(inserted, lambda: self._reader(self._delta.inserted)),
            self._found(deleted, lambda: self._reader(self._delta.deleted)),
        )

    def _found(self, rows: Words | UnsortedRows, in_order: Callable[[], StoredReader]) -> Reader:
        """Return a reader that sorts the rows if it has to, and does nothing for no rows."""
        if not isinstance(rows, UnsortedRows):
            if rows.shape[1]:
                return in_order()
            rows = _NOTHING
        return PieceReader(self._codec, self._relation, rows, self._fields, in_order)

    @property
    def signs(self) -> Signs:
        """Whether there are inserted rows, and deleted ones."""
        inserted, deleted = self._delta.sizes
        return Signs.of(inserted=inserted > 0, deleted=deleted > 0)

    def __bool__(self) -> bool:
        return bool(self._delta)

    def _reader(self, words: Words) -> StoredReader:
        domains = [domain_like(bias, bits) for bias, bits in zip(*self._codes, strict=True)]
        return reader_of(self._relation, self._codec, domains, words)


def reader_of(
    relation: Relation, codec: Codec, domains: Sequence[Domain], words: Words
) -> StoredReader:
    """Return a reader for sorted rows that were packed for these domains."""
    stored = StoredRelation(relation.name, domains)
    stored.replace(words, None, None)
    return StoredReader(codec, stored, relation)
