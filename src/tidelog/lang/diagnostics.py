"""Collect mistakes, so that one run reports all of them.

A pass reports what it finds and continues. `raise_if_any` is called between passes when the next
one needs a correct result.
"""

from __future__ import annotations

from tidelog.errors import Diagnostic, ProgramError
from tidelog.source import Span


class Diagnostics:
    """The mistakes found so far, in the order in which they are reported."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}

    def error(self, code: str, message: str, span: Span | None, hint: str | None = None) -> None:
        """Report a mistake. The same one at the same place counts once."""
        self._found.setdefault(Diagnostic(code, message, span, hint))

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """Raise ProgramError with everything reported, in order of position."""
        if self._found:
            raise ProgramError(
                sorted(
                    self._found, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0)
                )
            )
