"""The rules of a program that is checked again after a change: most statements are as they were.

What becomes of a statement depends on the statement, and on what is declared: relations, types,
aggregates and functions. If these are the same as in the last check, so is its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.lang import syntax as s
from tidelog.logic.declare import Declarations
from tidelog.logic.program import Fact, Rule
from tidelog.values.algebra import UserAggregate
from tidelog.values.functions import UserFunction

_TYPES = (s.Subtype, s.AliasOrUnion, s.RecordDeclaration, s.AlgebraicDeclaration, s.PragmaStatement)
Checked = Sequence[Fact | Rule]
"""The facts and rules of a statement."""


class KnownRules:
    """The statements of the program that was checked last, with their facts and rules."""

    def __init__(self) -> None:
        self._context: object = None
        self._before: dict[int, tuple[s.Statement, Checked]] = {}
        self._now: dict[int, tuple[s.Statement, Checked]] = {}

    def begin(
        self,
        module: s.Module,
        declared: Declarations,
        aggregates: Mapping[str, UserAggregate],
        functions: Mapping[str, UserFunction],
    ) -> None:
        """Begin the check of a program; forget what was found among other declarations."""
        types = [statement for statement in module.statements if isinstance(statement, _TYPES)]
        context = (
            declared.relations, declared.hides_names, types, module.unread,
            dict(aggregates), dict(functions),
        )  # fmt: skip
        if self._context != context:
            self._now = {}
        self._before, self._now, self._context = self._now, {}, context

    def of(self, statement: s.Statement, first: int) -> Checked | None:
        """Return the facts and rules of a statement; None if it was not checked before.

        `first` is the number of its first rule.
        """
        held, found = self._before.get(id(statement), (None, ()))
        if held is not statement:
            return None
        numbered: list[Fact | Rule] = []
        for item in found:
            if isinstance(item, Rule):
                numbered.append(item if item.id == first else replace(item, id=first))
                first += 1
            else:
                numbered.append(item)
        self.note(statement, numbered)
        return numbered

    def note(self, statement: s.Statement, found: Checked) -> None:
        """Note the facts and rules of a statement without mistakes."""
        self._now[id(statement)] = (statement, found)
