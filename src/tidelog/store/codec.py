"""Values and ordinals.

An ordinal is a 64-bit integer that stands for a value. Equal values have equal ordinals, and
ordinals are in the order of the values. Symbols, records and sets are the exception: their ordinals
are dictionary ids, in the order in which they were first seen.

| type          | ordinal                                                   |
| ------------- | --------------------------------------------------------- |
| number        | the number                                                |
| unsigned      | the number with its highest bit flipped                   |
| float         | its bits, those of negative floats reversed               |
| bool          | 0, 1                                                      |
| date          | days since 1970-01-01                                     |
| timestamp     | microseconds since 1970-01-01                             |
| decimal(p, s) | the number without its point: 12.50 is 1250               |
| symbol        | its dictionary id                                         |
| record        | 0 for nil, else its id in the dictionary of its type      |
| set           | 0 for {}, else its id in the dictionary of its type       |
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import chain, islice, product
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.store.dictionary import Dictionary
from tidelog.store.sets import SetDictionary
from tidelog.store.symbols import Symbols
from tidelog.values.scalars import canonical_float
from tidelog.values.types import SYMBOL, Field, Kind, Row, Type, record_type

Ordinals = NDArray[np.int64]

_SIGN = 1 << 63
FEW = 4  # up to this many rows are encoded value by value
_REVERSED = (1 << 63) - 1
_EPOCH_DATE = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_EXACT = Context(prec=40)  # whatever the caller's context is
_FLOAT = struct.Struct("<d")
_INT = struct.Struct("<q")


@dataclass(eq=False)
class _Shape:
    """The parts of a record or set type; a part that is neither is (encoder, decoder)."""

    dictionary: Dictionary | SetDictionary
    is_record: bool
    parts: list[_Shape | tuple[Callable[[Any], int], Callable[[int], Any]]] = field(
        default_factory=list
    )

    def with_parts(self, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Return each field of a record, or element of a set, with its shape."""
        return zip(items, self.parts, strict=True) if self.is_record else product(items, self.parts)


