"""A program with some statements added and others dropped: live rules.

The text of a statement identifies it: not its characters, but what it means to the parser. The
changed program is checked as a whole. Mistakes are reported at their positions in the given texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse
from tidelog.lang.printer import format_rule, format_statement
from tidelog.logic.analyse import analyse
from tidelog.logic.program import Program
from tidelog.logic.registry import functions, registered
from tidelog.source import SourceText, Span

ADDED = "<added rules>"
DROPPED = "<dropped rules>"
_UNKNOWN = "unknown-rule"
_TWICE = "duplicate-rule"


@dataclass(frozen=True)
class RuleChange:
    """Texts of statements: those that a program gets, and those that it loses."""

    added: tuple[SourceText, ...] = ()
    dropped: tuple[SourceText, ...] = ()

    @staticmethod
    def of(added: str = "", dropped: str = "") -> RuleChange:
        """Return the change with these texts."""
        return RuleChange(
            (SourceText(ADDED, added),) if added else (),
            (SourceText(DROPPED, dropped),) if dropped else (),
        )


def changed_program(program: Program, change: RuleChange) -> Program:
    """Return the program after a change; raise ProgramError with every mistake found.

    A statement to drop must be in the program, and a rule to add must not. What is dropped and
    added in one change is in the program afterwards.
    """
    diagnostics = Diagnostics()
    own = _own(program)
    dropped = _statements(change.dropped, diagnostics)
    added = _statements(change.added, diagnostics)
    diagnostics.raise_if_any()
    present = set(own)
    for statement in dropped:
        if statement not in present:
            diagnostics.error(
                _UNKNOWN, f"the program has no such {_noun(statement)}", statement.span,
                _closest(statement, own),
            )  # fmt: skip
    gone = set(dropped)
    kept = [statement for statement in own if statement not in gone]
    known = set(kept)
    for statement in added:
        if isinstance(statement, s.RuleStatement) and statement in known:
            diagnostics.error(
                _TWICE, f"the program has this {_noun(statement)} already", statement.span
            )
        known.add(statement)
    diagnostics.raise_if_any()
    statements = (*kept, *added)
    cut = [statement.span for statement in own if statement in gone]
    text = _text(program.text, cut, [source.text for source in change.added])
    if _statements((SourceText(program.name, text),)) != list(statements):
        # Macros of the old text do not reach the new one, or the other way round.
        text = "".join(f"{format_statement(statement)}\n" for statement in statements)
    module = s.Module(SourceText(program.name, text), statements)
    found = analyse(module, diagnostics, registered(), functions())
    diagnostics.raise_if_any()
    return found


def is_same(one: Program, other: Program) -> bool:
    """Return whether two programs have the same statements, in any order."""
    return one.text == other.text or set(_own(one)) == set(_own(other))


def _own(program: Program) -> list[s.Statement]:
    return _statements((SourceText(program.name, program.text),))


def _statements(
    sources: Iterable[SourceText], diagnostics: Diagnostics | None = None
) -> list[s.Statement]:
    """Return the statements of texts; mistakes are reported, or ignored."""
    found: list[s.Statement] = []
    into = Diagnostics() if diagnostics is None else diagnostics
    for source in sources:
        module = parse(source, into, registered().keys())
        found += module.statements
    return found


def _noun(statement: s.Statement) -> str:
    match statement:
        case s.RuleStatement(body=None):
            return "fact"
        case s.RuleStatement():
            return "rule"
        case s.DirectiveStatement() | s.RetainStatement() | s.PragmaStatement():
            return "directive"
        case _:
            return "declaration"


def _closest(statement: s.Statement, known: Sequence[s.Statement]) -> str | None:
    """Return which rules of the same relation there are, as a hint."""
    if not isinstance(statement, s.RuleStatement):
        return None
    heads = {head.relation for head in statement.heads}
    for other in known:
        if isinstance(other, s.RuleStatement) and heads & {h.relation for h in other.heads}:
            return f"it has `{format_rule(other)}`"
    return None


def _offsets(span: Span) -> tuple[int, int]:
    """Return where a span starts and ends in its text."""
    starts = [0]
    for line in span.source.text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts[span.line - 1] + span.column - 1, starts[span.end_line - 1] + span.end_column - 1


def _text(text: str, gone: Sequence[Span], added: Sequence[str]) -> str:
    """Return a text without some spans, and with more at its end."""
    for start, end in sorted(map(_offsets, gone), reverse=True):
        before, after = text[:start], text[end:]
        line = before.rpartition("\n")[2]
        if not line.strip() and after.split("\n", 1)[0].strip() == "":
            before, after = before.removesuffix(line), after.partition("\n")[2]  # the whole line
        text = before + after
    parts = [text.rstrip("\n"), *(part.strip("\n") for part in added)]
    return "\n".join(part for part in parts if part) + "\n"
