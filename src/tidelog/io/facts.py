"""Facts files: where they are, and the rows in them.

A facts file has one row per line and, unless the directive says otherwise, a tab between fields.
Tidelog is stricter than Soufflé in one point: a line with too many fields is an error, where
Soufflé drops the rest. With `columns` the choice is explicit, and further fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.io.columns import CheckedTable
from tidelog.io.lines import read_bytes
from tidelog.io.parameters import input_format
from tidelog.io.rows import Column, column, read_rows
from tidelog.logic.program import Directive, Relation
from tidelog.values.order import Records
from tidelog.values.scalars import shown
from tidelog.values.types import BOOL, Row


def facts_path(directive: Directive, facts_dir: Path | str) -> Path:
    """Return the file that an `.input` names, in `facts_dir` unless its name is absolute.

    If the file does not exist, but one with `.gz` appended does, return that one.
    """
    name = directive.parameters.get("filename", f"{directive.relation}.facts")
    path = Path(facts_dir) / name
    packed = path.with_name(path.name + ".gz")
    return packed if not path.exists() and packed.exists() else path


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
