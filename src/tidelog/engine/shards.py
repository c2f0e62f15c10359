"""Which rows a shard gets.

A row's coordinate along a side of the grid is a hash of one of its columns, modulo the side. The
hash is one of the value, not of a number that some dictionary has given it: so it is the same in
all processes, and in all epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.kernel import routing
from tidelog.logic.program import Program
from tidelog.plan.sharded_program import sharded_program
from tidelog.plan.sharding import SCATTERED, Placement, Sharding, Version
from tidelog.store.codec import Codec
from tidelog.values.types import Kind, Row, Type

Hashes = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Column = Callable[[int], Hashes]
"""Returns the hashes of a column of some rows."""

_ORDINALS = Codec({})  # of types that need no dictionary
_BASE = np.uint64(0x100000001B3)


def hash_numbers(numbers: NDArray[Any]) -> Hashes:
    """Return the hashes of 64-bit numbers."""
    bits = np.ascontiguousarray(numbers).view(np.uint64)
    hashes = np.empty(len(bits), np.uint64)
    routing.mix(bits.ctypes.data, len(bits), hashes)
    return hashes


def hash_texts(lengths: NDArray[np.int64], data: NDArray[np.uint8]) -> Hashes:
    """Return the hashes of texts that follow each other: the sum of (byte + 1) * base ^ place."""
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
    """Return the hashes of an Arrow array of texts without nulls."""
    import pyarrow.compute as pc

    if not len(texts):
        return np.zeros(0, np.uint64)
    texts = texts.cast(pa.large_string())
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return hash_texts(np.asarray(lengths, np.int64), data[int(offsets[0]) : int(offsets[-1])])


class Router:
    """Tells the shards of rows."""

    def __init__(self, program: Program, sharding: Sharding) -> None:
        self._program, self.sharding = program, sharding
        self._sides = sharding.grid.sides
        self._scattered: dict[str, Placement] = {}
        for name, relation in program.relations.items():
            kinds = [column.type.kind for column in relation.columns]
            first = next(
                (i for i, kind in enumerate(kinds) if kind not in (Kind.RECORD, Kind.SET)), None
            )
            self._scattered[name] = (first,) + (None,) * (len(self._sides) - 1)

    def masks(self, version: Version, column: Column, count: int) -> Callable[[int], Bools]:
        """Return a function from a shard to which of `count` rows it gets."""
        placement = version.placement
        scattered = placement == SCATTERED
        if scattered:  # given rows of it can be anywhere, once
            placement = self._scattered[version.relation]
        hashes = [None if at is None else column(at) for at in placement]

        def mask(shard: int) -> Bools:
            found = np.ones(count, np.bool_)
            where = self.sharding.grid.coordinates(shard)
            # Sides have hashes of their own, or rows would gather on a diagonal.
            for number, (side, at, own) in enumerate(zip(self._sides, where, hashes, strict=True)):
                if own is not None:
                    routing.keep(own, np.uint64(number), np.uint64(side), np.uint64(at), found)
                elif scattered and at:
                    found[:] = False
            return found

        return mask

    def split(self, relation: str, rows: Collection[Row]) -> list[dict[str, set[Row]]]:
        """Return the rows of a relation for each shard, by the names of versions there."""
        listed = list(rows)
        columns = self._program.relations[relation].columns
        hashes: dict[int, Hashes] = {}

        def column(at: int) -> Hashes:
            if at not in hashes:
                hashes[at] = hash_column([row[at] for row in listed], columns[at].type)
            return hashes[at]

        found: list[dict[str, set[Row]]] = [{} for _ in range(self.sharding.grid.shards)]
        for version in self.sharding.versions_of(relation):
            mask = self.masks(version, column, len(listed))
            for shard, part in enumerate(found):
                mine = np.flatnonzero(mask(shard)).tolist()
                if mine:
                    part[self.sharding.name_of(version)] = {listed[i] for i in mine}
        return found

    def program_of(self, shard: int) -> Program:
        """Return the program of a shard."""

        def is_here(version: Version, row: Row) -> bool:
            columns = self._program.relations[version.relation].columns

            def column(at: int) -> Hashes:
                return hash_column([row[at]], columns[at].type)

            return bool(self.masks(version, column, 1)(shard)[0])

        return sharded_program(self._program, self.sharding, is_here)


def routed(router: Router, changes: Mapping[str, Collection[Row]]) -> list[dict[str, set[Row]]]:
    """Return the rows of all relations for each shard, by the names of versions there."""
    found: list[dict[str, set[Row]]] = [{} for _ in range(router.sharding.grid.shards)]
    for relation, rows in changes.items():
        if rows:
            for part, more in zip(found, router.split(relation, rows), strict=True):
                part.update(more)
    return found
