"""Collects mistakes, so that one run reports them all.

A pass reports what it finds and carries on; the pipeline asks `raise_if_any` between passes whose
results the next one cannot do without.
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
