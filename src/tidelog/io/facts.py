"""Facts files: where they are, and the rows in them.

A facts file has one row per line and, unless the directive says otherwise, a tab between fields.
Tidelog is stricter than Soufflé in one point: a line with too many fields is an error, where
Soufflé drops the rest. With `columns` the choice is explicit, and further fields are ignored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.io.columns import CheckedTable
from tidelog.io.lines import GZIP_MAGIC, read_bytes
from tidelog.io.parameters import FileFormat, input_format
from tidelog.io.rows import SMALL, Column, column, read_rows
from tidelog.logic.program import Directive, Relation
from tidelog.values.order import Records
from tidelog.values.scalars import shown
from tidelog.values.types import BOOL, Kind, Row

_PLAIN = (Kind.SYMBOL, Kind.NUMBER, Kind.UNSIGNED)


@dataclass(frozen=True)
class FactsFile:
    """A large file of facts that is not read yet: an engine may read it in pieces.

    Its lines are symbols and numbers between delimiters, without quotes. That is how they should
    be; what they are is known when they are read.
    """

    path: Path
    relation: Relation
    records: Records
    parameters: Mapping[str, str]
    format: FileFormat

    def __iter__(self) -> Iterator[Row]:
        return iter(self.read())

    def read(self) -> list[Row] | CheckedTable:
        """Return the rows, or raise FactsError."""
        return read_facts(self.path, self.relation, self.records, self.parameters)


def facts_path(directive: Directive, facts_dir: Path | str) -> Path:
    """Return the file that an `.input` names, in `facts_dir` unless its name is absolute.

    If the file does not exist, but one with `.gz` appended does, return that one.
    """
    name = directive.parameters.get("filename", f"{directive.relation}.facts")
    path = Path(facts_dir) / name
    packed = path.with_name(path.name + ".gz")
    return packed if not path.exists() and packed.exists() else path


def open_facts(
    path: Path, relation: Relation, records: Records, parameters: Mapping[str, str]
) -> list[Row] | CheckedTable | FactsFile:
    """Return what `read_facts` returns, or the file if it is large and plain."""
    format = input_format(relation, parameters)
    is_plain = (
        bool(relation.columns)
        and all(field.type.kind in _PLAIN for field in relation.columns)
        and len(format.delimiter.encode()) == 1
        and not format.rfc4180
        and format.columns is None
    )
    if is_plain and _is_large(path):
        return FactsFile(path, relation, records, parameters, format)
    return read_facts(path, relation, records, parameters)


def _is_large(path: Path) -> bool:
    """Return whether there is a large file, which is not compressed."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            is_file = stat.S_ISREG(found.st_mode) and found.st_size > SMALL
            return is_file and not file.read(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
    except OSError:
        return False  # `read_facts` says what is wrong


def read_facts(
    path: Path | str, relation: Relation, records: Records, parameters: Mapping[str, str]
) -> list[Row] | CheckedTable:
    """Return the rows of a facts file in order, including repeated ones.

    Large files are read by columns (io/fast_read.py).

    Raises FactsError with line and column for a row that does not fit the relation, and UsageError
    for invalid parameters.
    """
    format = input_format(relation, parameters)
    data = read_bytes(Path(path), "facts")
    if relation.arity == 0:
        unit = Column(BOOL, _parse_unit)
        return [() for _ in read_rows(data, str(path), [unit], format, f"`()` of {relation}")]
    columns = [column(field, records) for field in relation.columns]
    return read_rows(data, str(path), columns, format, str(relation))


def _parse_unit(text: str) -> bool:
    if text != "()":
        raise ValueError(f"expected `()`, found {shown(text)}")
    return True
