"""The fast reader: large files through Arrow's CSV parser.

It returns exactly the rows of `rows.read_exactly`, or None; then the exact reader reads the file.
Arrow reads only text, because its own conversions differ from ours (`0xFFFFFFFFFFFFFFFF` is
-1, `NA` is null, spaces are trimmed). Plain decimal notation, checked with a pattern, is converted
by Arrow; for everything else the parser of the column sees each distinct text once.

Errors are never reported here: a file that Arrow or a parser rejects is read by the exact reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidelog.io.lines import BOM
from tidelog.io.parameters import FileFormat
from tidelog.values.types import Kind, Row

if TYPE_CHECKING:
    from tidelog.io.rows import Column

# For each kind, the texts that Arrow converts exactly as we do, and the type.
_CONVERTED = {
    Kind.NUMBER: (r"^-?[0-9]{1,19}$", pa.int64()),
    Kind.UNSIGNED: (r"^[0-9]{1,20}$", pa.uint64()),
    Kind.FLOAT: (r"^-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,2})?$", pa.float64()),
}


def read(data: bytes, columns: Sequence[Column], format: FileFormat) -> list[Row] | None:
    """Return the rows of `data`, or None if Arrow might read them differently."""
    if not _same_lines(data, columns, format) or not _same_fields(data, columns, format):
        return None
    try:
        table = _table(data, len(columns), format)
        picks = format.columns or range(len(columns))
        values = [_values(table.column(i), c) for i, c in zip(picks, columns, strict=True)]
    except (pa.ArrowException, ValueError, IndexError):
        return None
    return list(zip(*values, strict=True))


def _same_lines(data: bytes, columns: Sequence[Column], format: FileFormat) -> bool:
    # Arrow ends a line at a lone CR too, and skips a second byte order mark.
    if data.count(b"\r") != data.count(b"\r\n") or data.startswith(BOM):
        return False
    # To Arrow an empty line is a row of empty fields, however many columns there are.
    blank = data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data
    one_column = format.columns is None and len(columns) == 1
    return one_column or not blank


def _same_fields(data: bytes, columns: Sequence[Column], format: FileFormat) -> bool:
    delimiter = format.delimiter
    if len(delimiter) != 1 or not delimiter.isascii():
        return False
    if delimiter != "\t" and not delimiter.isprintable():
        return False
    if format.rfc4180 and b'"' in data:
        return False
    # Columns that are not picked are unknown, so they may be records.
    brackets = format.columns is not None or any(c.end is not None for c in columns)
    return not (format.brackets_protect and brackets)


def _table(data: bytes, arity: int, format: FileFormat) -> Any:
    width = arity if format.columns is None else _width(data, format)
    names = [f"f{i}" for i in range(width)]
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=names, skip_rows=int(format.headers)),
        parse_options=csv.ParseOptions(
            delimiter=format.delimiter, quote_char=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.large_string() for name in names},
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _width(data: bytes, format: FileFormat) -> int:
    # The width of the first row; Arrow rejects a file with a row of another width.
    first, _, rest = data.partition(b"\n")
    if format.headers:
        first = rest.partition(b"\n")[0]
    return first.count(format.delimiter.encode()) + 1


def _values(texts: Any, column: Column) -> list[Any]:
    kind = column.type.kind
    if kind in _CONVERTED:
        pattern, arrow_type = _CONVERTED[kind]
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            array = pc.cast(texts, arrow_type).to_numpy()
            # Adding 0.0 turns -0.0 into 0.0; the pattern excludes infinities and NaN.
            converted: list[Any] = (array + 0.0 if kind is Kind.FLOAT else array).tolist()
            return converted
    listed: list[str] = texts.to_pylist()
    # Equal texts become one object, which saves memory as well as time.
    parsed = {text: column.parse(text) for text in set(listed)}
    return [parsed[text] for text in listed]
