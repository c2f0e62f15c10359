"""The rows of a change, packed as they are stored: nothing is decoded before somebody asks."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.durable.epochs import domain_like
from tidelog.engine.protocol import NetChange
from tidelog.engine.stored_reads import StoredReader
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.store.codec import Codec
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.values.types import Row


class Contents:
    """Some relations, as a reader asks for them."""

    def __init__(self, codec: Codec, relations: dict[str, StoredRelation]) -> None:
        self.codec, self.relations = codec, relations


class ChangedRows(NetChange):
    """What an epoch has changed in a relation. Most changes are never looked at."""

    __slots__ = ("_codec", "_codes", "_delta", "_relation")

    def __init__(self, codec: Codec, relation: Relation, stored: StoredRelation) -> None:
        self._codec, self._relation, self._delta = codec, relation, stored.delta
        self._codes = stored.codes  # layouts change, that of these rows does not

    @property
    def inserted(self) -> frozenset[Row]:
        """The rows that came, decoded anew each time."""
        return frozenset(self._reader(self._delta.inserted).rows())

    @property
    def deleted(self) -> frozenset[Row]:
        """The rows that went, decoded anew each time."""
        return frozenset(self._reader(self._delta.deleted).rows())

    def readers(self, relation: Relation, records: Records) -> tuple[StoredReader, StoredReader]:
        """Return the rows that came, and those that went, to be asked."""
        return self._reader(self._delta.inserted), self._reader(self._delta.deleted)

    def __bool__(self) -> bool:
        return bool(self._delta)

    def _reader(self, words: Words) -> StoredReader:
        domains = [domain_like(bias, bits) for bias, bits in zip(*self._codes, strict=True)]
        return reader_of(self._relation, self._codec, domains, words)


def reader_of(
    relation: Relation, codec: Codec, domains: Sequence[Domain], words: Words
) -> StoredReader:
    """Return sorted rows, which were packed for these domains, to be asked."""
    stored = StoredRelation(relation.name, domains)
    stored.replace(words, None, None)
    return StoredReader(Contents(codec, {relation.name: stored}), relation)
