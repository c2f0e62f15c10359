"""The fast reader gives what the exact reader gives, or declines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.typed_values import LIST, RECORDS, SCALARS, TYPES, relation, rows
from tidelog.errors import FactsError
from tidelog.io import fast_read
from tidelog.io.parameters import FileFormat
from tidelog.io.results import format_rows
from tidelog.io.rows import column, read_exactly
from tidelog.logic.program import Relation
from tidelog.values.types import BOOL, DATE, FLOAT, NUMBER, SYMBOL, UNSIGNED, Type

# Pieces of files that Arrow is known, or could be feared, to read in its own way.
PIECES = [
    *("\t", "\t", "\n", "\n", "\r\n", "\r", ",", " ", '"', "'", "\\", "\ufeff", "\x00", "#"),
    *("0", "1", "-1", "+1", "007", "-0", "0x1F", "0xFFFFFFFFFFFFFFFF", "0b1", "1_0", "1.5", "1e5"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "00000000000000000001"),
    *("18446744073709551615", "18446744073709551616", "1e400", "1e-400", "-0.0", ".5", "5.", "1E5"),
    *("nan", "NaN", "NA", "N/A", "NULL", "null", "inf", "-inf", "#N/A", "true", "false", "TRUE"),
    *("2024-01-31", "2024-13-01", "a", "é", "\U0001f600", "[1, nil]", "nil"),
]
FORMATS = [
    FileFormat(),
    FileFormat(headers=True),
    FileFormat(delimiter=","),
    FileFormat(delimiter=",", rfc4180=True),
    FileFormat(columns=(1,)),
    FileFormat(columns=(0,), headers=True),
]


def exact(data: bytes, of: Relation, format: FileFormat) -> list[Any] | None:
    columns = [column(field, RECORDS) for field in of.columns]
    try:
        return read_exactly(data, "f", columns, format, "")
    except FactsError:
        return None


def fast(data: bytes, of: Relation, format: FileFormat) -> list[Any] | None:
    found = fast_read.read(data, [column(field, RECORDS) for field in of.columns], format)
    return None if found is None else list(found)


def check(data: bytes, of: Relation, format: FileFormat) -> None:
    found = fast(data, of, format)
    if found is not None:
        # The text of values tells 1 from True and 0.0 from -0.0.
        assert repr(found) == repr(exact(data, of, format))


@given(
    st.lists(st.sampled_from(PIECES)).map("".join),
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=2),
    st.sampled_from(FORMATS),
)
@example("0xFFFFFFFFFFFFFFFF\n", [NUMBER], FileFormat())
@example("NA\n", [SYMBOL], FileFormat())
@example(" 1\n", [NUMBER], FileFormat())
@example("a\rb\n", [SYMBOL], FileFormat())
@example("\ufeffa\n", [SYMBOL], FileFormat())
@example("\n\n", [SYMBOL], FileFormat())
@example("1\n\n", [NUMBER], FileFormat())
@example("\n", [SYMBOL, SYMBOL], FileFormat())
@example("a\tb\n\n", [SYMBOL], FileFormat(columns=(1,)))
@example("a\tb\n\n", [SYMBOL], FileFormat(columns=(0,)))
@example("1e400\n", [FLOAT], FileFormat())
@example("-0.0\n", [FLOAT], FileFormat())
@example("1\t2\t3\n", [NUMBER, NUMBER], FileFormat())
def test_random_text_is_read_alike(text: str, types: list[Type], format: FileFormat) -> None:
    if format.columns is not None:
        types = types[:1]
    check(text.encode(), relation(*types), format)


@given(st.binary(), st.sampled_from([NUMBER, SYMBOL]))
def test_random_bytes_are_read_alike(data: bytes, type: Type) -> None:
    check(data, relation(type), FileFormat())


@given(st.data())
def test_random_rows_are_read_alike(data: st.DataObject) -> None:
    of = relation(*data.draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3)))
    drawn = data.draw(rows(of))
    text = format_rows(drawn, of, {}, {"rfc4180": "true"})
    check(text.encode(), of, FileFormat(delimiter=",", rfc4180=True))


@pytest.mark.parametrize(
    ("text", "of", "format"),
    [
        ("1\t-2\n3\t4\n", relation(NUMBER, NUMBER), FileFormat()),
        ("1\t-2\r\n3\t4", relation(NUMBER, NUMBER), FileFormat()),
        ("a\tb\n3\t0x4\n4\t+5\n", relation(UNSIGNED, NUMBER), FileFormat(headers=True)),
        ('a\t"b\n\tNA\n', relation(SYMBOL, SYMBOL), FileFormat()),
        ("a\n\nb\n", relation(SYMBOL), FileFormat()),
        ("0.1\n-0.0\n1e-7\n0.1234567890123456789\n", relation(FLOAT), FileFormat()),
        ("nan\n1\n", relation(FLOAT), FileFormat()),
        ("true\t2024-01-31\n1\t2024-01-31\n", relation(BOOL, DATE), FileFormat()),
        ("1\t[2, [3, nil]]\n", relation(NUMBER, LIST), FileFormat()),
        ("1,a\n", relation(NUMBER, SYMBOL), FileFormat(delimiter=",", rfc4180=True)),
        ("1,a\n", relation(NUMBER, SYMBOL), FileFormat(delimiter=",")),
        ("x\t1\ty\n", relation(NUMBER), FileFormat(columns=(1,))),
    ],
)
def test_ordinary_files_are_read_fast_and_alike(
    text: str, of: Relation, format: FileFormat
) -> None:
    found = fast(text.encode(), of, format)
    assert found is not None
    assert repr(found) == repr(exact(text.encode(), of, format))


@pytest.mark.parametrize(
    ("data", "of", "format"),
    [
        (b"x\n", relation(NUMBER), FileFormat()),
        (b"1\t2\n", relation(NUMBER), FileFormat()),
        (b"\xff\n", relation(SYMBOL), FileFormat()),
        (b"a\rb\n", relation(SYMBOL), FileFormat()),
        (b"1\n\n", relation(NUMBER), FileFormat()),
        (b"a\tb\n\n", relation(SYMBOL, SYMBOL), FileFormat()),
        (b"a\tb\r\n\r\n", relation(SYMBOL, SYMBOL), FileFormat()),
        (b'"a"\n', relation(SYMBOL), FileFormat(delimiter=",", rfc4180=True)),
        (b"1,[2, nil]\n", relation(NUMBER, LIST), FileFormat(delimiter=",")),
        (b"a::b\n", relation(SYMBOL, SYMBOL), FileFormat(delimiter="::")),
        (b"a\tb\nc\td\te\n", relation(SYMBOL), FileFormat(columns=(0,))),
        (b"a\n", relation(SYMBOL), FileFormat(columns=(1,))),
        (b"", relation(SYMBOL), FileFormat()),
    ],
)
def test_what_could_differ_is_declined(data: bytes, of: Relation, format: FileFormat) -> None:
    assert fast(data, of, format) is None
