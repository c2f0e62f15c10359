"""The conditions of a rule with aggregates, as they are taken where something has failed.

An aggregate is a condition too: the relations that replace it say where it has a value, and where
it has none (`Placed`). Conditions that always have values are taken together. The others are taken
one after the other, because each may have to be left out (`ConditionStep`). plan/failure_rules.py
shows this by an example, and makes the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelog.logic import program as p
from tidelog.logic.variables import literal_variables, terms_of, typed_variables
from tidelog.plan.aggregates import NEUTRAL, can_fail, may_fail
from tidelog.plan.excuses import Family, binding_order, independent_literals, is_used
from tidelog.values.types import NUMBER, Type

Conjunction: TypeAlias = tuple[p.Literal, ...]


@dataclass(frozen=True)
class Placed:
    """A family, and the relations that replace it."""

    family: Family
    atom: p.Atom
    """`result(group.., results..)`: it has a row where all results have values."""
    failed: str | None
    """The relation of the groups in which results have no value, if there is one.

    With one member its columns are the group; with several `(group.., results.., flags..)`.
    """
    spoilt: str | None
    """The relation of the groups in which the braces fail, if there is one.

    Then the results are computed from too few rows.
    """

    @property
    def group(self) -> tuple[p.Term, ...]:
        """The variables of the group."""
        return self.atom.args[: len(self.family[0].group)]

    @property
    def literals(self) -> Conjunction:
        """The literals that replace the family in its rule."""
        return (self.atom, *self._unspoilt())

    def _unspoilt(self) -> Conjunction:
        if self.spoilt is None:
            return ()
        return (p.Atom(self.spoilt, self.group, self.atom.span, negated=True),)

    def valued(self, number: int, result: p.Term) -> Iterator[Conjunction]:
        """Yield the ways in which a member has a value."""
        results = self._only(number, result)
        yield (replace(self.atom, args=(*self.group, *results)), *self._unspoilt())
        if self.failed is not None and len(self.family) > 1:
            args = (*self.group, *results, *self._flags(number, 0))
            yield (p.Atom(self.failed, args, self.atom.span), *self._unspoilt())

    def unvalued(self, number: int) -> Iterator[Conjunction]:
        """Yield the ways in which a member has no value."""
        if self.failed is not None and may_fail(self.family[number]):
            args = self.group
            if len(self.family) > 1:
                args = (*args, *self._only(None, None), *self._flags(number, 1))
            yield (p.Atom(self.failed, args, self.atom.span),)
        if self.spoilt is not None:
            yield (p.Atom(self.spoilt, self.group, self.atom.span),)

    def _only(self, number: int | None, result: p.Term | None) -> list[p.Term]:
        """Return the columns of the results, with the result of one member."""
        types = [part.result.type for part in self.family]
        return [
            result if result is not None and i == number else p.Wildcard(type_)
            for i, type_ in enumerate(types)
        ]

    def _flags(self, number: int, value: int) -> list[p.Term]:
        """Return the columns of the flags, with a value for one member if it has a flag."""
        return [
            p.Const(value, NUMBER) if i == number else p.Wildcard(NUMBER)
            for i, part in enumerate(self.family)
            if may_fail(part)
        ]

    def failures(self, types: dict[str, tuple[Type, ...]]) -> Iterator[p.Atom]:
        """Yield the atoms of all failures; every column that is not of the group has a variable."""
        for name in (self.failed, self.spoilt):
            if name is not None:
                more = types[name][len(self.group) :]
                others = [p.Var(f"%any{i}", type_) for i, type_ in enumerate(more)]
                yield p.Atom(name, (*self.group, *others), self.atom.span)


@dataclass(frozen=True)
class ConditionStep:
    """A condition that is taken where something has failed."""

    uses: frozenset[str]
    """The variables that must have values."""
    new: tuple[p.Var, ...]
    """The variables that it binds."""
    ways: tuple[Conjunction, ...]
    """The ways in which it holds."""
    failures: tuple[Conjunction, ...] = ()
    """The ways in which it fails, as relations of failures."""
    fails: bool = False
    """Whether the first of the ways can fail when it is joined."""


class FailureConditions:
    """Sorts the conditions of a rule into those that always have values, and steps."""

    def __init__(self, body: Sequence[p.Literal], placed: Sequence[Placed]) -> None:
        self._body, self._placed = body, placed
        self._places = {
            id(part): (place, i) for place in placed for i, part in enumerate(place.family)
        }
        self._types = dict(typed_variables(term for literal in body for term in terms_of(literal)))
        self.atoms: list[p.Atom] = []
        """The positive atoms."""
        self.certain: list[p.Literal] = []
        """The other conditions that always have values."""
        self.steps: list[ConditionStep] = []
        """The rest, in the order in which they are taken."""
        sole = self._only_failure()
        if sole is None:
            self._sort()
        else:
            self._sort_without(sole)
        self._binder = {v.name: step for step in self.steps for v in step.new}
        self.flags = {
            name: p.Var(f"%lacks_{name}", NUMBER)
            for name, step in self._binder.items()
            if self._is_doubtful(step)
        }
        """For each variable that may have no value the flag that says so."""
        self.leading = [
            step for step in self.steps if step.fails and self._leads_to_an_aggregate(step)
        ]
        """The steps whose failures the rule does not see: a group depends on them."""

    def _only_failure(self) -> p.Reduce | None:
        """Return the aggregate that has failed if anything has; None if there are several.

        Failures that are seen when the rule is joined do not count.
        """
        failing = [
            part
            for place in self._placed
            for i, part in enumerate(place.family)
            if any(place.unvalued(i))
        ]
        doubtful: set[str] = set()
        for literal, new in binding_order(self._body):
            if isinstance(literal, p.Reduce):
                if not doubtful.isdisjoint(literal.group):
                    return None
            elif can_fail(literal) or not doubtful.isdisjoint(literal_variables(literal)):
                doubtful |= new
        return failing[0] if len(failing) == 1 else None

    def _sort(self) -> None:
        """Take all conditions: any combination of aggregates may have failed."""
        stepwise: set[str] = set()
        for literal, new in binding_order(self._body):
            if isinstance(literal, p.Atom) and not literal.negated:
                self.atoms.append(literal)
                continue
            uses = set(literal_variables(literal)) - new
            if isinstance(literal, p.Reduce):
                if self._never_matters(literal, new):
                    continue
                place, number = self._places[id(literal)]
                ways = tuple(place.valued(number, literal.result))
                failures = tuple(place.unvalued(number))
                if uses.isdisjoint(stepwise) and len(ways) == 1 and not failures:
                    self.certain += ways[0]
                    continue
                self.steps += self._aggregate_steps(literal, place, number, new)
            elif uses.isdisjoint(stepwise) and not can_fail(literal):
                self.certain.append(literal)
                continue
            else:
                self.steps.append(self._step_of(literal, uses, new))
            stepwise |= new

    def _sort_without(self, sole: p.Reduce) -> None:
        """Take the conditions that do not depend on the only aggregate that can fail."""
        for literal, new in independent_literals(self._body, {id(sole)}):
            if isinstance(literal, p.Atom) and not literal.negated:
                self.atoms.append(literal)
            elif not isinstance(literal, p.Reduce):
                self.certain.append(literal)
            elif literal is not sole and not self._never_matters(literal, new):
                place, number = self._places[id(literal)]
                *_, way = place.valued(number, literal.result)  # its siblings are where it fails
                self.certain += way

    def _never_matters(self, reduce: p.Reduce, new: set[str]) -> bool:
        """Return whether an aggregate always holds if it does not fail, and nothing uses it."""
        is_new = isinstance(reduce.result, p.Var) and reduce.result.name in new
        return is_new and reduce.op in NEUTRAL and not is_used(reduce, self._body)

    def _aggregate_steps(
        self, reduce: p.Reduce, place: Placed, number: int, new: set[str]
    ) -> Iterator[ConditionStep]:
        """Yield the step of an aggregate, and one more if its result is not a new variable."""
        uses = frozenset(literal_variables(reduce)) - new
        result = reduce.result
        failures = tuple(place.unvalued(number))
        if isinstance(result, p.Var) and result.name in new:
            ways = tuple(place.valued(number, result))
            yield ConditionStep(uses, (result,), ways, failures)
            return
        made = p.Var(f"%result{len(self._types)}", result.type)
        self._types[made.name] = made.type
        ways = tuple(place.valued(number, made))
        yield ConditionStep(uses, (made,), ways, failures)
        same = p.Compare(p.Comparison.EQ, result, made, reduce.span)
        yield self._step_of(same, set(literal_variables(same)) - new, new)

    def _step_of(self, literal: p.Literal, uses: Iterable[str], new: set[str]) -> ConditionStep:
        """Return the step of a condition that is not an aggregate."""
        ways = ((literal,),)
        return ConditionStep(frozenset(uses), self.variables(new), ways, (), can_fail(literal))

    def variables(self, names: Iterable[str]) -> tuple[p.Var, ...]:
        """Return variables with their types, in the order of their names."""
        return tuple(p.Var(name, self._types[name]) for name in sorted(names))

    def _is_doubtful(self, step: ConditionStep) -> bool:
        """Return whether what a step binds may have no value."""
        return bool(step.failures) or step.fails or any(map(self._is_doubtful, self._before(step)))

    def _before(self, step: ConditionStep) -> list[ConditionStep]:
        """Return the steps that bind what a step uses."""
        found = {id(self._binder[n]): self._binder[n] for n in step.uses if n in self._binder}
        return list(found.values())

    def _leads_to_an_aggregate(self, step: ConditionStep) -> bool:
        return any(
            any(step is part for part in self.cone(literal.group))
            for literal in self._body
            if isinstance(literal, p.Reduce)
        )

    def cone(self, names: Iterable[str]) -> list[ConditionStep]:
        """Return the steps that variables depend on, in order."""
        wanted = set(names)
        found = []
        for step in reversed(self.steps):
            if any(v.name in wanted for v in step.new):
                wanted |= step.uses
                found.append(step)
        return found[::-1]
