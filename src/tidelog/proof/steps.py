"""What the body of a rule says, with the values of a match: the steps of a proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from tidelog.logic import program as p
from tidelog.logic.variables import term_variables
from tidelog.proof.facts import StateRows
from tidelog.proof.rules import ProofRule
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld
from tidelog.proof.words import ANY, AnyValue, Words
from tidelog.reference.solve import Assignment
from tidelog.values.types import Row

SHOWN_OF_GROUP = 5  # rows of an aggregate's group that a proof shows


class StepMaker:
    """Turns literals into steps, in one state."""

    def __init__(self, state: StateRows) -> None:
        self._state = state
        self.words = Words(state.program)

    def values(self, rule: ProofRule, known: Assignment) -> Mapping[str, Any]:
        """Return the values of a rule's own variables, as far as they are known."""
        return {name: known[name] for name in rule.names if name in known}

    def row(self, atom: p.Atom, known: Assignment) -> Row:
        """Return the row of an atom whose variables are all known."""
        return tuple(self._state.solver.value(arg, known) for arg in atom.args)

    def pattern(self, atom: p.Atom, known: Assignment) -> tuple[Any, ...]:
        """Return the values of an atom as far as they are known.

        The rest is ANY, and an unknown variable that occurs twice an `AnyValue` with its name.
        """
        uses = Counter(term_variables(atom.args))
        return tuple(self._pattern(arg, known, uses) for arg in atom.args)

    def _pattern(self, term: p.Term, known: Assignment, uses: Counter[str]) -> Any:
        match term:
            case p.Wildcard():
                return ANY
            case p.Var(name) if name not in known:
                return AnyValue(name) if uses[name] > 1 else ANY
            case p.MakeRecord(args):
                return tuple(self._pattern(arg, known, uses) for arg in args)
            case _:
                return self._state.solver.value(term, known)

    def other(
        self, literal: p.Literal, known: Assignment
    ) -> Absence | ConditionHeld | AggregateTaken:
        """Return the step of a literal that is not a positive atom, and holds."""
        match literal:
            case p.Atom(relation):
                return Absence(relation, self.pattern(literal, known), self.words)
            case p.Reduce():
                return self._aggregate(literal, known)
            case _:
                return ConditionHeld(literal, known, self.words)

    def _aggregate(self, literal: p.Reduce, known: Assignment) -> AggregateTaken:
        group = {name: known[name] for name in literal.group}
        members: dict[Row, Assignment] = {}
        for found, _ in self._state.solver.solutions(literal.body, group):
            members.setdefault(tuple(found[name] for name in literal.local), found)
        first = tuple(
            tuple(self.words.literal(part, found) for part in literal.body)
            for found in islice(members.values(), SHOWN_OF_GROUP)
        )
        value = self._state.solver.value(literal.result, known)
        text = self.words.literal(literal, {})
        value_text = self.words.value(value, literal.result.type)
        return AggregateTaken(text, value, value_text, len(members), first)
