"""Columns become values: the same ones, and the same refusals, as from the exact parsers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.io.conversion import NO_VALUE, ConversionOptions, convert
from tidelog.io.tabular import checker
from tidelog.values.text import value_parser
from tidelog.values.types import (
    BOOL,
    DATE,
    FLOAT,
    NUMBER,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    Type,
    decimal_type,
    set_type,
)

TYPES = [NUMBER, UNSIGNED, FLOAT, SYMBOL, BOOL, DATE, TIMESTAMP, decimal_type(9, 2)]
TEXTS = st.one_of(
    st.none(),
    st.text(max_size=4),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(str),
    st.sampled_from(["0x1F", " 7", "7 ", "1e3", "-0.0", "nan", "true", "2024-02-29", "1.25", ""]),
    st.datetimes().map(str),
    st.decimals(-1000, 1000, places=2).map(str),
)


def one_by_one(values: list[Any], take: Any) -> tuple[list[Any], dict[int, str]]:
    taken: list[Any] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            if value is None:
                raise ValueError(NO_VALUE)
            taken.append(take(value))
        except (ValueError, TypeError) as error:
            reasons[i] = str(error)
            taken.append(None)
    return taken, reasons


def compare(column: pa.Array, type_: Type, take: Any) -> None:
    found = convert(column, type_, {}, ConversionOptions())
    values, reasons = one_by_one(column.to_pylist(), take)
    assert found.reasons == reasons
    for i, (value, wanted) in enumerate(zip(found.values, values, strict=True)):
        if i not in reasons:
            assert type(value) is type(wanted)
            assert value is wanted or value == wanted  # there is one NaN


@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(texts=st.lists(TEXTS, max_size=6))
def test_texts_are_parsed_exactly(type_: Type, texts: list[str | None]) -> None:
    compare(pa.array(texts, pa.string()), type_, value_parser(type_, {}))


DIGITS = st.none() | st.text("0123456789-", max_size=20) | st.integers(-(2**63), 2**63).map(str)


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("type_", [NUMBER, UNSIGNED], ids=str)
@given(texts=st.lists(DIGITS, max_size=6), skipped=st.integers(0, 3))
def test_digits_are_parsed_exactly(
    type_: Type, arrow: pa.DataType, texts: list[str | None], skipped: int
) -> None:
    compare(pa.array(texts, arrow)[skipped:], type_, value_parser(type_, {}))


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(7, 3), st.decimals(-1000, 1000, places=3)),
    "zoned": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(data=st.data())
def test_typed_columns_are_checked_exactly(type_: Type, kind: str, data: st.DataObject) -> None:
    arrow, values = VALUES[kind]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), arrow)
    check = checker(type_, {})

    def whole(value: Any) -> Any:
        """Databases have decimals without a fraction for whole numbers."""
        is_whole = isinstance(value, Decimal) and value == value.to_integral_value()
        return check(int(value) if is_whole else value)

    compare(column, type_, whole if type_ in (NUMBER, UNSIGNED) else check)


def test_moments_that_python_does_not_have_are_refused() -> None:
    days = pa.array([0, 10**7, None], pa.int32()).cast(pa.date32())
    found = convert(days, DATE, {}, ConversionOptions())
    assert found.values[0] == dt.date(1970, 1, 1)
    assert found.reasons == {1: "outside the range of date", 2: NO_VALUE}
    for unit, factor in (("us", 1), ("ms", 1000)):
        last = dt.datetime.max.replace(microsecond=999_000)
        numbers = [(last - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=factor), 2**59]
        column = pa.array(numbers, pa.timestamp(unit))
        found = convert(column, TIMESTAMP, {}, ConversionOptions())
        assert found.values[0] == last
        assert found.reasons == {1: "outside the range of timestamp"}


def test_decimals_without_a_fraction_are_whole_numbers() -> None:
    column = pa.array([Decimal("17.00"), Decimal("17.50")], pa.decimal128(6, 2))
    found = convert(column, NUMBER, {}, ConversionOptions())
    assert found.values[0] == 17
    assert list(found.reasons) == [1]


@pytest.mark.parametrize(("unit", "factor"), [("us", 10**6), ("ms", 10**3)])
def test_times_of_debezium_are_numbers(unit: str, factor: int) -> None:
    reading = ConversionOptions(time_unit=unit)
    moment = dt.datetime(2024, 2, 29, 12, 30, 1)
    raw = int(moment.replace(tzinfo=dt.UTC).timestamp()) * factor
    for column in (pa.array([raw]), pa.array([str(raw)])):
        assert convert(column, TIMESTAMP, {}, reading).values == [moment]
    assert convert(pa.array(["19782"]), DATE, {}, reading).values == [dt.date(2024, 2, 29)]
    texts = pa.array(["2024-02-29", "17x"])
    found = convert(texts, DATE, {}, reading)
    assert found.values[0] == dt.date(2024, 2, 29)
    assert list(found.reasons) == [1]
    assert convert(pa.array([raw]), TIMESTAMP, {}, ConversionOptions()).reasons.keys() == {0}


def test_nothing_is_the_empty_text_in_csv_only() -> None:
    column = pa.array(["a", None])
    assert convert(column, SYMBOL, {}, ConversionOptions(empty_text=True)).values == ["a", ""]
    assert convert(column, SYMBOL, {}, ConversionOptions()).reasons == {1: NO_VALUE}


def test_sets_in_json_are_lists() -> None:
    found = convert(
        pa.array(["[1, 2]", "[1.5]", "{"]), set_type(NUMBER), {}, ConversionOptions(json_text=True)
    )
    assert found.values[0] == frozenset({1, 2})
    assert found.reasons.keys() == {1, 2}
