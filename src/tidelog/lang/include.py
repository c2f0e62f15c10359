"""Files that a program file includes: `.include "lib.dl"`, or `#include "lib.dl"`.

Their text takes the place of the line, as in Soufflé; files are looked for beside the file that
includes them. Messages name the file and the line in it. A file is not included while it is being
included: that would never end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.preprocess import lines_inside_comments
from tidelog.source import SourceText, Span

_INCLUDE = re.compile(r'^\s*(?:#\s*|\.)include\s*["<](?P<path>[^">]+)[">]\s*(?://.*)?$')


def with_included(path: Path, read: Callable[[Path], str], diagnostics: Diagnostics) -> SourceText:
    """Return the text of a program file, with the files that it includes."""
    lines: list[str] = []
    origins: list[tuple[str, int]] = []

    def add(file: Path, text: str, around: tuple[Path, ...]) -> None:
        source = SourceText(str(file), text)
        inside = lines_inside_comments(text)
        for number, line in enumerate(text.split("\n"), start=1):
            found = _INCLUDE.match(line) if number not in inside else None
            if found is None:
                lines.append(line)
                origins.append((str(file), number))
                continue
            other = file.parent / found["path"]
            if other.resolve() in around:
                continue
            if not other.is_file():
                span = Span(source, number, found.start("path"), number, found.end("path") + 2)
                diagnostics.error(
                    "preprocessor", f"there is no file `{other}`", span,
                    "files are included from the folder of the file that includes them",
                )  # fmt: skip
                continue
            add(other, read(other).rstrip("\n"), (*around, other.resolve()))

    text = read(path)
    add(path, text, (path.resolve(),))
    whole = "\n".join(lines)
    return SourceText(str(path), whole, tuple(origins) if whole != text else ())