class Codec:
    """The dictionaries of a database; encodes values as ordinals, and decodes them."""

    def __init__(self, records: Mapping[str, tuple[Field, ...]]) -> None:
        self.records = records
        self.symbols = Symbols()
        self._records = {name: Dictionary(first=1) for name in records}
        self._sets: dict[Type, SetDictionary] = {}
        self._shapes: dict[Type, _Shape] = {}

    def add_records(self, records: Mapping[str, tuple[Field, ...]]) -> None:
        """Add record types; those that are known stay."""
        self.records = {**records, **self.records}
        for name in records:
            self._records.setdefault(name, Dictionary(first=1))

    def dictionary(self, type_: Type) -> Dictionary:
        """Return the dictionary of a symbol or record type."""
        return self.symbols if type_.kind is Kind.SYMBOL else self._records[type_.record]

    def sets(self, type_: Type) -> SetDictionary:
        """Return the dictionary of a set type."""
        return self._sets.setdefault(type_, SetDictionary())

    def dictionaries(self) -> Iterator[tuple[Type, Dictionary | SetDictionary]]:
        """Yield all dictionaries, with their types."""
        yield SYMBOL, self.symbols
        for name, dictionary in self._records.items():
            yield record_type(name), dictionary
        yield from self._sets.items()

    @property
    def size(self) -> int:
        """How many entries all dictionaries have. They only grow."""
        records, sets = self._records.values(), self._sets.values()
        return len(self.symbols) + sum(map(len, records)) + sum(map(len, sets))

    # --- one value ---

    def encoder(self, type_: Type) -> Callable[[Any], int]:
        """Return the function from values of `type_` to ordinals. New values get new ids."""
        match type_.kind:
            case Kind.NUMBER | Kind.BOOL:
                return int
            case Kind.UNSIGNED:
                return lambda value: value - _SIGN
            case Kind.FLOAT:
                return float_ordinal
            case Kind.DATE:
                return lambda value: value.toordinal() - _EPOCH_DATE
            case Kind.TIMESTAMP:
                return lambda value: (value - _EPOCH) // _MICROSECOND
            case Kind.DECIMAL:
                scale = type_.scale
                return lambda value: int(value.scaleb(scale, _EXACT))
            case Kind.SYMBOL:
                return self.symbols.number
            case Kind.RECORD | Kind.SET:
                shape = self._shape(type_)
                return lambda value: self._number(value, shape)

    def decoder(self, type_: Type) -> Callable[[int], Any]:
        """Return the function from ordinals to values of `type_`."""
        match type_.kind:
            case Kind.NUMBER:
                return int
            case Kind.BOOL:
                return bool
            case Kind.UNSIGNED:
                return lambda ordinal: ordinal + _SIGN
            case Kind.FLOAT:
                return float_value
            case Kind.DATE:
                return lambda ordinal: dt.date.fromordinal(ordinal + _EPOCH_DATE)
            case Kind.TIMESTAMP:
                return lambda ordinal: _EPOCH + ordinal * _MICROSECOND
            case Kind.DECIMAL:
                scale = -type_.scale
                return lambda ordinal: Decimal(ordinal).scaleb(scale, _EXACT)
            case Kind.SYMBOL:
                items = self.symbols.items
                return lambda ordinal: items[ordinal]  # not its method, which may change
            case Kind.RECORD | Kind.SET:
                shape = self._shape(type_)
                return lambda ordinal: self._value(ordinal, shape)

    # --- records and sets ---
    #
    # Lists are records in records, often thousands deep, so both directions keep their own stack:
    # what is still to be done, and where its result goes. A record or a set is visited twice: to
    # start its parts, and when they are done.

    def _shape(self, type_: Type) -> _Shape:
        found = self._shapes.get(type_)
        if found is None:
            is_record = type_.kind is Kind.RECORD
            dictionary = self.dictionary(type_) if is_record else self.sets(type_)
            found = self._shapes[type_] = _Shape(dictionary, is_record)
            below = [f.type for f in self.records[type_.record]] if is_record else [type_.element]
            for part in below:
                assert part is not None
                if part.kind in (Kind.RECORD, Kind.SET):
                    found.parts.append(self._shape(part))
                else:
                    found.parts.append((self.encoder(part), self.decoder(part)))
        return found

    def _number(self, value: Any, shape: _Shape) -> int:
        """Return the id of a record or a set; new ones, and new parts of them, get ids."""
        out = [0]
        work: list[tuple[Any, _Shape, list[int], int, bool]] = [(value, shape, out, 0, False)]
        while work:
            item, shape, into, at, is_done = work.pop()
            if is_done:
                into[at] = shape.dictionary.number(tuple(item))
            elif item is not None:  # nil is 0
                parts = [0] * len(item)
                work.append((parts, shape, into, at, True))
                for i, (part, below) in enumerate(shape.with_parts(item)):
                    if isinstance(below, _Shape):
                        work.append((part, below, parts, i, False))
                    else:
                        parts[i] = below[0](part)
        return out[0]

    def _value(self, number: int, shape: _Shape) -> Any:
        """Return the record or the set with this id."""
        out: list[Any] = [None]
        work: list[tuple[Any, _Shape, list[Any], int, bool]] = [(number, shape, out, 0, False)]
        while work:
            item, shape, into, at, is_done = work.pop()
            if is_done:
                into[at] = tuple(item) if shape.is_record else frozenset(item)
            elif item or not shape.is_record:  # 0 is nil
                ordinals = shape.dictionary.parts_of(item)
                parts: list[Any] = [None] * len(ordinals)
                work.append((parts, shape, into, at, True))
                for i, (part, below) in enumerate(shape.with_parts(ordinals)):
                    if isinstance(below, _Shape):
                        work.append((part, below, parts, i, False))
                    else:
                        parts[i] = below[1](part)
        return out[0]

    def find(self, value: Any, type_: Type) -> int | None:
        """Return the ordinal of a value, or None if it has none. A lookup adds nothing."""
        out = [0]
        work: list[tuple[Any, Type, list[int], int, bool]] = [(value, type_, out, 0, False)]
        while work:
            item, kind, into, at, is_done = work.pop()
            if is_done or kind.kind is Kind.SYMBOL:
                dictionary = self.sets(kind) if kind.kind is Kind.SET else self.dictionary(kind)
                number = dictionary.find(tuple(item) if is_done else item)
                if number is None:
                    return None
                into[at] = number
            elif kind.kind in (Kind.RECORD, Kind.SET):
                if item is None:  # nil is 0
                    continue
                parts = [0] * len(item)
                work.append((parts, kind, into, at, True))
                for i, (part, below) in enumerate(
                    zip(item, self._below(kind, len(item)), strict=True)
                ):
                    work.append((part, below, parts, i, False))
            else:
                into[at] = self.encoder(kind)(item)
        return out[0]

    def _below(self, type_: Type, size: int) -> list[Type]:
        """Return the types of the fields of a record, or of the elements of a set of `size`."""
        if type_.kind is Kind.RECORD:
            return [f.type for f in self.records[type_.record]]
        assert type_.element is not None
        return [type_.element] * size

    # --- many values ---

    def encode_rows(self, rows: Collection[Row], types: Sequence[Type]) -> Ordinals:
        """Return the rows as columns of ordinals, an array of shape (columns, rows)."""
        n = len(rows)
        if types and 0 < n <= FEW:
            return self.encode_few(rows, [self.encoder(type_) for type_ in types])
        out = np.empty((len(types), n), np.int64)
        if not n:
            return out
        for i, type_ in enumerate(types):
            values = map(itemgetter(i), rows)
            if type_.kind is Kind.FLOAT:
                out[i] = float_ordinals(np.fromiter(values, np.float64, n))
            elif type_.kind is Kind.NUMBER:
                out[i] = np.fromiter(values, np.int64, n)
            elif type_.kind is Kind.SET:
                out[i] = self._encode_sets(list(values), type_)
            else:
                out[i] = np.fromiter(map(self.encoder(type_), values), np.int64, n)
        return out

    def encode_few(
        self, rows: Collection[Row], encoders: Sequence[Callable[[Any], int]]
    ) -> Ordinals:
        """Return some rows as columns of ordinals, with an `encoder` for each column."""
        if len(rows) == 1:
            (row,) = rows
            ordinals = [encode(value) for encode, value in zip(encoders, row, strict=True)]
            return np.array(ordinals, np.int64).reshape(-1, 1)
        columns = [[encode(row[i]) for row in rows] for i, encode in enumerate(encoders)]
        return np.array(columns, np.int64)

    def decode_rows(self, columns: Ordinals, types: Sequence[Type]) -> list[Row]:
        """Return columns of ordinals as rows of values."""
        if not types:
            return [()] * columns.shape[1]
        values: list[Iterable[Any]] = []
        for ordinals, type_ in zip(columns, types, strict=True):
            values.append(self._decode_column(ordinals, type_))
        return list(zip(*values, strict=True))

    def _decode_column(self, ordinals: Ordinals, type_: Type) -> Iterable[Any]:
        if type_.kind is Kind.SET:
            return self._decode_sets(ordinals, type_)
        plain: list[int] = ordinals.tolist()
        if type_.kind is Kind.SYMBOL:
            return map(self.symbols.items.__getitem__, plain)
        return plain if type_.kind is Kind.NUMBER else map(self.decoder(type_), plain)

    # One kernel call for all sets: a call for each would take twice as long.

    def _encode_sets(self, sets: list[frozenset[Any]], type_: Type) -> Ordinals:
        assert type_.element is not None
        which = np.repeat(np.arange(len(sets)), np.fromiter(map(len, sets), np.int64, len(sets)))
        values = map(self.encoder(type_.element), chain.from_iterable(sets))
        elements = np.fromiter(values, np.int64, len(which))
        elements = np.ascontiguousarray(elements[np.lexsort((elements, which))])
        none = np.zeros(len(sets), np.int64)
        return self.sets(type_).changed(none, which, elements, np.ones(len(which), np.bool_))

    def _decode_sets(self, ordinals: Ordinals, type_: Type) -> Iterator[frozenset[Any]]:
        assert type_.element is not None
        dictionary, ordinals = self.sets(type_), np.ascontiguousarray(ordinals)
        values = iter(self._decode_column(dictionary.elements(ordinals), type_.element))
        return (frozenset(islice(values, size)) for size in dictionary.sizes(ordinals).tolist())


def float_ordinal(value: float) -> int:
    """Return the ordinal of a float: its position in the order of floats."""
    bits: int = _INT.unpack(_FLOAT.pack(canonical_float(value)))[0]
    return bits if bits >= 0 else bits ^ _REVERSED


def float_value(ordinal: int) -> float:
    """Return the float with this ordinal."""
    bits = ordinal if ordinal >= 0 else ordinal ^ _REVERSED
    value: float = _FLOAT.unpack(_INT.pack(bits))[0]
    return canonical_float(value)


def float_ordinals(values: NDArray[np.float64]) -> Ordinals:
    """Return the ordinals of floats."""
    values = np.where(np.isnan(values), np.nan, values) + 0.0  # one NaN; -0.0 + 0.0 is 0.0
    bits = values.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ _REVERSED)


def float_values(ordinals: Ordinals) -> NDArray[np.float64]:
    """Return the floats with these ordinals."""
    return np.where(ordinals >= 0, ordinals, ordinals ^ _REVERSED).view(np.float64)
