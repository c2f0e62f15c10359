"""`.retain payment(at, "1h")`: which column has the time of a row, and how long rows stay."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.program import Relation, Retain
from tidelog.values.durations import EXAMPLES, duration_of
from tidelog.values.types import NUMBER_MAX, Kind

_TIMES = (Kind.TIMESTAMP, Kind.DATE)
_DAY = dt.timedelta(days=1)


class RetainChecker:
    """Checks `.retain` directives, and collects what they say."""

    def __init__(
        self, relations: dict[str, Relation], derived: Collection[str], facts: Collection[str]
    ) -> None:
        """Note the relations that have rules in the program, and those that have facts."""
        self._relations, self._derived, self._facts = relations, derived, facts
        self.found: dict[str, Retain] = {}

    def check(self, statement: s.RetainStatement, diagnostics: Diagnostics) -> None:
        """Report the mistake of a directive, or add it."""
        name = statement.relation
        relation = self._relations[name.name]
        if name.name in self.found:
            first = self.found[name.name].span
            diagnostics.error(
                "bad-retain", f"`{name.name}` has two `.retain` directives", name.span,
                f"the first one is on line {first.line}" if first is not None else None,
            )  # fmt: skip
            return
        if name.name in self._derived or name.name in self._facts:
            what = "is derived by rules" if name.name in self._derived else "has program facts"
            diagnostics.error(
                "bad-retain", f"`{name.name}` {what}, and no epoch can delete these rows",
                name.span, "`.retain` is for a relation whose rows are all given",
            )  # fmt: skip
            return
        names = [column.name for column in relation.columns]
        if statement.column.name not in names:
            diagnostics.error(
                "bad-retain", f"`{name.name}` has no column `{statement.column.name}`",
                statement.column.span,
                did_you_mean(statement.column.name, names) or f"it is `{relation}`",
            )  # fmt: skip
            return
        column = names.index(statement.column.name)
        bound = self._bound(statement, relation.columns[column].type.kind, diagnostics)
        if bound is not None:
            self.found[name.name] = Retain(name.name, column, bound, statement.span)

    def _bound(
        self, statement: s.RetainStatement, kind: Kind, diagnostics: Diagnostics
    ) -> dt.timedelta | int | None:
        """Return how long rows stay."""
        bound, column = statement.bound, statement.column
        if kind not in (*_TIMES, Kind.NUMBER):
            diagnostics.error(
                "bad-retain", f"`{column.name}` is a {kind.value}, which has no distance",
                column.span, "the column is a timestamp, a date or a number",
            )  # fmt: skip
            return None
        if kind is Kind.NUMBER:
            if not bound.quoted and bound.text.isdecimal() and int(bound.text) <= NUMBER_MAX:
                return int(bound.text)
            diagnostics.error(
                "bad-retain", f"`{column.name}` is a number, so the bound is one, too", bound.span,
                f"write `.retain {statement.relation.name}({column.name}, 100)`",
            )  # fmt: skip
            return None
        duration = duration_of(bound.text) if bound.quoted else None
        if duration is None:
            diagnostics.error(
                "bad-retain", f"`{bound.text}` is not a duration", bound.span,
                f"a number and a unit, in quotes: {EXAMPLES}",
            )  # fmt: skip
        elif kind is Kind.DATE and duration % _DAY:
            diagnostics.error(
                "bad-retain", f"`{column.name}` is a date, so the bound is a number of days",
                bound.span, 'write "30d", for example',
            )  # fmt: skip
        else:
            return duration
        return None
