"""Parse and format values of any type.

`parse_value` and `format_value` are inverse to each other. For many values of one type use
`value_parser` and `value_formatter`, which examine the type once.
"""

from __future__ import annotations

from typing import Any

from tidelog.values.nested import format_nested, parse_nested
from tidelog.values.order import Records, sort_key, sort_rows
from tidelog.values.scalars import (
    NAN,
    Formatter,
    Parser,
    canonical_float,
    scalar_formatter,
    scalar_parser,
)
from tidelog.values.types import Kind, Type

__all__ = [
    "NAN",
    "canonical_float",
    "format_value",
    "parse_value",
    "sort_key",
    "sort_rows",
    "value_formatter",
    "value_parser",
]


def parse_value(text: str, type: Type, records: Records) -> Any:
    """Return the value of `type` that `text` denotes; raise ValueError with the reason if none.

    >>> from tidelog.values.types import NUMBER
    >>> parse_value("0x10", NUMBER, {})
    16
    """
    return value_parser(type, records)(text)


def format_value(value: Any, type: Type, records: Records) -> str:
    """Return `value` as text that `parse_value` reads back.

    >>> from tidelog.values.types import FLOAT
    >>> format_value(1.0, FLOAT, {})
    '1'
    """
    return value_formatter(type, records)(value)


def value_parser(type: Type, records: Records) -> Parser:
    """Return `parse_value` for one type."""
    if type.kind in (Kind.RECORD, Kind.SET):
        return lambda text: parse_nested(text, type, records)
    return scalar_parser(type)


def value_formatter(type: Type, records: Records) -> Formatter:
    """Return `format_value` for one type."""
    if type.kind in (Kind.RECORD, Kind.SET):
        return lambda value: format_nested(value, type, records)
    return scalar_formatter(type)
