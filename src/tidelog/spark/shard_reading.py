"""Change files as columns of ordinals, without a Python object for each row where types allow.

Each task reads the files of an epoch, and keeps the rows of its shard. That is less than having one
task read and others be sent rows: Parquet is read at some ten million rows a second.

A column is taken as it is when its Arrow type has the values of the declared type and nothing is
missing. Files with any other column go through the checks that all sources go through, row by row
(checking.py). All tasks read the same; the first shard tells of what was received and did not fit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidelog.engine.last_words import last_words
from tidelog.engine.shards import Router, hash_column, hash_numbers, hash_symbols
from tidelog.logic.program import Program, Relation
from tidelog.spark.checking import BadRow, Checked
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import SIGNS, Shape
from tidelog.spark.sources import PolledSource, polled
from tidelog.store.codec import Codec, float_ordinals
from tidelog.values.types import Kind, Type

Array = NDArray[np.int64]
_SIGN = np.uint64(1 << 63)
_DATE, _TIME = (Codec({}).encoder(Type(kind)) for kind in (Kind.DATE, Kind.TIMESTAMP))
_RANGES = {
    Kind.DATE: (_DATE(dt.date.min), _DATE(dt.date.max)),
    Kind.TIMESTAMP: (_TIME(dt.datetime.min), _TIME(dt.datetime.max)),
}


@dataclass(frozen=True)
class FilePart:
    """Parquet files of one source, in the order in which they are meant."""

    name: str
    source: Source
    paths: tuple[str, ...]
    """Where they are."""
    labels: tuple[str, ...]
    """What they are called in the quarantine."""


@dataclass
class Read:
    """What a shard has read of the files of an epoch."""

    encoded: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """By the names of versions: rows that came, rows that went."""
    received: dict[str, int] = field(default_factory=dict)
    bad: dict[str, list[BadRow]] = field(default_factory=dict)


def read_parts(
    parts: Sequence[FilePart], program: Program, router: Router, shard: int, codec: Codec
) -> Read:
    """Return the rows of a shard."""
    read = Read()
    found: dict[str, list[tuple[Array, NDArray[np.bool_] | None]]] = {}
    for part in parts:
        relation = program.relations[part.source.relation]
        source = polled(part.source, part.name, relation, program.records)
        reading = _Reading(source, relation, router, shard, codec)
        for path, label in zip(part.paths, part.labels, strict=True):
            table = _table(path, source.shape)
            read.received[part.name] = read.received.get(part.name, 0) + table.num_rows
            for name, ordinals, came in reading.taken(table, label):
                found.setdefault(name, []).append((ordinals, came))
        read.bad.setdefault(part.name, []).extend(reading.bad)
    for name, pieces in found.items():
        read.encoded[name] = last_words(pieces)
    return read


def _table(path: str, shape: Shape) -> pa.Table:
    """Return the columns of a file that a source has, with the signs as numbers of a dictionary.

    Tasks are side by side already, and a file on this machine needs no buffers before it is read:
    so small files take a third of the time.
    """
    signs = [shape.op] if shape.op else None
    with pq.ParquetFile(path, read_dictionary=signs, memory_map=True, pre_buffer=False) as file:
        return file.read(columns=list(shape.all), use_threads=False)


class _Reading:
    def __init__(
        self, source: PolledSource, relation: Relation, router: Router, shard: int, codec: Codec
    ) -> None:
        self._source, self._relation = source, relation
        self._router, self._shard, self._codec = router, shard, codec
        self.bad: list[BadRow] = []

    def taken(
        self, table: pa.Table, label: str
    ) -> Iterator[tuple[str, Array, NDArray[np.bool_] | None]]:
        """Yield, for each version, the rows of this shard and which of them came."""
        columns = self._columns(table)
        if columns is None:
            yield from self._checked(table, label)
            return
        values, came = columns
        yield from self._versions(
            table.num_rows,
            lambda at: values[at].hashes(),
            lambda mine: np.stack([column.ordinals(mine) for column in values]),
            came,
        )

    def _columns(self, table: pa.Table) -> tuple[list[_Column], NDArray[np.bool_] | None] | None:
        """Return the columns as they are, and the signs; None if that is not possible."""
        if not self._relation.columns:
            return None
        found = []
        for name, column in zip(self._source.shape.columns, self._relation.columns, strict=True):
            made = _column(table[name], column.type, self._codec)
            if made is None:
                return None
            found.append(made)
        if not self._source.shape.op:
            return found, None
        signs = _signs(table[self._source.shape.op])
        return None if signs is None else (found, signs)

    def _checked(
        self, table: pa.Table, label: str
    ) -> Iterator[tuple[str, Array, NDArray[np.bool_] | None]]:
        """Take the rows one by one, as those of any other source."""
        shape = self._source.shape
        names = {name: f"new{i}" for i, name in enumerate(shape.columns)}
        shaped = {names[name]: table[name] for name in shape.columns}
        if shape.op:
            shaped["op"] = table[shape.op].cast(pa.string())
        if not shaped:
            shaped["rows"] = pa.nulls(table.num_rows)
        checked: Checked = self._source.checker.check(pa.table(shaped), {}, "")
        self.bad += [replace(row, file=label) for row in checked.bad]
        rows = list(checked.rows)
        columns = self._relation.columns

        def ordinals(mine: NDArray[np.int64]) -> Array:
            if not columns:
                return np.zeros((1, len(mine)), np.int64)
            types = [column.type for column in columns]
            return self._codec.encode_rows([rows[i] for i in mine.tolist()], types)

        yield from self._versions(
            len(rows),
            lambda at: hash_column([row[at] for row in rows], columns[at].type),
            ordinals,
            checked.came,
        )

    def _versions(
        self,
        count: int,
        hashes: Callable[[int], NDArray[np.uint64]],
        ordinals: Callable[[NDArray[np.int64]], Array],
        came: NDArray[np.bool_] | None,
    ) -> Iterator[tuple[str, Array, NDArray[np.bool_] | None]]:
        sharding = self._router.sharding
        known: dict[int, NDArray[np.uint64]] = {}

        def hashed(at: int) -> NDArray[np.uint64]:
            if at not in known:
                known[at] = hashes(at)
            return known[at]

        for version in sharding.versions_of(self._relation.name):
            mask = self._router.masks(version, hashed, count)(self._shard)
            mine = np.flatnonzero(mask)
            signs = None if came is None else came[mine]
            yield sharding.name_of(version), ordinals(mine), signs


# --- columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column that Arrow has in the declared type."""

    hashes: Callable[[], NDArray[np.uint64]]
    ordinals: Callable[[NDArray[np.int64]], Array]
    """Returns the ordinals of some rows."""


