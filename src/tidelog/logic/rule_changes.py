"""A program with some statements added and others dropped: live rules.

The text of a statement identifies it: not its characters, but what it means to the parser. The
changed program is checked as a whole. Mistakes are reported at their positions in the given texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import UsageError
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse
from tidelog.lang.printer import format_rule, format_statement
from tidelog.logic.analyse import analyse
from tidelog.logic.known_rules import KnownRules
from tidelog.logic.parsed_texts import ParsedTexts, Statements
from tidelog.logic.program import Program
from tidelog.logic.registry import functions, registered
from tidelog.source import SourceText, Span

ADDED = "<added rules>"
DROPPED = "<dropped rules>"
_UNKNOWN = "unknown-rule"
_TWICE = "duplicate-rule"
_TEXTS = ParsedTexts()
_KNOWN = KnownRules()


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
        if isinstance(statement, s.RuleStatement | s.SubsumptionStatement) and statement in known:
            diagnostics.error(
                _TWICE, f"the program has this {_noun(statement)} already", statement.span
            )
        known.add(statement)
    diagnostics.raise_if_any()
    statements = (*kept, *added)
    cut = [statement.span for statement in own if statement in gone]
    text = _text(program.text, cut, [source.text for source in change.added])
    source = SourceText(program.name, text)
    if not _TEXTS.follow(SourceText(program.name, program.text), source, statements):
        # Macros of the old text do not reach the new one, or the other way round.
        text = "".join(f"{format_statement(statement)}\n" for statement in statements)
    module = s.Module(SourceText(program.name, text), statements)
    found = analyse(module, diagnostics, registered(), functions(), _KNOWN)
    diagnostics.raise_if_any()
    return found


def is_same(one: Program, other: Program) -> bool:
    """Return whether two programs have the same statements, in any order."""
    return one.text == other.text or set(_own(one)) == set(_own(other))


def _own(program: Program) -> Statements:
    return _TEXTS.statements(SourceText(program.name, program.text))


def _statements(sources: Iterable[SourceText], diagnostics: Diagnostics) -> list[s.Statement]:
    """Return the statements of texts; mistakes are reported."""
    names = registered().keys()
    return [each for source in sources for each in parse(source, diagnostics, names).statements]


def _noun(statement: s.Statement) -> str:
    match statement:
        case s.RuleStatement(body=None):
            return "fact"
        case s.RuleStatement() | s.SubsumptionStatement():
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


def _offsets(text: str, span: Span) -> tuple[int, int]:
    """Return where a span starts and ends in a text; its own source may have other lines before."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts[span.line - 1] + span.column - 1, starts[span.end_line - 1] + span.end_column - 1


def _text(text: str, gone: Sequence[Span], added: Sequence[str]) -> str:
    """Return a text without some spans, and with more at its end."""
    for start, end in sorted((_offsets(text, span) for span in gone), reverse=True):
        before, after = text[:start], text[end:]
        line = before.rpartition("\n")[2]
        if not line.strip() and after.split("\n", 1)[0].strip() == "":
            before, after = before.removesuffix(line), after.partition("\n")[2]  # the whole line
        text = before + after
    parts = [text.rstrip("\n"), *(part.strip("\n") for part in added)]
    return "\n".join(part for part in parts if part) + "\n"


def check_change(old: Program, new: Program, given: Mapping[str, int]) -> None:
    """Raise UsageError if a program cannot become another one; `given` counts the given rows."""
    for name, relation in old.relations.items():
        now = new.relations.get(name)
        if now is None:
            if given[name]:
                raise UsageError(
                    f"`{name}` has {given[name]:,} given rows, so its declaration cannot be dropped"
                    "\n  help: delete them first"
                )
        elif [c.type for c in now.columns] != [c.type for c in relation.columns] or (
            now.functional != relation.functional
        ):
            raise UsageError(
                f"`{name}` is declared as `{relation}`, and cannot become `{now}`"
                "\n  help: declare a relation with another name"
            )
        elif old.retained.get(name) != new.retained.get(name):
            raise UsageError(f"`.retain` of `{name}` cannot change while it has a database")
    for name, fields in old.records.items():
        if new.records.get(name) != fields:
            raise UsageError(f"the record type `{name}` cannot be dropped or get other fields")
