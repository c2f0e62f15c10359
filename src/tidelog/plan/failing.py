"""Aggregates that have no value: in which rows of a rule that is an error.

A sum can leave its type, and a function from Python can fail. That is an error exactly when nothing
else in the rule is false; what depends on the missing value is left out (docs/decisions/0001):

    p(g, n, s) :- q(g), n = count : { r(g, _) }, s = sum x : { r(g, x) }, n < 2, s > n.

    failed(g, n, s, flag) :  the groups of r in which a result has no value, which the flag tells
    error(g, 1)           :- failed(g, n, _, 1), q(g), n < 2.

Hardly ever is there a row in `failed`, so `error` costs nothing (maintain/unexcused.py). With a sum
that other conditions ask for there is a rule for the case that it has failed as well, and one for
the case that it has not. Where nothing could excuse a failure there is no rule and no relation: it
is an error at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tidelog.logic import program as p
from tidelog.logic.safety import literal_variables, newly_bound, term_variables
from tidelog.plan.aggregates import NEUTRAL
from tidelog.plan.implied import says_it_has_rows, without_implied
from tidelog.values.types import NUMBER, Kind

Family = tuple[p.Reduce, ...]
"""Aggregates that are one relation."""

# Rules for more cases than that are not made: then every failure is an error.
_MOST_CASES = 64


def may_overflow(reduce: p.Reduce) -> bool:
    """Return whether the result can be beyond its type."""
    return reduce.op == "sum" and reduce.result.type.kind is not Kind.FLOAT


def may_fail(reduce: p.Reduce) -> bool:
    """Return whether there are rows of which the aggregate has no value."""
    return may_overflow(reduce) or reduce.registered is not None


@dataclass(frozen=True)
class Case:
    """Some families have failed. What of the rule must hold then, the failed ones among it."""

    failed: Mapping[int, frozenset[int]]
    """For each family that has: those of its parts that have, among those that anything asks for.

    In addition to these, parts may have failed that nothing asks for.
    """
    kept: tuple[p.Literal, ...]


class Failures:
    """The cases in which aggregates of one body fail."""

    def __init__(
        self, body: Sequence[p.Literal], families: Sequence[Family], *, judged: bool = True
    ) -> None:
        """Find the cases; in a body that is not `judged` everything is excused."""
        self._body, self._families = body, families
        doubtful = {i for i, family in enumerate(families) if any(map(may_fail, family))}
        self.excusable = frozenset(() if judged else doubtful)
        """The families whose failures something can excuse; those of others are errors at once."""
        self.cases: list[Case] = []
        if not judged:
            return
        states = {i: self._states(families[i]) for i in doubtful}
        doubtful = {i for i in doubtful if any(self._excuses(i, s) for s in states[i])}
        concerned = [i for i in sorted(doubtful) if not self._is_droppable(families[i])]
        if prod(1 + len(states[i]) for i in concerned) > _MOST_CASES:
            return
        self.excusable = frozenset(doubtful)
        for choice in product(*((None, *states[i]) for i in concerned)):
            pairs = zip(concerned, choice, strict=True)
            some = {i: state for i, state in pairs if state is not None}
            if some:
                self._add(some)
        for i in sorted(doubtful.difference(concerned)):
            for state in states[i]:
                self._add({i: state})

    def is_asked(self, reduce: p.Reduce) -> bool:
        """Return whether anything else in the body depends on a result."""
        return _is_asked(reduce, self._body)

    def _states(self, family: Family) -> list[frozenset[int]]:
        """Return how a family can fail: each set of those of its parts that anything asks for."""
        doubtful = [i for i, part in enumerate(family) if may_fail(part)]
        asked = [i for i in doubtful if self.is_asked(family[i])]
        states = [
            frozenset(i for i, has_failed in zip(asked, which, strict=True) if has_failed)
            for which in product((False, True), repeat=len(asked))
        ]
        return states if len(asked) < len(doubtful) else states[1:]

    def _is_droppable(self, family: Family) -> bool:
        """Return whether it makes no difference to others what a family is."""
        return all(part.op in NEUTRAL and not self.is_asked(part) for part in family)

    def _excuses(self, family: int, state: frozenset[int]) -> bool:
        """Return whether there is a condition beside a failure."""
        case = self._case({family: state})
        if case is None:
            return False
        parts = [part for part in self._families[family] if any(part is k for k in case.kept)]
        valued = [part.result for i, part in enumerate(parts) if i not in state]
        is_plain = all(isinstance(term, p.Var) for term in valued)
        return len(parts) < len(case.kept) or not is_plain or len(set(valued)) < len(valued)

    def _add(self, failed: Mapping[int, frozenset[int]]) -> None:
        case = self._case(failed)
        if case is not None:
            self.cases.append(case)

    def _case(self, failed: Mapping[int, frozenset[int]]) -> Case | None:
        """Return what must hold where some have failed; None if that cannot be."""
        unvalued = {id(self._families[i][part]) for i, parts in failed.items() for part in parts}
        reached = _reached(self._body, unvalued)
        causes = [part for i in failed for part in self._families[i]]
        found = set(map(id, reached))
        if not found.issuperset(unvalued) or any(
            found.isdisjoint(map(id, self._families[i])) for i in failed
        ):
            return None  # the group of one depends on the failure of another
        needed = tuple(
            literal
            for literal in reached
            if not isinstance(literal, p.Reduce)
            or any(literal is cause for cause in causes)
            or _is_asked(literal, reached)
            or not (literal.op in NEUTRAL or any(_has_same_rows(c, literal) for c in causes))
        )
        return Case(dict(failed), without_implied(needed))


def _is_asked(reduce: p.Reduce, body: Sequence[p.Literal]) -> bool:
    """Return whether anything else in a body depends on the result of an aggregate."""
    if not isinstance(reduce.result, p.Var):
        return True
    name = reduce.result.name
    return any(literal is not reduce and name in literal_variables(literal) for literal in body)


def _has_same_rows(one: p.Reduce, other: p.Reduce) -> bool:
    """Return whether two aggregates have rows in the same groups."""
    if (one.body, set(one.group)) == (other.body, set(other.group)):
        return True
    match one.body:
        case [p.Atom(args=args, negated=False) as atom]:
            terms = tuple(
                p.Wildcard(arg.type) if isinstance(arg, p.Var) and arg.name in one.local else arg
                for arg in args
            )
            outer = replace(atom, args=terms)
            return says_it_has_rows(outer, one) and says_it_has_rows(outer, other)
    return False


def _reached(body: Sequence[p.Literal], unvalued: Collection[int]) -> list[p.Literal]:
    """Return the literals that do not depend on what has no value, given by identity.

    In which order they are taken makes a difference in one case: a variable that several of them
    can bind has a value if the first of them has one.
    """
    bound: set[str] = set()
    unknown: set[str] = set()
    waiting = list(body)
    reached = []
    while waiting:
        number = min(range(len(waiting)), key=lambda i: _rank(waiting[i], bound))
        literal = waiting.pop(number)
        new = newly_bound(literal, bound) - bound
        bound |= new
        if not unknown.isdisjoint(literal_variables(literal)):
            unknown |= new
            continue
        reached.append(literal)
        if id(literal) in unvalued:
            unknown |= new
    return reached


def _rank(literal: p.Literal, bound: set[str]) -> tuple[int, int]:
    """Return when to take a literal: conditions, then what binds variables, then aggregates."""
    unbound = len(set(literal_variables(literal)) - bound)
    later = 9
    match literal:
        case p.Reduce(group=group):
            return (4 if bound.issuperset(group) else later, 0)
        case p.Atom(negated=False):
            return (3, unbound)
        case p.Generate(_, args):
            return (2 if bound.issuperset(term_variables(args)) else later, 0)
        case p.Compare(p.Comparison.EQ) if unbound:
            new = newly_bound(literal, bound)
            return (
                1 if new and bound.issuperset(set(literal_variables(literal)) - new) else later,
                0,
            )
        case _:
            return (later if unbound else 0, 0)


# --- rules --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A family, and the atoms that stand for it."""

    family: Family
    atom: p.Atom
    """Of the relation that has a row where all results have values: group, results."""
    failed: str | None
    """The relation of the groups that have not, if there is one."""

    @property
    def group(self) -> tuple[p.Term, ...]:
        """The variables of the group."""
        return self.atom.args[: len(self.family[0].group)]

    @property
    def flagged(self) -> list[int]:
        """The parts that have a flag: those that can fail, if there is more than one part."""
        parts = range(len(self.family)) if len(self.family) > 1 else ()
        return [i for i in parts if may_fail(self.family[i])]

    def flags(self, failures: Failures, parts: frozenset[int]) -> list[p.Term]:
        """Return what the flags are where these parts have failed."""
        return [
            p.Const(int(i in parts), NUMBER)
            if failures.is_asked(self.family[i])
            else p.Var(f"%{self.failed}{i}", NUMBER)
            for i in self.flagged
        ]


def error_rules(
    failures: Failures, placed: Sequence[Placed]
) -> Iterator[tuple[int, tuple[p.Term, ...], tuple[p.Literal, ...]]]:
    """Yield (family, arguments of the head, body) of each rule that derives errors."""
    for case in failures.cases:
        body: list[p.Literal] = []
        for i, place in enumerate(placed):
            kept = [any(part is literal for literal in case.kept) for part in place.family]
            if not any(kept):
                continue
            atom = place.atom
            results = list(atom.args[len(place.group) :])
            for number, term in enumerate(results):
                if not kept[number] or number in case.failed.get(i, ()):
                    results[number] = p.Wildcard(term.type)
            if i in case.failed:
                flags = place.flags(failures, case.failed[i])
                values = results if len(place.family) > 1 else []
                assert place.failed is not None
                body.append(p.Atom(place.failed, (*place.group, *values, *flags), atom.span))
            else:
                body.append(replace(atom, args=(*place.group, *results)))
        body += [literal for literal in case.kept if not isinstance(literal, p.Reduce)]
        first = min(case.failed)
        place = placed[first]
        flags = place.flags(failures, case.failed[first])
        yield first, (*place.group, *flags), tuple(body)
