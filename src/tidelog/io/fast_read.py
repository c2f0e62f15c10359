"""The fast reader: large files through Arrow's CSV parser.

It returns the rows of `rows.read_exactly`, in columns, or None; then that reads the file.
Arrow reads only text, because its own conversions differ from ours (`0xFFFFFFFFFFFFFFFF` is
-1, `NA` is null, spaces are trimmed). Plain decimal notation, checked with a pattern, is converted
by Arrow. Symbols stay as they are, and for everything else the parser of the column sees each
distinct text once.

Errors are never reported here: a file that Arrow or a parser rejects is read by the exact reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidelog.io.columns import CheckedTable
from tidelog.io.lines import BOM
from tidelog.io.parameters import FileFormat
from tidelog.io.tabular import arrow_array
from tidelog.values.types import Kind, Row

if TYPE_CHECKING:
    from tidelog.io.rows import Column

# For each kind, the texts that Arrow converts exactly as we do, and the type.
_CONVERTED = {
    Kind.NUMBER: (r"^-?[0-9]{1,19}$", pa.int64()),
    Kind.UNSIGNED: (r"^[0-9]{1,20}$", pa.uint64()),
    Kind.FLOAT: (r"^-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,2})?$", pa.float64()),
}


def read(
    data: bytes, columns: Sequence[Column], format: FileFormat
) -> CheckedTable | list[Row] | None:
    """Return the rows of `data`, or None if Arrow might read them differently.

    They are a table, unless a column is a record or a set.
    """
    if not _same_lines(data) or not _same_fields(data, columns, format):
        return None
    try:
        table = _table(data, len(columns), format)
        picks = format.columns or range(len(columns))
        texts = [table.column(i) for i in picks]
        if any(column.type.kind in (Kind.RECORD, Kind.SET) for column in columns):
            return list(zip(*map(_listed, texts, columns), strict=True))
        values = list(map(_values, texts, columns))
    except (pa.ArrowException, ValueError, IndexError):
        return None
    return CheckedTable(pa.table(values, names=[str(i) for i in range(len(values))]))


def _same_lines(data: bytes) -> bool:
    # Arrow ends a line at a lone CR too, and skips a second byte order mark.
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return False
    return not data.startswith(BOM)


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
    # To Arrow an empty line is nothing, or a row of empty fields, however many columns there are.
    # It is a row only if there is one column.
    one_column = format.columns is None and arity == 1
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=names, skip_rows=int(format.headers)),
        parse_options=csv.ParseOptions(
            delimiter=format.delimiter, quote_char=False, ignore_empty_lines=not one_column
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    lines = data.count(b"\n") + (not data.endswith(b"\n")) - format.headers
    if table.num_rows != lines and not one_column:
        raise ValueError("there are empty lines")
    return table


def _width(data: bytes, format: FileFormat) -> int:
    # The width of the first row; Arrow rejects a file with a row of another width.
    first, _, rest = data.partition(b"\n")
    if format.headers:
        first = rest.partition(b"\n")[0]
    return first.count(format.delimiter.encode()) + 1


def _listed(texts: Any, column: Column) -> list[Any]:
    """Return the values of a column as Python objects."""
    listed: list[str] = texts.to_pylist()
    parsed = {text: column.parse(text) for text in set(listed)}
    return [parsed[text] for text in listed]


def _values(texts: Any, column: Column) -> Any:
    kind = column.type.kind
    if kind is Kind.SYMBOL:
        return texts
    if kind in _CONVERTED:
        pattern, wanted = _CONVERTED[kind]
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            array = pc.cast(texts, wanted)
            # Adding 0.0 turns -0.0 into 0.0; the pattern excludes infinities and NaN.
            return pc.add(array, 0.0) if kind is Kind.FLOAT else array
    encoded = texts.dictionary_encode().combine_chunks()
    parsed = list(map(column.parse, encoded.dictionary.to_pylist()))
    return arrow_array(parsed, column.type, {}).take(encoded.indices)
