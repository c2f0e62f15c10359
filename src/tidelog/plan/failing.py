"""Which failures in a rule with aggregates are errors.

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
is neither rule nor relation: the failure is an error at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from typing import Any, TypeAlias

from tidelog.logic import program as p
from tidelog.logic.safety import (
    literal_variables,
    newly_bound,
    pattern_variables,
    term_variables,
)
from tidelog.plan.aggregates import (
    NEUTRAL,
    Fate,
    Lowering,
    Noted,
    can_fail,
    may_fail,
    types_of,
)
from tidelog.plan.body import OnFailure
from tidelog.plan.redundant import holds_iff_group_has_rows
from tidelog.source import Span
from tidelog.values.types import NUMBER, Kind, Type

Family = tuple[p.Reduce, ...]
"""Aggregates that share one relation (plan/siblings.py); most families have one member."""

Conjunction: TypeAlias = tuple[p.Literal, ...]


def is_used(reduce: p.Reduce, body: Iterable[p.Literal]) -> bool:
    """Return whether another literal of a body depends on the result of an aggregate."""
    if not isinstance(reduce.result, p.Var):
        return True
    name = reduce.result.name
    return any(literal is not reduce and name in literal_variables(literal) for literal in body)


def matters_without(reduce: p.Reduce, failed: p.Reduce, body: Sequence[p.Literal]) -> bool:
    """Return whether something depends on an aggregate even if another one has failed."""
    return is_used(reduce, [literal for literal, _ in _reached(body, {id(failed)})])


# --- what can excuse a failure ------------------------------------------------------------------


def excuses(
    body: Sequence[p.Literal], family: Family, failed: Collection[p.Reduce]
) -> list[p.Literal]:
    """Return the literals of a body that may be false if members of a family have failed."""
    unvalued = {id(part) for part in failed}
    reached = _reached(body, unvalued)
    literals = [literal for literal, _ in reached]

    def can_excuse(literal: p.Literal, new: set[str]) -> bool:
        if id(literal) in unvalued:
            return False
        match literal:
            case p.Reduce(result) if isinstance(result, p.Var) and result.name in new:
                if any(literal is part for part in family):
                    return False
                has_value = literal.op in NEUTRAL or any(_has_same_rows(f, literal) for f in family)
                return not has_value or is_used(literal, literals)
            case p.Atom():
                return not _is_implied(literal, family, body)
            case _:
                return True

    return [literal for literal, new in reached if can_excuse(literal, new)]


def _is_implied(atom: p.Atom, family: Family, body: Sequence[p.Literal]) -> bool:
    """Return whether an atom only says that a group of these aggregates has rows."""
    return any(
        holds_iff_group_has_rows(atom, other)
        and any(other is part or _has_same_rows(part, other) for part in family)
        for other in body
        if isinstance(other, p.Reduce)
    )


def _has_same_rows(one: p.Reduce, other: p.Reduce) -> bool:
    """Return whether two aggregates are known to have rows in the same groups."""
    if (one.body, set(one.group)) == (other.body, set(other.group)):
        return True
    match one.body:
        case [p.Atom(args=args, negated=False) as atom]:
            terms = tuple(
                p.Wildcard(arg.type) if isinstance(arg, p.Var) and arg.name in one.local else arg
                for arg in args
            )
            outer = replace(atom, args=terms)
            return holds_iff_group_has_rows(outer, one) and holds_iff_group_has_rows(outer, other)
    return False


def _reached(
    body: Sequence[p.Literal], unvalued: Collection[int]
) -> list[tuple[p.Literal, set[str]]]:
    """Return the literals that do not depend on the aggregates without a value, given by `id`.

    And the variables that each of them binds.
    """
    unknown: set[str] = set()
    reached = []
    for literal, new in in_order(body):
        if not unknown.isdisjoint(literal_variables(literal)):
            unknown |= new
            continue
        reached.append((literal, new))
        if id(literal) in unvalued:
            unknown |= new
    return reached


def in_order(body: Sequence[p.Literal]) -> Iterator[tuple[p.Literal, set[str]]]:
    """Yield the literals of a body, positive atoms first, with the variables that each binds.

    The order matters in one case: a variable that several literals can bind has a value if the
    first of these has one. Atoms always have.
    """
    bound: set[str] = set()
    waiting = list(body)
    while waiting:
        number = min(range(len(waiting)), key=lambda i: _rank(waiting[i], bound))
        literal = waiting.pop(number)
        new = newly_bound(literal, bound) - bound
        bound |= new
        yield literal, new


def _rank(literal: p.Literal, bound: set[str]) -> int:
    """Return the rank: atoms, conditions, those that bind variables, ranges, then aggregates."""
    used = set(literal_variables(literal))
    later = 9
    match literal:
        case p.Atom(negated=False):
            return 0
        case p.Reduce(group=group):
            return 4 if bound.issuperset(group) else later
        case p.Generate(_, args):
            return 3 if bound.issuperset(term_variables(args)) else later
        case p.Compare(p.Comparison.EQ) if not used <= bound:
            new = newly_bound(literal, bound)
            return 2 if new and used - new <= bound else later
        case _:
            return 1 if used <= bound else later


# --- rules --------------------------------------------------------------------------------------


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
class _Step:
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


@dataclass
class _Conditions:
    """The conditions of a rule: those that always have values, and the others."""

    atoms: list[p.Literal] = field(default_factory=list)
    certain: list[p.Literal] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)


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
        self._places = {
            id(part): (place, i) for place in placed for i, part in enumerate(place.family)
        }
        self._types = dict(_types(body))
        self._sole = self._only_failure()
        self._conditions = self._sorted()
        self._binder = {v.name: step for step in self._conditions.steps for v in step.new}
        self._flag = {
            name: p.Var(f"%lacks_{name}", NUMBER)
            for name, step in self._binder.items()
            if self._is_doubtful(step)
        }
        """For each variable that may have no value the flag that says so."""
        self._leading = [
            step
            for step in self._conditions.steps
            if step.fails and self._leads_to_an_aggregate(step)
        ]
        """The conditions whose failures the rule does not see: a group depends on them."""

    # --- the conditions ---

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
        for literal, new in in_order(self._body):
            if isinstance(literal, p.Reduce):
                if not doubtful.isdisjoint(literal.group):
                    return None
            elif can_fail(literal) or not doubtful.isdisjoint(literal_variables(literal)):
                doubtful |= new
        return failing[0] if len(failing) == 1 else None

    def _sorted(self) -> _Conditions:
        """Return the conditions, in the order in which they are taken."""
        if self._sole is not None:
            return self._without_sole(self._sole)
        found = _Conditions()
        stepwise: set[str] = set()
        for literal, new in in_order(self._body):
            if isinstance(literal, p.Atom) and not literal.negated:
                found.atoms.append(literal)
                continue
            uses = set(literal_variables(literal)) - new
            if isinstance(literal, p.Reduce):
                if self._never_matters(literal, new):
                    continue
                place, number = self._places[id(literal)]
                ways = tuple(place.valued(number, literal.result))
                failures = tuple(place.unvalued(number))
                if uses.isdisjoint(stepwise) and len(ways) == 1 and not failures:
                    found.certain += ways[0]
                    continue
                found.steps += self._aggregate_steps(literal, place, number, new)
            elif uses.isdisjoint(stepwise) and not can_fail(literal):
                found.certain.append(literal)
                continue
            else:
                found.steps.append(
                    _Step(frozenset(uses), self._vars(new), ((literal,),), (), can_fail(literal))
                )
            stepwise |= new
        return found

    def _without_sole(self, sole: p.Reduce) -> _Conditions:
        """Return the conditions that do not depend on the only aggregate that can fail."""
        found = _Conditions()
        for literal, new in _reached(self._body, {id(sole)}):
            if isinstance(literal, p.Atom) and not literal.negated:
                found.atoms.append(literal)
            elif not isinstance(literal, p.Reduce):
                found.certain.append(literal)
            elif literal is not sole and not self._never_matters(literal, new):
                place, number = self._places[id(literal)]
                *_, way = place.valued(number, literal.result)  # its siblings are where it fails
                found.certain += way
        return found

    def _never_matters(self, reduce: p.Reduce, new: set[str]) -> bool:
        """Return whether an aggregate always holds if it does not fail, and nothing uses it."""
        is_new = isinstance(reduce.result, p.Var) and reduce.result.name in new
        return is_new and reduce.op in NEUTRAL and not is_used(reduce, self._body)

    def _aggregate_steps(
        self, reduce: p.Reduce, place: Placed, number: int, new: set[str]
    ) -> Iterator[_Step]:
        """Yield the step of an aggregate, and one more if its result is not a new variable."""
        uses = frozenset(literal_variables(reduce)) - new
        result = reduce.result
        failures = tuple(place.unvalued(number))
        if isinstance(result, p.Var) and result.name in new:
            ways = tuple(place.valued(number, result))
            yield _Step(uses, (result,), ways, failures)
            return
        made = p.Var(f"%result{len(self._types)}", result.type)
        self._types[made.name] = made.type
        ways = tuple(place.valued(number, made))
        yield _Step(uses, (made,), ways, failures)
        same = p.Compare(p.Comparison.EQ, result, made, reduce.span)
        needed = frozenset(literal_variables(same)) - new
        yield _Step(needed, self._vars(new), ((same,),), (), can_fail(same))

    def _vars(self, names: Iterable[str]) -> tuple[p.Var, ...]:
        return tuple(p.Var(name, self._types[name]) for name in sorted(names))

    def _is_doubtful(self, step: _Step) -> bool:
        """Return whether what a step binds may have no value."""
        return bool(step.failures) or step.fails or any(map(self._is_doubtful, self._before(step)))

    def _before(self, step: _Step) -> list[_Step]:
        """Return the steps that bind what a step uses."""
        found = {id(self._binder[n]): self._binder[n] for n in step.uses if n in self._binder}
        return list(found.values())

    def _leads_to_an_aggregate(self, step: _Step) -> bool:
        return any(
            any(step is part for part in self._cone(literal.group))
            for literal in self._body
            if isinstance(literal, p.Reduce)
        )

    def _cone(self, names: Iterable[str]) -> list[_Step]:
        """Return the steps that variables depend on, in order."""
        wanted = set(names)
        found = []
        for step in reversed(self._conditions.steps):
            if any(v.name in wanted for v in step.new):
                wanted |= step.uses
                found.append(step)
        return found[::-1]

    # --- the rules ---

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
            for way in self._ways(self._cone(term_variables(atom.args))):
                self._rule(doubt, held, (atom, *self._base(atom), *way))
        for step in self._leading:
            for way in self._ways(self._cone(step.uses)):
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
            self._conclude(body, None, self._vars(step.uses))

    def _base(self, failure: p.Atom | None) -> Conjunction:
        """Return the atoms and the conditions that always have values, where something fails."""
        family: Family = ()
        if failure is not None:
            names = [(place.family, (place.failed, place.spoilt)) for place in self._placed]
            family = next(found for found, made in names if failure.relation in made)
        atoms = [
            atom
            for atom in self._conditions.atoms
            if not (isinstance(atom, p.Atom) and _is_implied(atom, family, self._body))
        ]
        return (*atoms, *self._conditions.certain)

    def _ways(self, steps: Sequence[_Step]) -> Iterator[Conjunction]:
        """Yield the ways in which all these steps hold."""
        for choice in product(*(step.ways for step in steps)):
            yield tuple(literal for way in choice for literal in way)

    def _take(
        self, step: _Step, before: tuple[str, Sequence[p.Var]], after: tuple[str, Sequence[p.Var]]
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
        bound = set(pattern_variables(_atom_terms(self._conditions.atoms)))
        bound |= {n for literal in self._conditions.certain for n in _bound_by(literal)}
        bound |= {v.name for step in steps[:number] for v in step.new}
        needed = last.union(*(step.uses for step in steps[number:]))
        kept = self._vars(needed & bound)
        return [*kept, *(self._flag[v.name] for v in kept if v.name in self._flag)]


def _filled(columns: Sequence[p.Var], values: dict[str, p.Const]) -> tuple[p.Term, ...]:
    """Return columns, some of which have values."""
    return tuple(values.get(v.name, v) for v in columns)


def _atom_terms(atoms: Iterable[p.Literal]) -> Iterator[p.Term]:
    for atom in atoms:
        if isinstance(atom, p.Atom):
            yield from atom.args


def _bound_by(literal: p.Literal) -> Iterator[str]:
    """Yield the variables of a literal that has found its values."""
    if not (isinstance(literal, p.Atom) and literal.negated):
        yield from literal_variables(literal)


def _types(body: Iterable[p.Literal]) -> Iterator[tuple[str, Type]]:
    """Yield the variables of a body with their types, without those inside of aggregates."""
    for literal in body:
        match literal:
            case p.Atom(args=args) | p.Test(args=args):
                yield from types_of(args)
            case p.Compare(_, left, right):
                yield from types_of((left, right))
            case p.Generate(target, args):
                yield from types_of((target, *args))
            case p.Reduce(result):
                yield from types_of((result,))


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
