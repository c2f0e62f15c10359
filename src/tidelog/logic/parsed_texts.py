"""The statements of program texts, parsed once.

A changed program has the text of the old one with some statements cut out, and others at its end.
All lines before the first difference have the same statements as before, at the same places. So
only the lines behind are parsed.
"""

from __future__ import annotations

from collections import OrderedDict

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse
from tidelog.logic.registry import registered
from tidelog.source import SourceText

_MOST = 16
_MACRO = "#"
"""A text with this may have macros, which change the meaning of what is behind them."""

Statements = tuple[s.Statement, ...]
_Key = tuple[str, str, frozenset[str]]


class ParsedTexts:
    """The statements of the texts that were used last."""

    def __init__(self) -> None:
        self._texts: OrderedDict[_Key, Statements] = OrderedDict()

    def statements(self, source: SourceText) -> Statements:
        """Return the statements of a text; mistakes are ignored."""
        found = self._texts.get(_key(source))
        if found is None:
            found = _parsed(source)
        self._keep(source, found)
        return found

    def follow(self, old: SourceText, new: SourceText, expected: Statements) -> bool:
        """Return whether a text that has become another one has the statements that it should."""
        parsed = _parsed_from(self.statements(old), old, new)
        if parsed != expected:
            parsed = _parsed(new)
        self._keep(new, parsed)
        return parsed == expected

    def _keep(self, source: SourceText, statements: Statements) -> None:
        key = _key(source)
        self._texts[key] = statements
        self._texts.move_to_end(key)
        while len(self._texts) > _MOST:
            self._texts.popitem(last=False)


def _key(source: SourceText) -> _Key:
    return source.name, source.text, frozenset(registered())


def _parsed(source: SourceText) -> Statements:
    return tuple(parse(source, Diagnostics(), registered().keys()).statements)


def _parsed_from(statements: Statements, old: SourceText, new: SourceText) -> Statements:
    """Return the statements of the new text, with those of the old one in all lines they share."""
    if _MACRO in old.text or _MACRO in new.text:
        return _parsed(new)
    before, after = old.text.split("\n"), new.text.split("\n")
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    kept = [statement for statement in statements if statement.span.line <= shared]
    while kept and kept[-1].span.end_line > shared:
        shared = min(shared, kept.pop().span.line - 1)
    rest = "\n" * shared + "\n".join(after[shared:])
    return (*kept, *_parsed(SourceText(new.name, rest)))
