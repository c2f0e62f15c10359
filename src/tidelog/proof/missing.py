"""Finding what is missing for a row: the match of each rule that comes furthest.

The head binds its variables to the values of the row. Then the goals of the body are tried one
after the other: conditions as soon as they can be computed, atoms by what is bound. The match that
satisfies the most goals is the one to show, with the first goal that it does not satisfy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from tidelog.logic import program as p
from tidelog.proof.gaps import (
    BlockingRow,
    FailedComputation,
    FailedCondition,
    Gap,
    HeldStep,
    MissingRow,
    NotKept,
    OtherAggregate,
    OtherHead,
    RowHeld,
    RuleGap,
    WhyNot,
)
from tidelog.proof.rules import ProofRule, named_columns
from tidelog.proof.search import ProofSearch
from tidelog.proof.steps import StepMaker
from tidelog.proof.words import ANY, has_any
from tidelog.reference.functors import FunctorFailure
from tidelog.reference.solve import Assignment, ordered
from tidelog.values.types import Row

MOST_MATCHES = 10_000  # partial matches of a rule that are tried


@dataclass
class _Furthest:
    """The match of a rule that satisfies the most goals."""

    satisfied: int = -1
    known: Assignment | None = None
    failure: FunctorFailure | None = None
    tried: int = 0


class GapSearch:
    """Finds what is missing for rows of one program in one state."""

    def __init__(self, search: ProofSearch) -> None:
        self._search = search
        self._state = search.state
        self._steps = StepMaker(search.state)
        self._words = self._steps.words

    def explain(self, relation: str, pattern: Row, depth: int) -> WhyNot:
        """Return why a row is missing, and down to a depth why the rows are that it lacks.

        Columns of the row may be ANY.
        """
        return self._explained(relation, pattern, depth, frozenset())

    def _explained(
        self, relation: str, pattern: Row, depth: int, above: frozenset[tuple[str, str]]
    ) -> WhyNot:
        text = self._words.row(relation, pattern)
        if not has_any(pattern) and self._state.has(relation, pattern):
            return WhyNot(relation, pattern, text, proof=self._search.prove(relation, pattern))
        above |= {(relation, text)}
        gaps = [
            self._rule_gap(rule, pattern, depth, above)
            for rule in self._search.rules.get(relation, ())
        ]
        return WhyNot(
            relation, pattern, text, tuple(gaps), not_kept=self._not_kept(relation, pattern)
        )

    def _not_kept(self, relation: str, pattern: Row) -> str:
        """Return why a given row or a fact is not in its relation; nothing for other rows."""
        if has_any(pattern) or relation not in self._state.program.pruned:
            return ""
        if self._state.is_given(relation, pattern):
            return f"it is given, but {self._why_pruned(relation)}"
        if self._state.fact_span(relation, pattern) is not None:
            return f"it is a fact of the program, but {self._why_pruned(relation)}"
        return ""

    def _why_pruned(self, relation: str) -> str:
        found = self._state.program.pruned[relation]
        if isinstance(found, p.ChoiceDomain):
            return "not chosen: another row has the same key"
        texts = " or ".join(dict.fromkeys(rule.text for rule in found.rules))
        return f"there is a better row, by {texts}"

    def _rule_gap(
        self, rule: ProofRule, pattern: Row, depth: int, above: frozenset[tuple[str, str]]
    ) -> RuleGap:
        start = self._start(rule, pattern)
        if start is None:
            head = self._words.literal(rule.rule.head, {})
            untried = tuple(self._words.literal(lit, {}) for lit in rule.rule.body)
            return RuleGap(rule.rule, rule.rule.span, {}, {}, (), OtherHead(head), untried, True)
        order = _order(rule, start)
        furthest = _Furthest()
        self._try(order, start, furthest)
        known = furthest.known
        assert known is not None, "the row can be derived"
        held = order[: furthest.satisfied]
        if furthest.satisfied == len(order):
            gap: Gap = NotKept(f"it is derived, but {self._why_pruned(rule.relation)}")
        else:
            gap = self._gap(order[furthest.satisfied], known, furthest.failure)
        if (
            isinstance(gap, MissingRow)
            and depth > 1
            and (gap.relation, gap.text) not in above
            and gap.relation in self._search.rules
            and not any(value != ANY and has_any(value) for value in gap.pattern)
        ):
            deeper = self._explained(gap.relation, gap.pattern, depth - 1, above)
            gap = replace(gap, deeper=deeper)
        values = self._steps.values(rule, known)
        return RuleGap(
            rule.rule,
            rule.rule.span,
            values,
            self._words.values(rule.rule, values),
            tuple(self._held(goal, known) for goal in held),
            gap,
            tuple(self._words.literal(goal, known) for goal in order[furthest.satisfied + 1 :]),
            furthest.tried < MOST_MATCHES,
        )

    def _start(self, rule: ProofRule, pattern: Row) -> Assignment | None:
        """Return the variables that the row binds; None if the head cannot match it."""
        bound = [pair for pair in zip(rule.pattern, pattern, strict=True) if pair[1] != ANY]
        args, values = tuple(arg for arg, _ in bound), tuple(value for _, value in bound)
        return next(self._state.solver.matched(args, values, {}), None)

    def _try(self, order: list[p.Literal], start: Assignment, furthest: _Furthest) -> None:
        """Go through the matches, depth first, and keep the first of those that come furthest."""
        open_matches: list[Iterator[Assignment]] = [iter((start,))]
        while open_matches:
            known = next(open_matches[-1], None)
            if known is None or furthest.tried >= MOST_MATCHES:
                open_matches.pop()
                continue
            furthest.tried += 1
            satisfied = len(open_matches) - 1
            failure = None
            if satisfied == len(order):
                furthest.satisfied, furthest.known, furthest.failure = satisfied, known, None
                return
            try:
                matches = list(self._state.solver.matches(order[satisfied], known))
            except FunctorFailure as error:
                matches, failure = [], error
            if matches:
                open_matches.append(iter(matches))
            elif satisfied > furthest.satisfied:
                furthest.satisfied, furthest.known = satisfied, known
                furthest.failure = failure

    # --- goals ---

    def _held(self, goal: p.Literal, known: Assignment) -> HeldStep:
        if isinstance(goal, p.Atom) and not goal.negated:
            row = self._steps.row(goal, known)
            return RowHeld(goal.relation, row, self._words.row(goal.relation, row))
        return self._steps.other(goal, known)

    def _gap(self, goal: p.Literal, known: Assignment, failure: FunctorFailure | None) -> Gap:
        text = self._words.literal(goal, known)
        if failure is not None:
            return FailedComputation(text, str(failure))
        match goal:
            case p.Atom(relation, negated=False):
                pattern = self._steps.pattern(goal, known)
                return MissingRow(relation, pattern, self._words.row(relation, pattern))
            case p.Atom(relation):
                names = (f"$met{number}" for number in count())
                met = named_columns(replace(goal, negated=False), names)
                found = next(self._state.solver.matches(met, known))
                row = self._steps.row(met, found)
                return BlockingRow(relation, row, text, self._words.row(relation, row))
            case p.Reduce(result):
                value = p.Var("$value", result.type)
                taken = next(self._state.solver.matches(replace(goal, result=value), known), None)
                shown = None
                if taken is not None:
                    shown = self._words.value(taken["$value"], result.type)
                return OtherAggregate(
                    self._words.literal(goal, {}), self._words.term(result, known), shown
                )
            case _:
                return FailedCondition(self._words.literal(goal, {}), text)


def _order(rule: ProofRule, start: Assignment) -> list[p.Literal]:
    """Return the goals in the order in which they are tried: negations after what is there."""
    negated = [goal for goal in rule.goals if isinstance(goal, p.Atom) and goal.negated]
    others = [goal for goal in rule.goals if not any(goal is other for other in negated)]
    return [*ordered([], others, set(start)), *negated]
