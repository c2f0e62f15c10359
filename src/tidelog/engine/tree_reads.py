"""Reading a relation whose rows are not stored: they are enumerated from a join tree.

The rows come in parts (join/enumeration.py), in the order of the first column. A part is a small
stored relation, and the reader of stored relations does the rest: order, lookups, decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.questions import Question, from_rows
from tidelog.engine.stored_reads import ARROW_ROWS, BATCH_ROWS, StoredReader, share
from tidelog.errors import UsageError
from tidelog.io.tabular import arrow_schema, to_arrow
from tidelog.join.enumeration import RuleResults
from tidelog.join.gather import distinct
from tidelog.join.united_results import UnitedResults
from tidelog.logic.program import Relation
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import TreeView
from tidelog.store.catalog import Catalog
from tidelog.store.domain import DomainOverflow
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.versions import Version
from tidelog.values.order import sort_key
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

_NOW = Version.NEW


def relation_reader(catalog: Catalog, relation: Relation) -> StoredReader | TreeReader:
    """Return a reader for the rows of a relation, whether they are stored or not."""
    tree = catalog.tree_of(relation.name)
    if tree is not None:
        return TreeReader(catalog, relation, tree)
    if catalog.is_virtual(relation.name):
        raise _not_in_files(relation)
    return StoredReader(catalog.codec, catalog.relations[relation.name], relation)


def stored_rows(catalog: Catalog, relation: Relation) -> StoredRelation:
    """Return the rows of a relation as a stored one; those that are not stored are copied."""
    tree = catalog.tree_of(relation.name)
    if catalog.is_stored(relation.name):
        return catalog.relations[relation.name]
    if tree is not None:
        rows = TreeReader(catalog, relation, tree).words()
    elif relation.name in catalog.computed:
        rows = _computed(catalog, relation.name)
    else:
        raise _not_in_files(relation)
    copied = StoredRelation(relation.name, catalog.domains(relation.name))
    copied.replace(rows, None, None)
    return copied


def _computed(catalog: Catalog, name: str) -> Words:
    """Return the rows of a virtual relation; they can have values that no domain has room for."""
    while True:
        try:
            return catalog.rows_of(name, _NOW)
        except DomainOverflow as overflow:
            overflow.domain.widen(overflow.ordinal, overflow.ordinal)
            catalog.relayout()


def _not_in_files(relation: Relation) -> UsageError:
    return UsageError(
        f"`{relation.name}` is virtual, so its rows are not in the files of the database"
        "\n  help: read it from the `Database` itself, or read its changes"
    )


class TreeReader:
    """The committed rows of a relation that a join tree maintains."""

    gives_sorted_tables: ClassVar[bool] = False

    def __init__(self, catalog: Catalog, relation: Relation, tree: TreeView) -> None:
        self._catalog, self._relation = catalog, relation
        self._stored = catalog.relations[relation.name]
        self._given = catalog.given[relation.name]
        reduced = catalog.has_reducts
        self._results = UnitedResults(
            [
                RuleResults(
                    catalog,
                    part.rule if reduced else part.whole,
                    is_injective=reduced or part.is_injective,
                )
                for part in tree.parts
            ]
        )
        self._types = [column.type for column in relation.columns]

    def __len__(self) -> int:
        given: int = self._only_given().shape[1]
        return self._results.size(_NOW) + given

    def __contains__(self, row: Row) -> bool:
        codec = self._catalog.codec
        found = [codec.find(v, t) for v, t in zip(row, self._types, strict=True)]
        ordinals = [ordinal for ordinal in found if ordinal is not None]
        if len(ordinals) < len(found):
            return False
        for ordinal, domain in zip(ordinals, self._stored.domains, strict=False):
            if not domain.covers(ordinal, ordinal):
                return False
        columns = np.array(ordinals or [0], np.int64).reshape(-1, 1)
        rows = self._stored.pack_ordinals(columns)
        if self._given.find(rows).present[0]:
            return True
        return bool(self._results.derivations(rows, _NOW)[0])

    def rows(self) -> Iterator[Row]:
        """Return all rows in order, enumerated as they are taken.

        The iterator reads the state as it was when it was made: the parts are computed from it.
        """
        return chain.from_iterable(part.rows() for part in self._parts())

    def prefix(self, values: Row) -> list[Row]:
        """Return the rows that start with `values`, in order."""
        if not values:
            return list(self.rows())
        return self._with_values(0, values[0], values[0]).prefix(values)

    def range(self, low: Row, high: Row) -> list[Row]:
        """Return the rows from `low` up to but excluding `high`, in order."""
        if low and high and self._types[0].kind not in UNORDERED:
            return self._with_values(0, low[0], high[0]).range(low, high)
        if low and high and low[0] == high[0]:
            return self._with_values(0, low[0], low[0]).range(low, high)
        return [row for part in self._parts() for row in part.range(low, high)]

    def where(self, values: Mapping[int, Any]) -> list[Row]:
        """Return the rows with these values, in order."""
        for column, value in values.items():
            if self._results.leaders(column) is not None:
                return self._with_values(column, value, value).where(values)
        return [row for part in self._parts() for row in part.where(values)]

    def aggregate(self, question: Question) -> Any:
        """Return an aggregate over some of the rows, part by part."""
        if question.op == "count" and not question.equal and not question.between:
            return len(self)
        rows: Iterator[Row] | list[Row]
        rows = self.where(question.equal) if question.equal else self.rows()
        return from_rows(rows, question, self._types, self._catalog.codec.records)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in no particular order."""
        if not self._types:
            return to_arrow(self.rows(), self._relation, self._catalog.codec.records)
        import pyarrow as pa

        schema = arrow_schema(self._relation, self._catalog.codec.records)
        return pa.Table.from_batches(self._batches(ARROW_ROWS, 0, 1), schema=schema)

    def batches(self, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows in no particular order, or one of `parts` shares of them."""
        return self._batches(BATCH_ROWS, part, parts)

    def _batches(self, rows_at_once: int, part: int, parts: int) -> Iterator[pa.RecordBatch]:
        derived = self._results.columns(_NOW, rows_at_once) if self._types else None
        if derived is None:
            for reader in self._parts():
                yield from reader.batches(part, parts)
            return
        from tidelog.engine.arrow import arrow_batch

        for rows in chain(derived, [self._given.ordinals(self._only_given())]):
            columns = share(rows, part, parts)
            if columns.shape[1]:
                yield arrow_batch(columns, self._relation, self._catalog.codec)

    def _only_given(self) -> Words:
        """Return the given rows that are not derived, sorted."""
        rows = self._given.rows(_NOW)
        return np.ascontiguousarray(rows[:, self._results.derivations(rows, _NOW) == 0])

    def words(self) -> Words:
        """Return all rows, sorted. They have to fit into memory."""
        derived = self._results.all(_NOW)
        return self._with_given(derived) if self._given.stored else derived

    # --- parts ---

    def _parts(self) -> Iterator[StoredReader]:
        """Yield readers of parts. All rows of one are before those of the next."""
        leaders = self._results.leaders(0) if self._types else None
        if self._given.stored or leaders is None:
            words = self.words()
            if words.shape[1]:
                yield self._reader(words)
            return
        order = None
        if not any(type_.kind in UNORDERED for type_ in self._types):
            streamed = self._results.sorted_parts(_NOW, leaders)
            if streamed is not None:
                yield from map(self._reader, streamed)
                return
        if self._types[0].kind in UNORDERED:
            order = self._value_order(self._results.leading_codes(leaders, _NOW))
        for part in self._results.parts(_NOW, leaders, order):
            yield self._reader(part)

    def _value_order(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the permutation that sorts codes of the first column by their values."""
        codec, type_ = self._catalog.codec, self._types[0]
        decode, key = codec.decoder(type_), sort_key(type_, codec.records)
        bias = self._stored.domains[0].bias
        keys = [key(decode(code + bias)) for code in codes.tolist()]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    def _with_values(self, column: int, low: Any, high: Any) -> StoredReader:
        """Return a reader of the rows whose column is between two values, both included."""
        leaders = self._results.leaders(column)
        codec, type_ = self._catalog.codec, self._types[column]
        if leaders is None:
            return self._reader(self.words())
        first, last = codec.find(low, type_), codec.find(high, type_)
        bias = self._stored.domains[column].bias
        derived = self._stored.no_rows()
        if first is not None and last is not None:
            derived = self._results.led_by(leaders, first - bias, last - bias, _NOW)
        return self._reader(self._with_given(derived) if self._given.stored else derived)

    def _with_given(self, derived: Words) -> Words:
        return distinct(np.concatenate([derived, self._given.rows(_NOW)], axis=1))[0]

    def _reader(self, words: Words) -> StoredReader:
        part = StoredRelation(self._relation.name, self._stored.domains)
        part.replace(words, None, None)
        return StoredReader(self._catalog.codec, part, self._relation)
