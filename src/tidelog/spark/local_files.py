"""Read small local files with Arrow: the same rows as Spark would read, without a job.

A job costs tens of milliseconds even for a few rows, and the driver needs the rows anyway. So a few
megabytes of Parquet, CSV or JSON are read in this process, but only if Arrow and Spark read them
alike. For every option, type or character on which they might differ, the result is None, and Spark
reads the file. Spark also reports files that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.logic.program import Relation
from tidelog.spark.checking import arrow_type_name, check_schema
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import Shape
from tidelog.spark.listing import File, is_local, plain_path
from tidelog.values.types import Kind

_MOST_BYTES = 64 << 20
_COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")
_NOT_PLAIN = (b'"', b"\\", b"\r", b"\0")  # quotes, escapes, other line ends
_JSON_TYPES = {Kind.NUMBER: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BOOL: pa.bool_()}
"""How non-text values are written."""
_LEGACY = b"org.apache.spark.legacy"  # set in files with dates of another calendar


def read_here(
    files: Sequence[File],
    source: Source,
    shape: Shape,
    relation: Relation,
    header: Sequence[str] | None,
) -> pa.Table | None:
    """Return the rows of files of one schema in order, in the shape of `envelopes.encode`.

    `header` has the column names of CSV files with a header. None means that Spark must read.
    """
    kinds = {name: c.type.kind for name, c in zip(shape.columns, relation.columns, strict=True)}
    if not all(is_local(file.path) for file in files) or source.mode in ("debezium", "upsert"):
        return None
    if source.select or source.schema or source.nulls or any("=" in file.name for file in files):
        return None
    if sum(file.size for file in files) > _MOST_BYTES or not shape.columns:
        return None
    tables = []
    for number, file in enumerate(files):
        try:
            match source.format:
                case "parquet":
                    table = _parquet(file, source, shape)
                case "csv":
                    table = _csv(file, source, shape, header)
                case "json":
                    table = _json(file, source, shape, kinds)
                case _:
                    return None
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            return None
        if table is None:
            return None
        tables.append(_encoded(table, shape, [f.name for f in files], number))
    return pa.concat_tables(tables)


def fits_here(table: pa.Table, source: Source, shape: Shape, relation: Relation) -> bool:
    """Return whether the columns of a table from `read_here` fit the relation."""
    types = {name: arrow_type_name(table[f"new{i}"].type) for i, name in enumerate(shape.columns)}
    if shape.op:
        types[shape.op] = "string"
    return not check_schema(types, shape, source.mode, relation)


def _encoded(table: pa.Table, shape: Shape, names: list[str], number: int) -> pa.Table:
    found = {f"new{i}": table[name] for i, name in enumerate(shape.columns)}
    if shape.op:
        found["op"] = table[shape.op].cast(pa.string())
    which = pa.array(np.full(table.num_rows, number, np.int32))
    found["place"] = pa.DictionaryArray.from_arrays(which, pa.array(names, pa.string()))
    return pa.table(found)


def _parquet(file: File, source: Source, shape: Shape) -> pa.Table | None:
    import pyarrow.parquet as pq

    if source.options:
        return None
    with pq.ParquetFile(plain_path(file.path)) as opened:
        schema = opened.schema_arrow
        wanted = list(shape.all)
        if len(set(schema.names)) < len(schema.names) or not set(wanted) <= set(schema.names):
            return None
        if any(key.startswith(_LEGACY) for key in schema.metadata or {}):
            return None
        if not all(_is_plain(schema.field(name).type) for name in wanted):
            return None
        return opened.read(columns=wanted)


def _is_plain(type_: pa.DataType) -> bool:
    """Return whether Spark reads a column of this type as the same values."""
    is_ = pa.types
    if is_.is_timestamp(type_):
        return type_.unit in ("us", "ms") and type_.tz in (None, "UTC")
    return any(
        test(type_)
        for test in (
            is_.is_boolean, is_.is_signed_integer, is_.is_floating, is_.is_string, is_.is_date32,
            is_.is_decimal128,
        )
    )  # fmt: skip


def _csv(file: File, source: Source, shape: Shape, header: Sequence[str] | None) -> pa.Table | None:
    from pyarrow import csv

    separator, data = _separator(source.options), _bytes_of(file)
    if not separator or data is None:
        return None
    if any(sign in data for sign in _NOT_PLAIN) or not data or data[:1].isspace():
        return None
    names = list(shape.all if header is None else header)
    wanted = list(shape.all)
    if data.startswith(b"\xef\xbb\xbf") or len(set(names)) < len(names):
        return None
    if not set(wanted) <= set(names):
        return None
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(
            column_names=names, skip_rows=0 if header is None else 1, block_size=_MOST_BYTES + 1
        ),
        csv.ParseOptions(delimiter=separator, quote_char=False, escape_char=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        ),
    )
    return None if _has_blank_line(table) else table.select(wanted)


def _json(file: File, source: Source, shape: Shape, kinds: Mapping[str, Kind]) -> pa.Table | None:
    """Read one JSON object per line, if none has missing values or values of another type.

    Each line is one object if there is a bracket on both sides of each line end, and there are not
    more objects than lines.
    """
    from pyarrow import json

    data = _bytes_of(file)
    if data is None or source.options or not data.startswith(b"{") or b"\\u" in data:
        return None
    if b"\r" in data or b"\0" in data or len(set(shape.all)) < len(shape.all):
        return None
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if data.count(b"}\n{") != lines - 1 or not data.endswith((b"}", b"}\n")):
        return None
    data.decode()  # Arrow would not report it
    types = {name: _JSON_TYPES.get(kinds.get(name, Kind.SYMBOL)) for name in shape.all}
    table = json.read_json(
        pa.BufferReader(data),
        json.ReadOptions(block_size=len(data) + 1, use_threads=False),
        json.ParseOptions(
            explicit_schema=pa.schema({name: t or pa.string() for name, t in types.items()}),
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != lines or any(column.null_count for column in table.columns):
        return None
    return table.select(list(shape.all))


def _bytes_of(file: File) -> bytes | None:
    """Return the bytes of a text file; None if it is compressed."""
    path = Path(plain_path(file.path))
    return None if path.suffix.lower() in _COMPRESSED else path.read_bytes()


def _separator(options: Mapping[str, str]) -> str:
    """Return the separator; empty if there are options that Arrow may not support."""
    known = {key.lower(): value for key, value in options.items()}
    known.pop("header", None)
    separator = known.pop("sep", known.pop("delimiter", ","))
    separator = {"\\t": "\t"}.get(separator, separator)
    return separator if not known and len(separator) == 1 and separator.isascii() else ""


def _has_blank_line(table: pa.Table) -> bool:
    """Return whether a line is blank: Spark skips such lines."""
    blank: Any = None
    for column in table.columns:
        trimmed = pc.fill_null(pc.utf8_trim_whitespace(column), "")
        is_blank = pc.equal(pc.utf8_length(trimmed), 0)
        blank = is_blank if blank is None else pc.and_(blank, is_blank)
    return bool(pc.any(blank).as_py())
