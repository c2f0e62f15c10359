"""Read a file as text, lines and fields, exactly, with the place of each field.

Gzip is recognised by its first two bytes, whatever the name of the file; no UTF-8 text begins with
them. Text is UTF-8, with or without a byte order mark.

There are two dialects. In plain lines the delimiter always ends a field, except inside the brackets
of records if it contains a comma, as in Soufflé. In RFC 4180 a field may be quoted, and a quoted
field may contain the delimiter and line ends. A line ends with LF or CRLF, which the last line may
lack. An empty line has one empty field; the caller decides what it means.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog.errors import FactsError
from tidelog.io.parameters import FileFormat

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"

_QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')

FieldEnd: TypeAlias = Callable[[str, int], int]
"""Maps a line and the position of a bracketed value to the position after the value."""


def read_bytes(path: Path, kind: str) -> bytes:
    """Return the uncompressed content of the file at `path`, without a byte order mark."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FactsError(
            str(path), None, None, f"no such {kind} file", _help_for_missing(path)
        ) from None
    except OSError as error:
        reason = f"cannot read the {kind} file: {error.strerror}"
        raise FactsError(str(path), None, None, reason) from None
    if data.startswith(GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            reason = f"the gzip file is damaged: {error}"
            raise FactsError(str(path), None, None, reason) from None
    return data.removeprefix(BOM)


def decode(data: bytes, file: str) -> str:
    """Return `data` as text; raise FactsError at the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        begin = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[begin : error.start].decode("utf-8")) + 1
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8: {error.reason}"
        hint = "convert the file, for example with `iconv -f latin1 -t utf-8`"
        raise FactsError(file, line, column, reason, hint) from None


def _help_for_missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder `{path.parent}`; give the folder of the facts with -F"
    return f"create `{path.name}` in `{path.parent}`, empty if there are no facts"


class Malformed(Exception):
    """A field is not well-formed. `offset` is its position in the text of its line."""

    def __init__(self, offset: int, reason: str, hint: str | None = None) -> None:
        self.offset, self.reason, self.hint = offset, reason, hint
        super().__init__(reason)


class FieldText(NamedTuple):
    """An unquoted field, and its position in the line."""

    text: str
    offset: int


class Line(NamedTuple):
    """One row of the file; quoted fields may contain line ends."""

    number: int
    text: str

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column, both counted from 1, of a position in the text."""
        begin = self.text.rfind("\n", 0, offset) + 1
        return self.number + self.text.count("\n", 0, offset), offset - begin + 1


def lines(text: str, format: FileFormat) -> Iterator[Line]:
    """Yield the lines of `text`, without their line ends and without the header."""
    found = _quoted_lines(text, format.delimiter) if format.rfc4180 else _plain_lines(text)
    if format.headers:
        next(found, None)
    return found


def split(line: str, format: FileFormat, ends: Sequence[FieldEnd | None] = ()) -> list[FieldText]:
    """Return the fields of a line.

    `ends` has an entry for each known column of the file: None for a scalar, and for a record or a
    set the function that finds its end. In further columns brackets are matched by counting.
    """
    if format.rfc4180:
        return list(_quoted_fields(line, format.delimiter))
    if not format.brackets_protect:
        fields, offset = [], 0
        for part in line.split(format.delimiter):
            fields.append(FieldText(part, offset))
            offset += len(part) + len(format.delimiter)
        return fields
    return list(_bracketed_fields(line, format.delimiter, ends))


def _plain_lines(text: str) -> Iterator[Line]:
    number, begin = 0, 0
    while begin < len(text):
        number += 1
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        yield Line(number, text[begin:end].removesuffix("\r"))
        begin = end + 1


def _quoted_lines(text: str, delimiter: str) -> Iterator[Line]:
    number, begin = 1, 0
    while begin < len(text):
        at = begin
        while True:
            quoted = _QUOTED.match(text, at)
            at = quoted.end() if quoted is not None else at
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            next_field = text.find(delimiter, at, end)
            if next_field < 0:
                break
            at = next_field + len(delimiter)
        line = text[begin:end]
        yield Line(number, line.removesuffix("\r"))
        number += line.count("\n") + 1
        begin = end + 1


def _quoted_fields(line: str, delimiter: str) -> Iterator[FieldText]:
    at = 0
    while True:
        if line.startswith('"', at):
            quoted = _QUOTED.match(line, at)
            if quoted is None:
                raise Malformed(at, "the quoted field is not closed")
            end = quoted.end()
            if end < len(line) and not line.startswith(delimiter, end):
                raise Malformed(at, "text follows the closing quote of the field")
            yield FieldText(quoted[1].replace('""', '"'), at)
        else:
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            yield FieldText(line[at:end], at)
        if end == len(line):
            return
        at = end + len(delimiter)


def _bracketed_fields(
    line: str, delimiter: str, ends: Sequence[FieldEnd | None]
) -> Iterator[FieldText]:
    at, index = 0, 0
    while True:
        find_end = ends[index] if index < len(ends) else matching_bracket
        protected = find_end(line, at) if find_end is not None else at
        end = line.find(delimiter, protected)
        end = len(line) if end < 0 else end
        yield FieldText(line[at:end], at)
        if end == len(line):
            return
        at, index = end + len(delimiter), index + 1


def matching_bracket(line: str, start: int) -> int:
    """Return the position after the bracketed text at `start`; `start` if there is none."""
    depth = 0
    for at in range(start, len(line)):
        depth += (line[at] in "[{") - (line[at] in "]}")
        if depth <= 0:
            return at if at == start else at + 1
    return start
