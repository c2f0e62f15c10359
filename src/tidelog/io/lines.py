"""Text cut into lines and fields, exactly, with the place of each field.

Two dialects: plain lines, where the delimiter always ends a field (but for the brackets of records
when it contains a comma, as in Soufflé), and RFC 4180, where a field may be quoted and a quoted
field may contain the delimiter and line ends. A line ends with LF or CRLF; the last one need not
end. An empty line has one empty field, and it is for the caller to say what that means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.io.parameters import FileFormat

_QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')

FieldEnd: TypeAlias = Callable[[str, int], int]
"""From a line and the position of a bracketed value in it to the position behind the value."""


class Malformed(Exception):
    """A field is not well-formed. `offset` is its position in the text of its line."""

    def __init__(self, offset: int, reason: str, hint: str | None = None) -> None:
        self.offset, self.reason, self.hint = offset, reason, hint
        super().__init__(reason)


class FieldText(NamedTuple):
    """A field as it stands in the file, unquoted, and where in the line it starts."""

    text: str
    offset: int


class Line(NamedTuple):
    """One row of the file. With quoted fields it may span several lines of text."""

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

    `ends` has an entry for each column of the file that is known: None for a plain one, and for a
    record or a set the function that finds its end. Beyond `ends` brackets are matched by counting.
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
    """Return the position behind the brackets that open at `start`; `start` if there are none."""
    depth = 0
    for at in range(start, len(line)):
        depth += (line[at] in "[{") - (line[at] in "]}")
        if depth <= 0:
            return at if at == start else at + 1
    return start
