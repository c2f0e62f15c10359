"""Where a piece of program text stands.

Every node of the syntax tree and every rule made from it carries a `Span`, so that an error found
late (an overflow in the tenth epoch) can still point at the line the user wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True, eq=False)
class SourceText:
    """A program text and the name it is reported under."""

    name: str
    text: str
    origins: tuple[tuple[str, int], ...] = ()
    """For each line the file and the line that it is from, if other files are included."""

    def origin(self, line: int) -> tuple[str, int]:
        """Return the name and the line under which a line of this text is reported."""
        return self.origins[line - 1] if 1 <= line <= len(self.origins) else (self.name, line)

    @cached_property
    def lines(self) -> list[str]:
        """Return the text as lines without their ends.

        Only the newline ends a line: `str.splitlines` would also split at form feeds and at
        Unicode separators, and every position after one would be off.
        """
        return [line.removesuffix("\r") for line in self.text.split("\n")]

    def line(self, number: int) -> str:
        """Return line `number`, counted from 1; the empty string when there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def __repr__(self) -> str:
        return f"SourceText({self.name!r})"


@dataclass(frozen=True)
class Span:
    """A stretch of a source, from (line, column) up to but excluding (end_line, end_column).

    Lines and columns are counted from 1, as editors do.
    """

    source: SourceText = field(repr=False)
    line: int
    column: int
    end_line: int
    end_column: int
    instance: str = field(default="", compare=False, repr=False)
    """The instance of a component that this text was expanded for: its declaration and place."""

    def __str__(self) -> str:
        name, line = self.source.origin(self.line)
        return f"{name}:{line}:{self.column}"

    def first(self, width: int) -> Span:
        """Return the first `width` characters of this span: the name that an atom begins with."""
        return replace(self, end_line=self.line, end_column=self.column + width)

    def word(self, name: str) -> Span:
        """Return where the word `name` first stands in this span; the whole span if nowhere."""
        for number in range(self.line, self.end_line + 1):
            start = self.column - 1 if number == self.line else 0
            found = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)").search(
                self.source.line(number), start
            )
            if found is not None:
                start, end = found.start() + 1, found.end() + 1
                return replace(self, line=number, column=start, end_line=number, end_column=end)
        return self

    def to(self, other: Span) -> Span:
        """Return the span from the start of this one to the end of `other`."""
        return replace(self, end_line=other.end_line, end_column=other.end_column)
