"""Rows as the text of a file, in the given order.

The text is guaranteed to read back as the same rows. With RFC 4180, quotes take care of that. A
plain file has no quotes, so a symbol with a tab or a line end cannot be written: it is an error,
where Soufflé writes a line that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.errors import DataError
from tidelog.io.lines import BOM, split
from tidelog.io.parameters import FileFormat
from tidelog.io.rows import column
from tidelog.values.order import Records
from tidelog.values.scalars import shown
from tidelog.values.text import value_formatter
from tidelog.values.types import Field, Kind

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1 << 17
_BYTES_AT_ONCE = 1 << 18  # fit the cache of a core


def columns_text(
    values: Sequence[Sequence[Any]],
    columns: Sequence[Field],
    records: Records,
    format: FileFormat,
    *,
    name: str,
    way_out: str,
) -> str:
    """Return rows as lines, given at least one column.

    `way_out` is the hint for a row of the relation `name` that cannot be written.
    """
    plain = [
        list(map(value_formatter(field.type, records), part))
        for part, field in zip(values, columns, strict=True)
    ]
    texts = plain
    if format.rfc4180:
        texts = [_quoted(part, format.delimiter, len(columns) == 1) for part in plain]
    lines = list(map(format.delimiter.join, zip(*texts, strict=True)))
    text = "\n".join([*lines, ""])
    if format.rfc4180 or format.stdout or _surely_readable(text, len(lines), len(columns), format):
        return text
    bad = _unreadable(plain, columns, records, format)
    if bad is not None:
        raise DataError(
            f"a row of `{name}` cannot be written: {_culprit(bad, columns, format)}"
            f"\n  row: ({', '.join(map(repr, bad))})\n  help: {way_out}"
        )
    return text


def can_be_text(columns: Sequence[Field], format: FileFormat) -> bool:
    """Return whether `table_text` can write such rows."""
    kinds = (Kind.NUMBER, Kind.UNSIGNED, Kind.SYMBOL)
    if format.rfc4180 or format.stdout or "," in format.delimiter:
        return False
    if len(format.delimiter) != 1 or not format.delimiter.isascii():
        return False
    return bool(columns) and all(field.type.kind in kinds for field in columns)


def table_text(table: pa.Table, columns: Sequence[Field], format: FileFormat) -> list[bytes] | None:
    """Return the rows of a table as lines, in parts that follow each other.

    Returns None if `columns_text` has to write or refuse them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not can_be_text(columns, format):
        return None
    none, line_end, delimiter = map(_arrow_text, ("", "\n", format.delimiter))
    parts: list[bytes] = []
    delimiters = line_ends = 0
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        texts = [column.cast(pa.large_string()) for column in batch.columns]
        texts[-1] = pc.binary_join_element_wise(texts[-1], none, line_end)
        joined = texts[0]
        if len(texts) > 1:
            joined = pc.binary_join_element_wise(*texts, delimiter)
        starts = joined.buffers()[1]
        end = memoryview(starts).cast("q")[joined.offset + len(joined)]
        part = joined.buffers()[2].slice(0, end).to_pybytes() if end else b""
        if b"\r" in part:
            return None
        delimiters += count_byte(part, format.delimiter)
        line_ends += count_byte(part, "\n")
        parts.append(part)
    if delimiters != table.num_rows * (len(columns) - 1) or line_ends != table.num_rows:
        return None
    return [BOM, *parts] if parts and parts[0].startswith(BOM) else parts


def _arrow_text(text: str) -> pa.Scalar:
    """Return a text as an Arrow value. `pa.scalar` would import pandas, to look for its objects."""
    import pyarrow as pa

    data = text.encode()
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    return pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])[0]


def count_byte(data: bytes, character: str) -> int:
    """Return how often an ASCII character occurs: `bytes.count` is slow where it occurs often."""
    code, array = ord(character), np.frombuffer(data, np.uint8)
    parts = range(0, len(array), _BYTES_AT_ONCE)
    return sum(int(np.count_nonzero(array[i : i + _BYTES_AT_ONCE] == code)) for i in parts)


def encode(text: str, name: str) -> bytes:
    """Return the bytes of a file with `text`."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        part = ascii(text[error.start : error.end])
        raise DataError(f"`{name}`: a symbol with {part} cannot be encoded as UTF-8") from None
    # A reader drops one byte order mark, so a symbol that begins with this character gets another.
    return BOM + data if data.startswith(BOM) else data


def _quoted(texts: list[str], delimiter: str, alone: bool) -> list[str]:
    # Any character of the delimiter, not the whole of it: `a` before the delimiter `ab` would
    # otherwise move where it is found. An empty field alone on its line would look like no row.
    special = rf'[{re.escape(delimiter)}"\r\n]|\A\s|\s\Z' + (r"|\A\Z" if alone else "")
    needs_quotes = re.compile(special).search
    return ['"' + text.replace('"', '""') + '"' if needs_quotes(text) else text for text in texts]


def _surely_readable(text: str, rows: int, arity: int, format: FileFormat) -> bool:
    # Counting in the whole text is about a hundred times faster than checking each line.
    return (
        len(format.delimiter) == 1
        and text.count(format.delimiter) == rows * (arity - 1)
        and text.count("\n") == rows
        and "\r" not in text
    )


def _unreadable(
    texts: Sequence[Sequence[str]], columns: Sequence[Field], records: Records, format: FileFormat
) -> tuple[str, ...] | None:
    """Return the fields of the first row that would not read back, or None."""
    ends = [column(field, records).end for field in columns]
    for fields in zip(*texts, strict=True):
        line = format.delimiter.join(fields)
        one_line = "\n" not in line and not line.endswith("\r")
        if not one_line or tuple(f.text for f in split(line, format, ends)) != fields:
            return fields
    return None


def _culprit(fields: Sequence[str], columns: Sequence[Field], format: FileFormat) -> str:
    for text, field in zip(fields, columns, strict=True):
        if "\n" in text or "\r" in text:
            return f"`{field.name}` contains the end of a line"
        if format.delimiter in text:
            return f"`{field.name}` contains the delimiter {shown(repr(format.delimiter)[1:-1])}"
    return "it would not read back as the same row"