def _column(chunks: pa.ChunkedArray, type_: Type, codec: Codec) -> _Column | None:
    if chunks.null_count:
        return None
    array = chunks.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.chunks else pa.array([], chunks.type)
    source, is_ = array.type, pa.types
    if type_.kind is Kind.SYMBOL:
        if not (is_.is_string(source) or is_.is_large_string(source)):
            return None
        return _symbols(array, codec)
    numbers: Array
    match type_.kind:
        case Kind.NUMBER if is_.is_signed_integer(source):
            numbers = array.cast(pa.int64()).to_numpy()
        case Kind.UNSIGNED if is_.is_unsigned_integer(source):
            numbers = (array.cast(pa.uint64()).to_numpy() ^ _SIGN).view(np.int64)
        case Kind.FLOAT if is_.is_floating(source):
            numbers = float_ordinals(array.cast(pa.float64()).to_numpy())
        case Kind.BOOL if is_.is_boolean(source):
            numbers = array.to_numpy(zero_copy_only=False).astype(np.int64)
        case Kind.DATE if is_.is_date32(source):
            numbers = array.view(pa.int32()).to_numpy().astype(np.int64)
        case Kind.TIMESTAMP if is_.is_timestamp(source) and source.unit == "us":
            numbers = array.view(pa.int64()).to_numpy()
        case _:
            return None
    least, most = _RANGES.get(type_.kind, (None, None))
    if least is not None and len(numbers) and not least <= numbers.min() <= numbers.max() <= most:
        return None  # a day that Python has not
    return _Column(lambda: hash_numbers(numbers), lambda mine: numbers[mine])


def _signs(ops: pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """Return which rows came; None if something else is said of one."""
    if pa.types.is_string(ops.type) or pa.types.is_large_string(ops.type):
        ops = ops.dictionary_encode()
    is_text = pa.types.is_dictionary(ops.type) and pa.types.is_string(ops.type.value_type)
    if not is_text or ops.null_count:
        return None
    if not ops.num_chunks:
        return np.zeros(0, np.bool_)
    encoded = ops.unify_dictionaries().combine_chunks()
    signs = [SIGNS.get((op or "").strip().lower()) for op in encoded.dictionary.to_pylist()]
    if None in signs:
        return None
    return np.asarray(np.array(signs, np.bool_)[encoded.indices.to_numpy()])


def _symbols(array: pa.Array, codec: Codec) -> _Column:
    def ordinals(mine: NDArray[np.int64]) -> Array:
        encoded = array.take(pa.array(mine)).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        numbers = np.fromiter(map(codec.symbols.number, texts), np.int64, len(texts))
        places = encoded.indices.to_numpy()
        return numbers[places] if len(texts) else np.zeros(0, np.int64)

    def hashes() -> NDArray[np.uint64]:
        encoded = array.dictionary_encode()
        return np.asarray(hash_symbols(encoded.dictionary)[encoded.indices.to_numpy()])

    return _Column(hashes, ordinals)
