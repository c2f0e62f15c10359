"""The few C preprocessor lines that existing Datalog programs use.

Supported: `#define NAME text` (without arguments), `#undef`, `#ifdef`, `#ifndef`, `#else` and
`#endif`. The result has as many lines as the input, so that line numbers stay the same. Where
macros were replaced, a `Replacement` maps the columns of the result to those of the source.
Anything else that starts with `#` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import SourceText, Span

_LINE = re.compile(r"^\s*#\s*(?P<word>\w*)\s*(?P<rest>.*?)\s*$")
_DEFINE = re.compile(r"^(?P<name>[A-Za-z_]\w*)(?P<args>\(.*)?\s*(?P<text>.*)$")
# Strings and comments are matched first, so that a macro's name inside them stays as it is.
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|//.*|[A-Za-z_?][A-Za-z0-9_?]*')
_SKIPPED = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_INCLUDE = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
_OTHER_WORDS = frozenset(["include", "if", "elif", "error", "warning", "line", "pragma", "import"])
_MAX_EXPANSIONS = 64


@dataclass(frozen=True)
class Replacement:
    """The columns [start, end) of a line stand for [source_start, source_end) of the source."""

    start: int
    end: int
    source_start: int
    source_end: int


@dataclass(frozen=True)
class Preprocessed:
    """The text that is parsed and, for each line, what was replaced in it from left to right."""

    text: str
    replaced: Mapping[int, tuple[Replacement, ...]]

    def source_columns(self, line: int, start: int, end: int) -> tuple[int, int]:
        """Return where the columns [start, end) of a line come from.

        >>> done = Preprocessed("p(100, x).", {1: (Replacement(3, 6, 3, 4),)})  # of p(N, x).
        >>> done.source_columns(1, 3, 6), done.source_columns(1, 8, 9)
        ((3, 4), (6, 7))
        """
        shift = 0
        for part in self.replaced.get(line, ()):
            if part.end <= start:
                shift = part.source_end - part.end
            elif part.start < end:
                return part.source_start, part.source_end
        return start + shift, end + shift


def uses_preprocessor(text: str) -> bool:
    """Return whether some line of `text` starts with `#`."""
    inside = _inside_comments(text)
    return any(
        line.lstrip().startswith("#") and number not in inside
        for number, line in enumerate(text.split("\n"), start=1)
    )


def _inside_comments(text: str) -> set[int]:
    """Return the numbers of the lines that start inside a `/* .. */` comment."""
    inside: set[int] = set()
    for part in _SKIPPED.finditer(text):
        if part[0].startswith("/*") and "\n" in part[0]:
            first = text.count("\n", 0, part.start()) + 1
            inside.update(range(first + 1, first + part[0].count("\n") + 1))
    return inside


def includes_files(text: str) -> bool:
    """Return whether some line includes another file, which is refused."""
    return _INCLUDE.search(text) is not None


def preprocess(source: SourceText, diagnostics: Diagnostics) -> Preprocessed:
    """Return the text of `source` after preprocessing."""
    if not uses_preprocessor(source.text):
        return Preprocessed(source.text, {})
    replaced: dict[int, tuple[Replacement, ...]] = {}
    macros: dict[str, str] = {}
    active: list[bool] = []  # one entry per open #ifdef: is its current branch taken?
    opened: list[Span] = []
    out: list[str] = []
    inside = _inside_comments(source.text)
    for number, line in enumerate(source.lines, start=1):
        is_directive = line.lstrip().startswith("#") and number not in inside
        match = _LINE.match(line) if is_directive else None
        if match is None:
            text, replaced[number] = _expand_line(line, macros) if all(active) else ("", ())
            out.append(text)
            continue
        out.append("")
        span = Span(source, number, len(line) - len(line.lstrip()) + 1, number, len(line) + 1)
        word, rest = match["word"], re.sub(r"\s*//.*$|\s*/\*.*?\*/\s*$", "", match["rest"])
        if word in ("ifdef", "ifndef"):
            active.append((rest in macros) == (word == "ifdef"))
            opened.append(span)
        elif word in ("else", "endif"):
            if not active:
                diagnostics.error(
                    "preprocessor", f"there is no `#ifdef` for this `#{word}`", span, "remove it"
                )
            elif word == "else":
                active[-1] = not active[-1]
            else:
                active.pop()
                opened.pop()
        elif not all(active):
            continue
        elif word == "define":
            define = _DEFINE.match(rest)
            if define is None:
                diagnostics.error(
                    "preprocessor", "this `#define` has no name", span, "write `#define NAME text`"
                )
            elif define["args"]:
                diagnostics.error(
                    "not-supported", "a `#define` with arguments is not supported", span,
                    "write a relation or a rule instead",
                )  # fmt: skip
            else:
                macros[define["name"]] = define["text"].strip()
        elif word == "undef":
            macros.pop(rest, None)
        elif word in _OTHER_WORDS:
            hint = "only #define without arguments, #undef, #ifdef, #ifndef, #else and #endif are"
            if word == "include":
                hint = "put the text of the other file into this one"
            diagnostics.error(
                "not-supported", f"the preprocessor line `#{word}` is not supported", span, hint
            )
        else:
            hash_sign = Span(source, number, span.column, number, span.column + 1)
            diagnostics.error(
                "stray-character", "`#` does not start a comment", hash_sign,
                "comments start with `//`",
            )  # fmt: skip
    for span in opened:
        diagnostics.error(
            "preprocessor", "this condition has no `#endif`", span, "close it with `#endif`"
        )
    return Preprocessed("\n".join(out), replaced)


def _expand_line(line: str, macros: dict[str, str]) -> tuple[str, tuple[Replacement, ...]]:
    """Return `line` with its macros replaced, and what was replaced."""
    out = ""
    done = 0
    replaced = []
    for word in _WORD.finditer(line):
        if word[0] not in macros:
            continue
        out += line[done : word.start()]
        start = len(out)
        out += _expand(macros[word[0]], macros)
        done = word.end()
        replaced.append(Replacement(start + 1, len(out) + 1, word.start() + 1, word.end() + 1))
    return out + line[done:], tuple(replaced)


def _expand(line: str, macros: dict[str, str]) -> str:
    """Return `line` with macro names replaced, until none is left."""
    for _ in range(_MAX_EXPANSIONS):
        new = _WORD.sub(lambda m: macros.get(m[0], m[0]), line)
        if new == line:
            break
        line = new
    return line
