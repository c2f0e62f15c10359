"""Declared types: where the values of a variable come from, and where they go.

Two columns may store the same kind of value and still not mix: a `City` is not a `Town`. The values
of a declared type are its extent (logic/program_types.py). A variable that comes from several
columns has the intersection of their extents. It must not be empty, and must fit the columns of the
head to which the variable goes. In a program with old declarations of types only the first is
checked, as by Soufflé's legacy mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.cells import with_article
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.scopes import Scope
from tidelog.source import Span
from tidelog.values.types import Field, Kind


@dataclass
class _Uses:
    """Where a variable gets its values from, and where they go: for the declared types."""

    sources: list[tuple[frozenset[str], str, Span]] = field(default_factory=list)
    sinks: list[tuple[frozenset[str], str, Span]] = field(default_factory=list)


class DeclaredUses:
    """Collects the uses of a clause's variables, then checks them."""

    def __init__(self, types: ProgramTypes, diagnostics: Diagnostics) -> None:
        self._types = types
        self._diagnostics = diagnostics
        self._uses: dict[tuple[int, str], _Uses] = {}

    def note(
        self, term: s.Term, column: Field, scope: Scope, *, is_sink: bool, is_source: bool
    ) -> None:
        """Note that `term` is used as `column`; for a record, the same for its fields."""
        match term:
            case s.Variable(name):
                uses = self._uses.setdefault((id(scope.owner(name)), name), _Uses())
                use = (self._types.extent_of_declared(column.declared), column.declared, term.span)
                if is_sink:
                    uses.sinks.append(use)
                if is_source:
                    uses.sources.append(use)
            case s.RecordTerm(args) if column.type.kind is Kind.RECORD:
                fields = self._types.records[column.type.record]
                if len(fields) == len(args):
                    for arg, part in zip(args, fields, strict=True):
                        self.note(arg, part, scope, is_sink=is_sink, is_source=is_source)

    def check(self) -> None:
        """Report variables without possible values, or with values that do not fit their use."""
        for (_, name), uses in self._uses.items():
            if not uses.sources:
                continue
            extent, first, _ = uses.sources[0]
            for other, declared, span in uses.sources[1:]:
                if not extent & other:
                    self._diagnostics.error(
                        "type-mismatch",
                        f"`{name}` is {with_article(f'`{first}`')} and"
                        f" {with_article(f'`{declared}`')}: no value is both",
                        span,
                        f"if the values are comparable, say so: `as({name}, {declared})`",
                    )
                    return
                extent, first = extent & other, first if extent <= other else declared
            for sink, declared, span in () if self._types.legacy else uses.sinks:
                if not extent <= sink:
                    never = "not always" if extent & sink else "not"
                    self._diagnostics.error(
                        "type-mismatch",
                        f"`{name}` is {with_article(f'`{first}`')}, which is {never}"
                        f" {with_article(f'`{declared}`')}",
                        span,
                        f"say that it is one: `as({name}, {declared})`",
                    )
