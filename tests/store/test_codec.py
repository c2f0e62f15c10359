"""Values become ordinals and come back."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.typed_values import (
    LIST,
    RECORDS,
    SCALARS,
    TREE,
    TYPES,
    deep_list,
    relation,
    rows,
    values,
)
from tidelog.store.codec import Codec, Dictionary, float_ordinal, float_ordinals, float_value
from tidelog.values.order import sort_key
from tidelog.values.types import (
    BOOL,
    DATE,
    FLOAT,
    NUMBER,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    Field,
    Kind,
    Type,
    decimal_type,
    record_type,
    set_type,
)

ORDERED = [type_ for type_ in SCALARS if type_.kind is not Kind.SYMBOL]


def same(left: Any, right: Any) -> bool:
    """Say whether two values of one type are equal; there is one NaN, an object."""
    return left is right or bool(left == right)


@given(st.data())
def test_values_come_back(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(TYPES))
    drawn = data.draw(st.lists(values(type_), max_size=6))
    codec = Codec(RECORDS)
    encode, decode = codec.encoder(type_), codec.decoder(type_)
    encoded = [encode(value) for value in drawn]
    assert all(-(2**63) <= ordinal < 2**63 for ordinal in encoded)
    assert [encode(value) for value in drawn] == encoded
    for value, ordinal in zip(drawn, encoded, strict=True):
        back = decode(ordinal)
        assert same(back, value)
        assert type(back) is type(value)
        assert repr(back) == repr(value) or type_.kind in (Kind.SET, Kind.RECORD)
    for a, ordinal_a in zip(drawn, encoded, strict=True):
        for b, ordinal_b in zip(drawn, encoded, strict=True):
            assert (ordinal_a == ordinal_b) == same(a, b)


@pytest.mark.parametrize("type_", ORDERED, ids=str)
@given(data=st.data())
def test_ordinals_are_in_the_order_of_their_type(type_: Type, data: st.DataObject) -> None:
    a, b = data.draw(values(type_)), data.draw(values(type_))
    encode, key = Codec({}).encoder(type_), sort_key(type_, {})
    assert (encode(a) < encode(b)) == (key(a) < key(b))


@pytest.mark.parametrize(
    ("type_", "value", "ordinal"),
    [
        (NUMBER, -(2**63), -(2**63)),
        (NUMBER, 2**63 - 1, 2**63 - 1),
        (UNSIGNED, 0, -(2**63)),
        (UNSIGNED, 2**64 - 1, 2**63 - 1),
        (FLOAT, 0.0, 0),
        (FLOAT, 5e-324, 1),
        (FLOAT, -5e-324, -2),
        (FLOAT, math.nan, 0x7FF8000000000000),
        (BOOL, True, 1),
        (DATE, dt.date(1970, 1, 2), 1),
        (DATE, dt.date.min, -719162),
        (DATE, dt.date.max, 2932896),
        (TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 0, 1), 1),
        (TIMESTAMP, dt.datetime.min, -62135596800000000),
        (TIMESTAMP, dt.datetime.max, 253402300799999999),
        (decimal_type(4, 2), Decimal("12.50"), 1250),
        (decimal_type(18, 18), Decimal("-0.999999999999999999"), -(10**18) + 1),
        (SYMBOL, "first", 0),
        (LIST, None, 0),
        (LIST, (7, None), 1),
        (set_type(NUMBER), frozenset(), 0),
    ],
)
def test_the_ordinal_of(type_: Type, value: Any, ordinal: int) -> None:
    codec = Codec(RECORDS)
    got = codec.encoder(type_)(value)
    assert got == ordinal and type(got) is int
    assert same(codec.decoder(type_)(ordinal), value)


def test_decimals_do_not_depend_on_the_context() -> None:
    codec, type_ = Codec({}), decimal_type(18, 4)
    value = Decimal("12345678901234.5678")
    with decimal.localcontext(decimal.Context(prec=3)):
        ordinal = codec.encoder(type_)(value)
        assert ordinal == 123456789012345678
        assert str(codec.decoder(type_)(ordinal)) == str(value)


# --- floats -----------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.floats(), st.just(-0.0))))
def test_many_floats_are_encoded_as_one_is(floats: list[float]) -> None:
    array = np.array(floats, np.float64)
    expected = [float_ordinal(value) for value in floats]
    assert float_ordinals(array).tolist() == expected
    assert array.tobytes() == np.array(floats, np.float64).tobytes()  # left as it was


@given(st.integers(0, 2**64 - 1))
@example(0x7FF0000000000001)  # a NaN that signals
@example(0xFFF8000000000000)  # a negative NaN
def test_any_bits_of_a_float(bits: int) -> None:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    ordinal = float_ordinal(value)
    array = np.array([bits], np.uint64).view(np.float64)
    assert float_ordinals(array).tolist() == [ordinal]
    back = float_value(ordinal)
    assert repr(back) == repr(value + 0.0)
    assert float_ordinal(back) == ordinal


# --- rows -------------------------------------------------------------------------------------


@given(st.data())
def test_rows_come_back(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(TYPES), max_size=4))
    drawn = data.draw(rows(relation(*types), max_size=6))
    codec = Codec(RECORDS)
    columns = codec.encode_rows(drawn, types)
    assert columns.shape == (len(types), len(drawn)) and columns.dtype == np.int64
    for column, type_ in enumerate(types):
        encode = codec.encoder(type_)
        assert columns[column].tolist() == [encode(row[column]) for row in drawn]
    back = codec.decode_rows(columns, types)
    assert len(back) == len(drawn)
    for old, new in zip(drawn, back, strict=True):
        assert isinstance(new, tuple)
        assert all(map(same, old, new))


@pytest.mark.parametrize("types", [[], [NUMBER], [SYMBOL, FLOAT, LIST]], ids=str)
def test_no_rows(types: list[Type]) -> None:
    codec = Codec(RECORDS)
    columns = codec.encode_rows([], types)
    assert columns.shape == (len(types), 0)
    assert codec.decode_rows(columns, types) == []


# --- depth ------------------------------------------------------------------------------------

DEPTH = 10_000
CHAIN, LINK, FRONT, BOX = (record_type(name) for name in ("Chain", "Link", "Front", "Box"))
DEEP: dict[str, tuple[Field, ...]] = {
    **RECORDS,
    "Chain": (Field("label", SYMBOL, "symbol"), Field("link", LINK, "Link")),
    "Link": (Field("chain", CHAIN, "Chain"),),
    "Front": (Field("init", FRONT, "Front"), Field("last", FLOAT, "float")),
    "Box": (Field("boxes", set_type(BOX), "set(Box)"),),
}


def nested(depth: int, wrap: Any) -> Any:
    value = None
    for i in range(depth):
        value = wrap(i, value)
    return value


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (LIST, deep_list(DEPTH)),
        (CHAIN, nested(DEPTH, lambda i, below: (str(i % 9), (below,)))),
        (FRONT, nested(DEPTH, lambda i, below: (below, i / 2))),
    ],
    ids=["last field", "two types in turn", "first field"],
)
def test_deep_records(type_: Type, value: Any) -> None:
    codec = Codec(DEEP)
    number = codec.encoder(type_)(value)
    back = codec.decoder(type_)(number)
    while value is not None:  # comparing them at once would go as deep
        inner = next((i for i, part in enumerate(value) if isinstance(part, tuple)), None)
        if inner is None:
            assert back == value
            break
        assert all(a == b for i, (a, b) in enumerate(zip(value, back, strict=True)) if i != inner)
        value, back = value[inner], back[inner]
    assert len(codec.dictionary(type_)) == DEPTH + 1


def test_deep_sets() -> None:
    codec = Codec(DEEP)
    box = None
    for _ in range(300):  # a frozenset hashes its elements, so Python itself limits the depth
        box = (frozenset([box]),)
    number = codec.encoder(BOX)(box)
    assert codec.decoder(BOX)(number) == box
    assert codec.encoder(BOX)(codec.decoder(BOX)(number)) == number


def test_parts_are_shared() -> None:
    codec = Codec(RECORDS)
    encode = codec.encoder(LIST)
    assert encode((1, (2, None))) == 2
    assert encode((2, None)) == 1
    assert encode((3, (2, None))) == 3
    assert codec.dictionary(LIST).items == [None, (2, 0), (1, 1), (3, 1)]
    tree = codec.encoder(TREE)
    leaf = ("leaf", frozenset())
    assert tree(("root", frozenset([leaf, None]))) == 2
    assert tree(leaf) == 1


@pytest.mark.parametrize("value", [(1,), (1, None, 2)])
def test_records_have_their_fields(value: Any) -> None:
    with pytest.raises(ValueError, match="zip"):
        Codec(RECORDS).encoder(LIST)(value)


def test_a_table_numbers_things_as_they_come() -> None:
    table = Dictionary(first=1)
    assert [table.number(item) for item in "abca"] == [1, 2, 3, 1]
    assert (table.find("c"), table.find("d"), len(table)) == (3, None, 4)
    assert table.items == [None, "a", "b", "c"]
