"""Rules that say which failures in a rule with aggregates are errors.

A sum can exceed its type, a function from Python can raise, and what is in the braces can fail.
Such a failure is an error exactly when all other conditions of the rule hold, leaving out those
that depend on a missing value (docs/decisions/0001). A rule without aggregates sees its failures
when it is joined (join/failures.py). With aggregates it would not: where one has no value, the
relation of its results has no row to join. So these failures are rows of relations too, and rules
say which of them are errors:

    p(g, n, s) :- q(g), n = count : { r(g, _) }, s = sum x : { t(g, x) }, n < 2, s > n.

    failed(g) :  the groups of t whose sum has no value
    error(g)  :- failed(g), q(g), count(g, n), n < 2.

If several aggregates can fail, they do so in any combination. The conditions that may depend on
such a value are then taken one after the other, each in a relation of its own, and flags say what
is missing:

    p(g, s, u) :- q(g), s = sum x : { t(g, x) }, u = sum x : { v(g, x) }, s < 5, u < 5.

    doubt0(g)           :- failed_s(g), q(g).              where something has failed
    doubt0(g)           :- failed_u(g), q(g).
    doubt1(g, s, 0)     :- doubt0(g), sum_s(g, s).         the flag is 1 if there is no value
    doubt1(g, 0, 1)     :- doubt0(g), failed_s(g).
    doubt2(g)           :- doubt1(g, s, 0), s < 5.         the condition holds
    doubt2(g)           :- doubt1(g, _, 1).                the condition is left out
    ...                                                    the same for u
    error_s(g)          :- failed_s(g), doubt4(g).
    error_u(g)          :- failed_u(g), doubt4(g).

So there are as many relations as there are such conditions. They have rows only where something has
failed, which is almost nowhere (maintain/judging.py). If no condition can excuse a failure, there
is neither rule nor relation: the failure is an error at once (plan/excuses.py).
plan/failure_conditions.py decides which conditions are taken, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

from tidelog.logic import program as p
from tidelog.logic.variables import literal_variables, pattern_variables, term_variables
from tidelog.plan.aggregates import Fate, Lowering, Noted, can_fail
from tidelog.plan.body import OnFailure
from tidelog.plan.excuses import Family, is_implied
from tidelog.plan.failure_conditions import (
    ConditionStep,
    Conjunction,
    FailureConditions,
    Placed,
)
from tidelog.source import Span
from tidelog.values.types import NUMBER, Kind, Type


class Judgement:
    """Makes the rules that say what becomes of failures in the body of one rule."""

    def __init__(
        self,
        whole: Lowering,
        body: Sequence[p.Literal],
        placed: Sequence[Placed],
        head: str,
        text: str,
        span: Span | None,
        fate: Fate,
    ) -> None:
        self._whole, self._body, self._placed = whole, body, placed
        self._head, self._text, self._span, self._fate = head, text, span, fate
        self._conditions = FailureConditions(body, placed)
        self._leading = self._conditions.leading
        self._flag = self._conditions.flags

    def add(self) -> None:
        """Add the rules."""
        if self._fate is OnFailure.SKIP:
            return
        failures = [a for place in self._placed for a in place.failures(self._whole.relations)]
        if not failures and not self._leading:
            return
        steps = self._conditions.steps
        if not steps:
            for atom in failures:
                self._conclude((atom, *self._base(atom)), atom)
            return
        last = self._needed_at_the_end(failures)
        held = self._columns(0, last)
        doubt = self._doubt(held)
        for atom in failures:
            for way in self._ways(self._conditions.cone(term_variables(atom.args))):
                self._rule(doubt, held, (atom, *self._base(atom), *way))
        for step in self._leading:
            for way in self._ways(self._conditions.cone(step.uses)):
                body = (*self._base(None), *way, *step.ways[0])
                self._rule(doubt, held, body, OnFailure.DERIVE)
        for number, step in enumerate(steps):
            following = self._columns(number + 1, last)
            after = self._doubt(following)
            self._take(step, (doubt, held), (after, following))
            doubt, held = after, following
        for atom in failures:
            lacks = self._flags_of(term_variables(atom.args))
            self._conclude((atom, self._held_atom(doubt, held, dict.fromkeys(lacks, 0))), atom)
        for step in self._leading:
            lacks = self._flags_of(step.uses)
            body = (self._held_atom(doubt, held, dict.fromkeys(lacks, 0)), *step.ways[0])
            self._conclude(body, None, self._conditions.variables(step.uses))

    def _base(self, failure: p.Atom | None) -> Conjunction:
        """Return the atoms and the conditions that always have values, where something fails."""
        family: Family = ()
        if failure is not None:
            names = [(place.family, (place.failed, place.spoilt)) for place in self._placed]
            family = next(found for found, made in names if failure.relation in made)
        atoms = [
            atom for atom in self._conditions.atoms if not is_implied(atom, family, self._body)
        ]
        return (*atoms, *self._conditions.certain)

    def _ways(self, steps: Sequence[ConditionStep]) -> Iterator[Conjunction]:
        """Yield the ways in which all these steps hold."""
        for choice in product(*(step.ways for step in steps)):
            yield tuple(literal for way in choice for literal in way)

    def _take(
        self,
        step: ConditionStep,
        before: tuple[str, Sequence[p.Var]],
        after: tuple[str, Sequence[p.Var]],
    ) -> None:
        """Add the rules of a step: it holds, it fails, or it is left out."""
        (doubt, held), (name, columns) = before, after
        lacks = self._flags_of(step.uses)
        known = self._held_atom(doubt, held, dict.fromkeys(lacks, 0))
        own = {self._flag[v.name].name for v in step.new if v.name in self._flag}
        missing = {v.name: _anything(v.type) for v in step.new}
        there = dict.fromkeys((*lacks, *own), p.Const(0, NUMBER))
        failed = {**there, **missing, **dict.fromkeys(own, p.Const(1, NUMBER))}
        for way in step.ways:
            self._rule(name, _filled(columns, there), (known, *way))
        for way in step.failures:
            self._rule(name, _filled(columns, failed), (known, *way))
        if step.fails:
            body = (known, *step.ways[0])
            self._rule(name, _filled(columns, failed), body, OnFailure.DERIVE)
        for flag in lacks:
            left_out = {**missing, **dict.fromkeys((*own, flag), p.Const(1, NUMBER))}
            lacking = self._held_atom(doubt, held, {flag: 1})
            self._rule(name, _filled(columns, left_out), (lacking,))

    def _conclude(
        self, body: Conjunction, failure: p.Atom | None, args: tuple[p.Term, ...] = ()
    ) -> None:
        """Add the rule that says what becomes of a failure, which comes first in the body.

        Without an atom for it, a condition of the body is what fails.
        """
        fails = any(map(can_fail, body))
        if isinstance(self._fate, Noted):
            if failure is not None:
                self._rule(self._fate.relation, self._fate.args, body)
            if fails:
                self._rule(self._fate.relation, self._fate.args, body, OnFailure.DERIVE)
            return
        args = args if failure is None else failure.args
        name = self._whole.fresh_relation(f"{self._head}@error", [arg.type for arg in args])
        self._whole.judging.add(name)
        self._whole.errors[name] = name if failure is None else failure.relation
        # Where something else fails as well, that is an error too.
        self._rule(name, args, body, OnFailure.DERIVE if failure is None else OnFailure.RAISE)

    def _rule(
        self,
        name: str,
        args: Sequence[p.Term],
        body: Conjunction,
        on_failure: OnFailure = OnFailure.SKIP,
    ) -> None:
        self._whole.add_rule(name, tuple(args), body, self._text, self._span, on_failure)

    # --- relations of doubt ---

    def _doubt(self, columns: Sequence[p.Var]) -> str:
        name = self._whole.fresh_relation(f"{self._head}@doubt", [v.type for v in columns])
        self._whole.judging.add(name)
        return name

    def _held_atom(self, name: str, columns: Sequence[p.Var], flags: dict[str, int]) -> p.Atom:
        """Return the atom of a relation of doubt, with values for some flags."""
        values = {flag: p.Const(value, NUMBER) for flag, value in flags.items()}
        return p.Atom(name, _filled(columns, values), self._body[0].span)

    def _flags_of(self, names: Iterable[str]) -> list[str]:
        """Return the flags of variables that may have no value."""
        return sorted({self._flag[name].name for name in names if name in self._flag})

    def _needed_at_the_end(self, failures: Iterable[p.Atom]) -> set[str]:
        needed = {name for atom in failures for name in term_variables(atom.args)}
        needed.update(name for step in self._leading for name in step.uses)
        if isinstance(self._fate, Noted):
            needed.update(v.name for v in self._fate.args)
        return needed

    def _columns(self, number: int, last: set[str]) -> list[p.Var]:
        """Return what the relation before a step has: what is bound there, and needed later."""
        steps = self._conditions.steps
        bound = set(pattern_variables(arg for atom in self._conditions.atoms for arg in atom.args))
        bound |= {n for literal in self._conditions.certain for n in _bound_by(literal)}
        bound |= {v.name for step in steps[:number] for v in step.new}
        needed = last.union(*(step.uses for step in steps[number:]))
        kept = self._conditions.variables(needed & bound)
        return [*kept, *(self._flag[v.name] for v in kept if v.name in self._flag)]


def _filled(columns: Sequence[p.Var], values: dict[str, p.Const]) -> tuple[p.Term, ...]:
    """Return columns, some of which have values."""
    return tuple(values.get(v.name, v) for v in columns)


def _bound_by(literal: p.Literal) -> Iterator[str]:
    """Yield the variables of a literal that has found its values."""
    if not (isinstance(literal, p.Atom) and literal.negated):
        yield from literal_variables(literal)


_ANYTHING: dict[Kind, Any] = {
    Kind.NUMBER: 0,
    Kind.UNSIGNED: 0,
    Kind.FLOAT: 0.0,
    Kind.SYMBOL: "",
    Kind.BOOL: False,
    Kind.DATE: date(1970, 1, 1),
    Kind.TIMESTAMP: datetime(1970, 1, 1),
    Kind.RECORD: None,
    Kind.SET: frozenset(),
}


def _anything(type_: Type) -> p.Const:
    """Return some value of a type, for a column that is not looked at."""
    if type_.kind is Kind.DECIMAL:
        return p.Const(Decimal(0).scaleb(-type_.scale), type_)
    return p.Const(_ANYTHING[type_.kind], type_)
