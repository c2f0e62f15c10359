"""Rows of a file, each field read by the parser of its column.

There are two readers for the same rows. The one here reads line by line, is exact by construction
and knows its position, so it reports all errors. `fast_read` takes a tenth of the time on large
files. It returns nothing whenever the result could differ, and then the file is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.errors import FactsError
from tidelog.io.columns import CheckedTable
from tidelog.io.lines import FieldEnd, Line, Malformed, decode, lines, matching_bracket, split
from tidelog.io.parameters import FileFormat
from tidelog.values.nested import scan_nested
from tidelog.values.order import Records
from tidelog.values.scalars import Parser
from tidelog.values.text import value_parser
from tidelog.values.types import Field, Kind, Row, Type

# Up to this size the exact reader is done before Arrow is even imported.
SMALL = 1 << 16


@dataclass(frozen=True)
class Column:
    """How to read one field of a line."""

    type: Type
    parse: Parser
    end: FieldEnd | None = None
    """For a record or a set: finds the end of the value, which may contain the delimiter."""


def column(field: Field, records: Records) -> Column:
    """Return how to read a column of a relation."""
    type = field.type
    if type.kind not in (Kind.RECORD, Kind.SET):
        return Column(type, value_parser(type, records))

    def end(line: str, start: int) -> int:
        try:
            return scan_nested(line, start, type, records)[1]
        except ValueError:  # the parser of the field reports the error
            return matching_bracket(line, start)

    return Column(type, value_parser(type, records), end)


def read_rows(
    data: bytes, file: str, columns: Sequence[Column], format: FileFormat, expected: str
) -> list[Row] | CheckedTable:
    """Return the rows of a file with at least one column; `expected` says what a line must be.

    Those of a large file are a table, unless a column is a record or a set.
    """
    if len(data) > SMALL:
        # Imported here, because a small run should not wait for Arrow to load.
        from tidelog.io import fast_read

        rows = fast_read.read(data, columns, format)
        if rows is not None:
            return rows
    return read_exactly(data, file, columns, format, expected)


def read_exactly(
    data: bytes, file: str, columns: Sequence[Column], format: FileFormat, expected: str
) -> list[Row]:
    """Return what `read_rows` returns, line by line."""
    picks = format.columns or tuple(range(len(columns)))
    ends = _ends_in_file_order(columns, picks)
    # An empty line is a row only of a relation with one symbol column. Otherwise it is an error,
    # except at the end of the file, where an editor may have left it.
    blank_is_row = picks == (0,) and columns[0].type.kind is Kind.SYMBOL
    blank: Line | None = None
    rows: list[Row] = []
    for line in lines(decode(data, file), format):
        if blank is not None:
            hint = f"every line must fit {expected}"
            raise FactsError(file, blank.number, 1, "missing values: the line is empty", hint)
        if not line.text and not blank_is_row:
            blank = line
            continue
        try:
            rows.append(_row(line.text, columns, picks, format, ends))
        except Malformed as error:
            number, position = line.place(error.offset)
            hint = error.hint or f"the line must fit {expected}"
            raise FactsError(file, number, position, error.reason, hint) from None
    return rows


def _row(
    text: str,
    columns: Sequence[Column],
    picks: tuple[int, ...],
    format: FileFormat,
    ends: Sequence[FieldEnd | None],
) -> Row:
    fields = split(text, format, ends)
    if format.columns is None and len(fields) > len(columns):
        reason = f"expected {_fields(len(columns))}, found {len(fields)}"
        raise Malformed(fields[len(columns)].offset, reason)
    if len(fields) <= max(picks):
        least = "" if format.columns is None else "at least "
        reason = f"expected {least}{_fields(max(picks) + 1)}, found {len(fields)}"
        raise Malformed(len(text), reason, _hint_for_delimiter(text, format))
    row = []
    for pick, one in zip(picks, columns, strict=True):
        try:
            row.append(one.parse(fields[pick].text))
        except ValueError as error:
            raise Malformed(fields[pick].offset, str(error)) from None
    return tuple(row)


def _ends_in_file_order(columns: Sequence[Column], picks: tuple[int, ...]) -> list[FieldEnd | None]:
    ends: list[FieldEnd | None] = [matching_bracket] * (max(picks) + 1)
    for pick, one in zip(picks, columns, strict=True):
        ends[pick] = one.end
    return ends


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _hint_for_delimiter(text: str, format: FileFormat) -> str | None:
    if format.delimiter in text:
        return None
    for other, name in (("\t", "tab"), (",", ","), (";", ";"), ("|", "|"), (" ", " ")):
        if other in text:
            is_tab = format.delimiter == "\t"
            used = "a tab" if is_tab else f"`{format.delimiter}`"
            wanted = "\\t" if name == "tab" else name
            return f'fields are separated by {used} here; or say `delimiter="{wanted}"`'
    return None
