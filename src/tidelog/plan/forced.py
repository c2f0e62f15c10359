"""The strategies that are forced, by `.view` directives and by the caller.

What cannot be done as asked is an error that says why: at the `.view` directive, or about the
argument `strategy`. `ForcedStrategies.error` makes it, also for passes that find the reason later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tidelog.errors import Diagnostic, ProgramError, TidelogError, UsageError
from tidelog.logic.program import Program
from tidelog.logic.strategies import Refusal, refusal, unknown

NOTHING_FORCED: Mapping[str, str] = MappingProxyType({})


class ForcedStrategies:
    """The forced strategies of one program, by relation. An argument goes before a directive."""

    def __init__(self, program: Program, argument: Mapping[str, str] = NOTHING_FORCED) -> None:
        """Check the strategies; `argument` has those that the caller asks for."""
        self._program, self._argument = program, argument
        directives = {v.relation: v.strategy for v in program.views.values()}
        asked = {name: strategy for name, strategy in directives.items() if strategy is not None}
        self._strategies = {**asked, **argument}
        for name, strategy in argument.items():
            program.relation(name)
            found = unknown(strategy)
            found = found or refusal(program.strata, self._strategies, name, strategy)
            if found is not None:
                raise self.error(name, found)

    def of(self, relations: Iterable[str]) -> str | None:
        """Return the strategy that relations which depend on each other must have, if any."""
        names = set(relations)
        strata = (s.relations for s in self._program.strata if not names.isdisjoint(s.relations))
        asked = (name for relations in strata for name in relations)
        return next((self._strategies[name] for name in asked if name in self._strategies), None)

    def refuse_others(self, relations: Iterable[str], strategy: str, why: str) -> None:
        """Raise an error if relations must have another strategy than the only possible one."""
        for name in relations:
            forced = self._strategies.get(name, strategy)
            if forced != strategy:
                hint = f"only `{strategy}` maintains it"
                raise self.error(name, Refusal(f"`{forced}` cannot maintain `{name}`: {why}", hint))

    def error(self, relation: str, refused: Refusal) -> TidelogError:
        """Return the error for a relation that cannot be maintained as asked."""
        if relation in self._argument:
            hint = f"\n  help: {refused.hint}" if refused.hint else ""
            return UsageError(f"{refused.why}{hint}")
        span = self._program.views[relation].span
        return ProgramError([Diagnostic("bad-view", refused.why, span, refused.hint)])
