"""Everything that can go wrong, as one tree.

    TidelogError
    ├── ProgramError            the program text is wrong; carries one Diagnostic per mistake
    ├── DataError               a value or a row is wrong
    │   ├── FactsError          ... in a file: file, line, column, reason
    │   ├── EvaluationError     ... found while a rule was evaluated: overflow, division by zero
    │   └── FunctionalConflict  ... two values for one key of a functional relation
    ├── LimitError              an epoch exceeded its limit of memory, time or levels
    ├── StateError              the files of a durable database are damaged, in use, or not writable
    └── UsageError              the API or the command line was used in a way that cannot work

The message of each says what is wrong, where, and the likely fix. Nothing is changed or written
by the call that raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.source import Span


class TidelogError(Exception):
    """Base of all errors that Tidelog raises on purpose."""


@dataclass(frozen=True)
class Diagnostic:
    """One mistake in a program: a stable code, what is wrong, where, and the likely fix."""

    code: str
    message: str
    span: Span | None = None
    hint: str | None = None

    def render(self) -> str:
        """Return the mistake as a compiler prints it, with the source line and a caret."""
        if self.span is None:
            lines = [f"error: {self.message} [{self.code}]"]
        else:
            lines = [f"{self.span}: error: {self.message} [{self.code}]"]
            text = self.span.source.line(self.span.line)
            number = str(self.span.source.origin(self.span.line)[1])
            same_line = self.span.end_line == self.span.line
            end = self.span.end_column if same_line else len(text) + 1
            width = max(1, end - self.span.column)
            # Tabs stay tabs in the padding, so that the caret stands under its text.
            before = text[: self.span.column - 1]
            pad = "".join("\t" if c == "\t" else " " for c in before)
            pad += " " * (self.span.column - 1 - len(before))
            lines.append(f"  {number} | {text}")
            lines.append(f"  {' ' * len(number)} | {pad}{'^' * width}")
        if self.span is not None and self.span.instance:
            lines.append(f"  in the instance: {self.span.instance}")
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)


class ProgramError(TidelogError):
    """The program text is wrong. `diagnostics` lists every mistake found in one run."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in self.diagnostics))


class DataError(TidelogError):
    """A value or a row does not fit; nothing was changed."""


class FactsError(DataError):
    """A row of a file does not fit its relation."""

    def __init__(
        self, file: str, line: int | None, column: int | None, reason: str, hint: str | None = None
    ) -> None:
        self.file, self.line, self.column, self.reason = file, line, column, reason
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {reason}" + (f"\n  help: {hint}" if hint else ""))


class EvaluationError(DataError):
    """A rule met values it cannot compute with: overflow, division by zero, a bad conversion."""

    def __init__(
        self, reason: str, rule: str, span: Span | None, values: dict[str, object]
    ) -> None:
        self.reason, self.rule, self.span, self.values = reason, rule, span, values
        where = f"{span}: " if span is not None else ""
        shown = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        super().__init__(
            f"{where}{reason}\n  rule: {rule}" + (f"\n  with: {shown}" if shown else "")
        )


class FunctionalConflict(DataError):
    """Two values for one key of a functional relation, with the derivation of each."""


class LimitError(TidelogError):
    """An epoch exceeded a limit of its database; nothing was changed."""


class StateError(TidelogError):
    """The files of a durable database cannot be used: damaged, in use, unknown or not writable."""


class UsageError(TidelogError):
    """The API or the command line was asked for something it cannot do."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean `x`?" for the known name closest to `name`, or None.

    >>> did_you_mean("edg", ["edge", "reach"])
    'did you mean `edge`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None
