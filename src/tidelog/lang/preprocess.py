"""The few C preprocessor lines that existing Datalog programs use.

Supported: `#define NAME text`, also with arguments and with lines that a backslash continues,
`#undef`, `#ifdef`, `#ifndef`, `#else` and `#endif`. The result has as many lines as the input, so
that line numbers stay the same. Where macros were replaced, a `Replacement` maps the columns of the
result to those of the source. Anything else that starts with `#` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import SourceText, Span

_LINE = re.compile(r"^\s*#\s*(?P<word>\w*)\s*(?P<rest>.*?)\s*$")
_DEFINE = re.compile(r"^(?P<name>[A-Za-z_]\w*)(?P<args>\([^)]*\)?)?\s*(?P<text>.*)$")
_PARAMETERS = re.compile(r"^\((\s*|\s*[A-Za-z_]\w*\s*(,\s*[A-Za-z_]\w*\s*)*)\)$")
# Strings and comments are matched first, so that a macro's name inside them stays as it is.
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|//.*|[A-Za-z_?][A-Za-z0-9_?]*')
_SKIPPED = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_INCLUDE = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
_OTHER_WORDS = frozenset(["include", "if", "elif", "error", "warning", "line", "pragma", "import"])
_MAX_EXPANSIONS = 64


@dataclass(frozen=True)
class _Macro:
    """What a name stands for; `parameters` is None for a macro without parentheses."""

    text: str
    parameters: tuple[str, ...] | None = None

    def applied(self, given: list[str]) -> str:
        """Return the text with the arguments in the place of the parameters."""
        assert self.parameters is not None
        values = dict(zip(self.parameters, given, strict=True))
        return _WORD.sub(lambda m: values.get(m[0], m[0]), self.text)


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
    inside = lines_inside_comments(text)
    return any(
        line.lstrip().startswith("#") and number not in inside
        for number, line in enumerate(text.split("\n"), start=1)
    )


def lines_inside_comments(text: str) -> set[int]:
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
    macros: dict[str, _Macro] = {}
    active: list[bool] = []  # one entry per open #ifdef: is its current branch taken?
    opened: list[Span] = []
    out: list[str] = []
    inside = lines_inside_comments(source.text)
    continued = ""
    for number, physical in enumerate(source.lines, start=1):
        line = physical
        if continued or (line.endswith("\\") and re.match(r"\s*#\s*define\b", line)):
            continued += line.removesuffix("\\") + " "
            if line.endswith("\\") and number < len(source.lines):
                out.append("")
                continue
            line, continued = continued, ""
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
            elif define["args"] and not _PARAMETERS.match(define["args"]):
                diagnostics.error(
                    "preprocessor", "the parameters of this `#define` are not names", span,
                    "write `#define NAME(a, b) text`",
                )  # fmt: skip
            else:
                names = None
                if define["args"]:
                    names = tuple(re.findall(r"\w+", define["args"]))
                macros[define["name"]] = _Macro(define["text"].strip(), names)
        elif word == "undef":
            macros.pop(rest, None)
        elif word in _OTHER_WORDS:
            hint = "only #define, #undef, #ifdef, #ifndef, #else and #endif are"
            if word == "include":
                hint = "only a program in a file can include others, by a line of its own"
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


def _expand_line(line: str, macros: dict[str, _Macro]) -> tuple[str, tuple[Replacement, ...]]:
    """Return `line` with its macros replaced, and what was replaced."""
    out = ""
    done = 0
    replaced = []
    for start, end, text in _uses(line, macros):
        out += line[done:start]
        first = len(out)
        out += _expand(text, macros)
        done = end
        replaced.append(Replacement(first + 1, len(out) + 1, start + 1, end + 1))
    return out + line[done:], tuple(replaced)


def _expand(line: str, macros: dict[str, _Macro]) -> str:
    """Return `line` with macro names replaced, until none is left."""
    for _ in range(_MAX_EXPANSIONS):
        out, done = "", 0
        for start, end, text in _uses(line, macros):
            out += line[done:start] + text
            done = end
        new = out + line[done:]
        if new == line:
            break
        line = new
    return line


def _uses(line: str, macros: dict[str, _Macro]) -> Iterator[tuple[int, int, str]]:
    """Yield where macros are used in a line, and what they stand for.

    A macro with parameters is only used where as many arguments follow, on the same line.
    """
    done = 0
    for word in _WORD.finditer(line):
        macro = macros.get(word[0])
        if macro is None or word.start() < done:
            continue
        if macro.parameters is None:
            done = word.end()
            yield word.start(), done, macro.text
            continue
        found = _arguments(line, word.end())
        if found is not None and len(found[0]) == len(macro.parameters):
            done = found[1]
            yield word.start(), done, macro.applied(found[0])


def _arguments(line: str, start: int) -> tuple[list[str], int] | None:
    """Return the arguments in the parentheses that begin at `start`, and where these end."""
    opened = re.compile(r"\s*\(").match(line, start)
    if opened is None:
        return None
    depth, first, found = 1, opened.end(), []
    for part in re.compile(r'"(?:\\.|[^"\\])*"|[()\[\]{},]').finditer(line, first):
        if part[0] == "," and depth == 1:
            found.append(line[first : part.start()].strip())
            first = part.end()
        elif part[0] in "([{":
            depth += 1
        elif part[0] in ")]}":
            depth -= 1
            if depth == 0:
                last = line[first : part.start()].strip()
                return ([*found, last] if found or last else []), part.end()
    return None
