"""Results: the rows of a relation in the format of its `.output` directive.

An `OutputPlan` collects everything that a run writes, and writes it at the end, all or nothing: an
error in the last relation leaves the files of the first one untouched.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from tidelog.errors import UsageError
from tidelog.io.atomic import write_all
from tidelog.io.parameters import FileFormat, output_format
from tidelog.io.text import can_be_text, columns_text, encode, table_text
from tidelog.logic.program import Directive, DirectiveKind, Relation
from tidelog.runtime.workers import ALONE, Workers
from tidelog.values.order import Records, sort_columns
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

_MANY = 2000  # rows that are written by columns

__all__ = ["OutputPlan", "format_rows", "output_path", "write_all"]


def format_rows(
    rows: Iterable[Row], relation: Relation, records: Records, parameters: Mapping[str, str]
) -> str:
    """Return the sorted rows as text, for a file or (`IO=stdout`) between Soufflé's rulers.

    Raises DataError for a row that could not be read back from the file.
    """
    return _text(rows, relation, records, output_format(relation, parameters))


def output_path(directive: Directive, output_dir: Path | str) -> Path:
    """Return the file that an `.output` names, in `output_dir` unless its name is absolute."""
    packed = directive.parameters.get("compress") == "true"
    default = f"{directive.relation}.csv.gz" if packed else f"{directive.relation}.csv"
    return Path(output_dir) / directive.parameters.get("filename", default)


@runtime_checkable
class InColumns(Protocol):
    """Rows that can also be had as a table, in the order of their values."""

    def to_sorted_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, sorted: for columns of numbers and symbols."""


class ResultFile(NamedTuple):
    """What an `.output` or `.printsize` directive asks for."""

    directive: Directive
    relation: Relation
    rows: Collection[Row]


class OutputPlan:
    """The files and the printed text of a run, collected first and written together."""

    def __init__(self, output_dir: Path | str) -> None:
        self.output_dir = Path(output_dir)
        self.files: dict[Path, Sequence[bytes]] = {}
        """Their content, in parts."""
        self._printed: list[str] = []

    def add(
        self, outputs: Sequence[ResultFile], records: Records, workers: Workers = ALONE
    ) -> None:
        """Add the outputs of `.output` and `.printsize` directives; workers share them."""

        def made(output: ResultFile, is_stopped: Callable[[], bool]) -> list[bytes] | str:
            return _made(output, records)

        for (directive, _, _), data in zip(outputs, workers.map(made, outputs), strict=True):
            if isinstance(data, str):
                self._printed.append(data)
            else:
                self._add_file(output_path(directive, self.output_dir), data)

    def add_text(self, path: Path | str, text: str) -> None:
        """Add a file, relative to the output folder."""
        path = self.output_dir / path
        self._add_file(path, [encode(text, path.name)])

    def write(self, workers: Workers = ALONE) -> str:
        """Write all files, or none and raise UsageError; return the text to print."""
        write_all(self.files, workers)
        return "".join(self._printed)

    def _add_file(self, path: Path, data: Sequence[bytes]) -> None:
        if path in self.files:
            raise UsageError(f"two outputs write the same file `{path}`\n  help: set `filename`")
        self.files[path] = data


def _made(output: ResultFile, records: Records) -> list[bytes] | str:
    """Return the content of a file in parts, or text to print."""
    directive, relation, rows = output
    if directive.kind is DirectiveKind.PRINTSIZE:
        return f"{relation.name}\t{len(rows)}\n"
    format = output_format(relation, directive.parameters)
    data = _by_columns(rows, relation, format)
    if data is None:
        text = _text(rows, relation, records, format)
        if format.stdout:
            return text
        data = [encode(text, relation.name)]
    # Without the time, so that equal rows give equal files.
    return [gzip.compress(b"".join(data), mtime=0)] if format.compress else data


def _by_columns(
    rows: Collection[Row], relation: Relation, format: FileFormat
) -> list[bytes] | None:
    """Return the text of many rows that come in columns; None if there are few, or objects."""
    if not isinstance(rows, InColumns) or len(rows) < _MANY or format.headers:
        return None
    if not can_be_text(relation.columns, format):
        return None
    try:
        return table_text(rows.to_sorted_arrow(), relation.columns, format)
    except UnicodeEncodeError:
        return None


def _text(rows: Iterable[Row], relation: Relation, records: Records, format: FileFormat) -> str:
    if relation.arity == 0:
        body = "()\n" if any(True for _ in rows) else ""
    else:
        values = sort_columns(rows, relation.columns, records)
        way_out = f"`.output {relation.name}(rfc4180=true)` writes such symbols in quotes"
        body = columns_text(
            values, relation.columns, records, format, name=relation.name, way_out=way_out
        )
    header = ""
    if format.headers:
        header = format.delimiter.join(field.name for field in relation.columns) + "\n"
    if not format.stdout:
        return header + body
    return f"---------------\n{relation.name}\n{header}===============\n{body}===============\n"
