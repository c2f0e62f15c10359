"""Which rows a shard gets.

A row's coordinate along a side of the grid is the hash of one of its columns, modulo the side. The
hash is computed from the value, not from its dictionary id, so it is the same in all processes and
all epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.engine.arrow import ordinals_of
from tidelog.io.columns import CheckedTable
from tidelog.kernel import routing
from tidelog.logic.program import Program
from tidelog.sharding.shard_program import sharded_program
from tidelog.sharding.sharding import SCATTERED, Partitioning, Sharding, Variant
from tidelog.store.codec import Codec
from tidelog.values.types import Kind, Row, Type

Hashes = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Column = Callable[[int], Hashes]
"""Returns the hashes of one column, for all rows."""

_ORDINALS = Codec({})  # for types without a dictionary
_BASE = np.uint64(0x100000001B3)


def hash_numbers(numbers: NDArray[Any]) -> Hashes:
    """Return the hashes of 64-bit numbers."""
    bits = np.ascontiguousarray(numbers).view(np.uint64)
    hashes = np.empty(len(bits), np.uint64)
    routing.mix(bits.ctypes.data, len(bits), hashes)
    return hashes


def hash_texts(lengths: NDArray[np.int64], data: NDArray[np.uint8]) -> Hashes:
    """Return the hashes of concatenated texts: each is the sum of (byte + 1) * base ^ position."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    longest = int(lengths.max(initial=0))
    powers = np.cumprod(np.full(longest, _BASE), dtype=np.uint64)
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers[places], out=sums[1:])
    return hash_numbers(sums[ends] - sums[starts])


def hash_column(values: Sequence[Any], type_: Type) -> Hashes:
    """Return the hashes of values of a type."""
    if type_.kind is Kind.SYMBOL:
        parts = [value.encode("utf-8", "surrogatepass") for value in values]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return hash_texts(lengths, np.frombuffer(b"".join(parts), np.uint8))
    encode = _ORDINALS.encoder(type_)
    return hash_numbers(np.fromiter(map(encode, values), np.int64, len(values)))


def hash_symbols(texts: pa.Array) -> Hashes:
    """Return the hashes of an Arrow array of strings without nulls."""
    import pyarrow.compute as pc

    if not len(texts):
        return np.zeros(0, np.uint64)
    texts = texts.cast(pa.large_string())
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return hash_texts(np.asarray(lengths, np.int64), data[int(offsets[0]) : int(offsets[-1])])


def hash_arrow(column: pa.ChunkedArray, type_: Type) -> Hashes:
    """Return the hashes of an Arrow column with checked values of a type."""
    if type_.kind is Kind.SYMBOL:
        parts = []
        for chunk in column.chunks:
            encoded = chunk.dictionary_encode()
            parts.append(hash_symbols(encoded.dictionary)[np.asarray(encoded.indices)])
        return np.concatenate([*parts, np.zeros(0, np.uint64)])
    rows = CheckedTable(pa.table({"": column}))
    return hash_numbers(ordinals_of(rows, [type_], _ORDINALS)[0])


class Router:
    """Maps rows to shards."""

    def __init__(self, program: Program, sharding: Sharding) -> None:
        self._program, self.sharding = program, sharding
        self._sides = sharding.grid.sides
        self._scattered: dict[str, Partitioning] = {}
        for name, relation in program.relations.items():
            kinds = [column.type.kind for column in relation.columns]
            first = next(
                (i for i, kind in enumerate(kinds) if kind not in (Kind.RECORD, Kind.SET)), None
            )
            self._scattered[name] = (first,) + (None,) * (len(self._sides) - 1)

    def masks(self, variant: Variant, column: Column, count: int) -> Callable[[int], Bools]:
        """Return a function from a shard to the mask of those of `count` rows that it gets."""
        partitioning = variant.partitioning
        scattered = partitioning == SCATTERED
        if scattered:  # a given row may be in any one shard
            partitioning = self._scattered[variant.relation]
        hashes = [None if at is None else column(at) for at in partitioning]

        def mask(shard: int) -> Bools:
            found = np.ones(count, np.bool_)
            where = self.sharding.grid.coordinates(shard)
            # Each side has its own hash function; with only one, rows would gather on a diagonal.
            for number, (side, at, own) in enumerate(zip(self._sides, where, hashes, strict=True)):
                if own is not None:
                    routing.keep(own, np.uint64(number), np.uint64(side), np.uint64(at), found)
                elif scattered and at:
                    found[:] = False
            return found

        return mask

    def mask(self, variant: Variant, table: pa.Table) -> Callable[[int], Bools]:
        """Return a function from a shard to the mask of the rows of a table that it gets.

        The first columns of the table are those of the relation.
        """
        columns = self._program.relations[variant.relation].columns
        return self.masks(
            variant, lambda at: hash_arrow(table.column(at), columns[at].type), table.num_rows
        )

    def needed(self, relation: str, table: pa.Table) -> Callable[[int], Bools]:
        """Return a function from a shard to the mask of the rows that any of its variants needs."""
        masks = [self.mask(variant, table) for variant in self.sharding.variants_of(relation)]

        def mask(shard: int) -> Bools:
            found = np.zeros(table.num_rows, np.bool_)
            for one in masks:
                found |= one(shard)
            return found

        return mask

    def program_of(self, shard: int) -> Program:
        """Return the program of a shard."""

        def is_here(variant: Variant, row: Row) -> bool:
            columns = self._program.relations[variant.relation].columns

            def column(at: int) -> Hashes:
                return hash_column([row[at]], columns[at].type)

            return bool(self.masks(variant, column, 1)(shard)[0])

        return sharded_program(self._program, self.sharding, is_here)
