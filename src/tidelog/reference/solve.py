"""All assignments of a rule's variables that satisfy its body.

Literals are taken one after the other, each as soon as the variables it uses are bound; positive
atoms bind theirs. The order does not matter for the answer. For errors it must not either, so:

    A condition that cannot be computed (overflow, division by zero, a bad conversion) is an error
    exactly when the positive atoms match and no other condition is false. Conditions on a value
    that could not be computed are left out.

So `p(x / y) :- q(x, y), y != 0.` never fails, wherever the guard stands in the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from tidelog.logic import program as p
from tidelog.logic.variables import (
    literal_variables,
    newly_bound,
    pattern_variables,
    term_variables,
    terms_of,
    typed_variables,
)
from tidelog.reference import functors
from tidelog.reference.aggregates import NOTHING, reduce, reduce_registered
from tidelog.reference.functors import FunctorFailure, Records
from tidelog.values.order import sort_key
from tidelog.values.types import Row

Assignment: TypeAlias = dict[str, Any]
Positions: TypeAlias = tuple[int, ...]


class IndexedRows:
    """A growing set of rows, with an index for each set of columns that was looked up."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: set[Row] = set(rows)
        self._indexes: dict[Positions, dict[Row, list[Row]]] = {}

    def add(self, row: Row) -> bool:
        """Add a row; return whether it is new."""
        if row in self.rows:
            return False
        self.rows.add(row)
        for positions, index in self._indexes.items():
            index.setdefault(tuple(row[i] for i in positions), []).append(row)
        return True

    def lookup(self, positions: Positions, key: Row) -> Iterable[Row]:
        """Return the rows whose columns at `positions` hold `key`."""
        if not positions:
            return self.rows
        index = self._indexes.get(positions)
        if index is None:
            index = self._indexes[positions] = {}
            for row in self.rows:
                index.setdefault(tuple(row[i] for i in positions), []).append(row)
        return index.get(key, ())


class FoundByColumns(Protocol):
    """Rows that can be looked up by the values of some columns."""

    def lookup(self, positions: Positions, key: Row, /) -> Iterable[Row]:
        """Return the rows whose columns at `positions` hold `key`."""


Relations: TypeAlias = Mapping[str, FoundByColumns]


class _Unknown:
    """The value of a variable whose computation failed."""


UNKNOWN = _Unknown()


class Solver:
    """Enumerates the solutions of bodies over given relations."""

    def __init__(
        self,
        relations: Relations,
        records: Records,
        looked_at: Callable[[int], object] = lambda rows: None,
    ) -> None:
        """`looked_at` is called with the number of rows examined, and may stop the evaluation."""
        self._relations = relations
        self._records = records
        self._looked_at = looked_at

    def solutions(
        self,
        body: tuple[p.Literal, ...],
        known: Assignment,
        focus: tuple[int, IndexedRows] | None = None,
    ) -> Iterator[tuple[Assignment, FunctorFailure | None]]:
        """Yield each solution, with the failure it met, if any.

        `focus` = (i, source) reads the i-th literal, an atom, from `source`, and takes it first. So
        a round of the fixpoint reads only what is new.
        """
        atom_bound = {
            name
            for literal in body
            if isinstance(literal, p.Atom) and not literal.negated
            for name in pattern_variables(literal.args)
        }
        first = [body[focus[0]]] if focus is not None else []
        rest = [literal for i, literal in enumerate(body) if focus is None or i != focus[0]]
        order = ordered(first, rest, set(known))
        yield from self._extend(order, dict(known), None, atom_bound, focus[1] if focus else None)

    def _extend(
        self,
        order: list[p.Literal],
        known: Assignment,
        failure: FunctorFailure | None,
        atom_bound: set[str],
        focus: IndexedRows | None,
    ) -> Iterator[tuple[Assignment, FunctorFailure | None]]:
        if not order:
            yield known, failure
            return
        literal, rest = order[0], order[1:]
        try:
            is_left_out = _uses_unknown(literal, known)
            extended = [] if is_left_out else list(self._solve(literal, known, focus))
        except FunctorFailure as error:
            is_left_out, failure = True, failure or error
        if is_left_out:
            # What this literal would have bound is unknown, unless a positive atom binds it too:
            # that atom must still match, so the rest is ordered again without the value.
            unbound = newly_bound(literal, set(known)) - set(known)
            known = {**known, **{name: UNKNOWN for name in unbound - atom_bound}}
            rest = ordered([], rest, set(known))
            yield from self._extend(rest, known, failure, atom_bound, None)
            return
        for assignment in extended:
            yield from self._extend(rest, assignment, failure, atom_bound, None)

    # --- one literal ---

    def matches(self, literal: p.Literal, known: Assignment) -> Iterator[Assignment]:
        """Yield `known` extended in each way in which one literal holds.

        What the literal needs is known. Raises FunctorFailure if it cannot be computed.
        """
        return self._solve(literal, known, None)

    def matched(
        self, patterns: tuple[p.Term, ...], row: Row, known: Assignment
    ) -> Iterator[Assignment]:
        """Yield `known` extended so that the patterns equal the values of a row, if they can."""
        return self._match_all(patterns, row, known)

    def _solve(
        self, literal: p.Literal, known: Assignment, focus: IndexedRows | None
    ) -> Iterator[Assignment]:
        match literal:
            case p.Atom(relation, args, negated=negated):
                source = self._relations[relation] if focus is None else focus
                matches = self._match_atom(args, known, source)
                if not negated:
                    yield from matches
                elif next(matches, None) is None:
                    yield known
            case p.Compare(op, left, right):
                yield from self._compare(op, left, right, known)
            case p.Test(name, args, negated=negated):
                values = [self.value(arg, known) for arg in args]
                if functors.test(name, values) != negated:
                    yield known
            case p.Generate(target, args):
                values = [self.value(arg, known) for arg in args]
                step = values[2] if len(values) == 3 else None
                for number in functors.number_range(values[0], values[1], step, target.type):
                    yield from self._match(target, number, known)
            case p.Reduce():
                yield from self._reduce(literal, known)

    def _match_atom(
        self, args: tuple[p.Term, ...], known: Assignment, source: FoundByColumns
    ) -> Iterator[Assignment]:
        positions = tuple(i for i, arg in enumerate(args) if _is_known(arg, known))
        key = tuple(self.value(args[i], known) for i in positions)
        # The rows may grow while the matches are used, so copy them.
        rows = list(source.lookup(positions, key))
        self._looked_at(len(rows))
        for row in rows:
            yield from self._match_all(args, row, known)

    def _match_all(
        self, args: tuple[p.Term, ...], row: Row, known: Assignment
    ) -> Iterator[Assignment]:
        assignments: Iterable[Assignment] = (known,)
        for arg, value in zip(args, row, strict=True):
            assignments = [new for a in assignments for new in self._match(arg, value, a)]
        yield from assignments

    def _match(self, pattern: p.Term, value: Any, known: Assignment) -> Iterator[Assignment]:
        """Yield `known` extended so that `pattern` equals `value`, if it can."""
        match pattern:
            case p.Wildcard():
                yield known
            case p.Var(name) if name not in known:
                yield {**known, name: value}
            case p.MakeRecord(args):
                if value is not None:
                    yield from self._match_all(args, value, known)
            case _:
                wanted = self.value(pattern, known)
                # NaN is one object, and equal to itself here as it is in the order of values.
                if wanted is value or wanted == value:
                    yield known

    def _compare(
        self, op: p.Comparison, left: p.Term, right: p.Term, known: Assignment
    ) -> Iterator[Assignment]:
        if op is p.Comparison.EQ:
            if _is_known(right, known):
                yield from self._match(left, self.value(right, known), known)
            else:
                yield from self._match(right, self.value(left, known), known)
            return
        key = sort_key(left.type, self._records)
        if _HOLDS[op](key(self.value(left, known)), key(self.value(right, known))):
            yield known

    def _reduce(self, literal: p.Reduce, known: Assignment) -> Iterator[Assignment]:
        group = {name: known[name] for name in literal.group}
        found: dict[Row, Any] = {}
        types: dict[str, Any] = dict(_local_types(literal))
        for solution, failure in self.solutions(literal.body, group):
            if failure is not None:
                raise failure
            key = tuple(solution[name] for name in literal.local)
            found[key] = None if literal.target is None else self.value(literal.target, solution)
        if literal.op == "concat" or literal.registered is not None:
            keys = [sort_key(types[name], self._records) for name in literal.local]
            order = sorted(found, key=lambda row: [k(v) for k, v in zip(keys, row, strict=True)])
        else:
            order = list(found)
        values = [found[key] for key in order]
        value_type = None if literal.target is None else literal.target.type
        try:
            if literal.registered is not None:
                value = reduce_registered(literal.registered, values, self._records)
            else:
                value = reduce(literal.op, values, value_type, literal.result.type, self._records)
        except FunctorFailure as failure:
            failure.group = group
            raise
        if value is not NOTHING:
            yield from self._match(literal.result, value, known)

    # --- terms ---

    def value(self, term: p.Term, known: Assignment) -> Any:
        """Return the value of a term whose variables are all known."""
        match term:
            case p.Var(name):
                return known[name]
            case p.Const(value):
                return value
            case p.MakeRecord(args):
                return tuple(self.value(arg, known) for arg in args)
            case p.Apply(op, args, type_):
                values = [self.value(arg, known) for arg in args]
                return functors.apply(op, values, [a.type for a in args], type_, self._records)
            case p.Wildcard():
                raise AssertionError("`_` has no value")


_HOLDS: dict[p.Comparison, Callable[[Any, Any], bool]] = {
    p.Comparison.NE: lambda a, b: a != b,
    p.Comparison.LT: lambda a, b: a < b,
    p.Comparison.LE: lambda a, b: a <= b,
    p.Comparison.GT: lambda a, b: a > b,
    p.Comparison.GE: lambda a, b: a >= b,
}


def _is_known(term: p.Term, known: Mapping[str, Any] | set[str]) -> bool:
    match term:
        case p.Var(name):
            return name in known
        case p.Const():
            return True
        case p.Wildcard():
            return False
        case p.MakeRecord(args) | p.Apply(_, args):
            return all(_is_known(arg, known) for arg in args)


def _uses_unknown(literal: p.Literal, known: Assignment) -> bool:
    return any(known.get(name) is UNKNOWN for name in literal_variables(literal))


def ordered(first: list[p.Literal], rest: list[p.Literal], bound: set[str]) -> list[p.Literal]:
    """Return the literals in an order in which each finds its variables bound."""
    order: list[p.Literal] = []
    bound = set(bound)
    remaining = list(rest)
    for literal in first:
        order.append(literal)
        bound |= newly_bound(literal, bound)
    while remaining:
        best = min(remaining, key=lambda literal: _rank(literal, bound))
        remaining.remove(best)
        order.append(best)
        bound |= newly_bound(best, bound)
    return order


def _rank(literal: p.Literal, bound: set[str]) -> tuple[int, int]:
    """Order: conditions that only check, then those that compute, then atoms, then aggregates."""
    used = set(literal_variables(literal))
    unbound = len(used - bound)
    waiting = 9  # cannot be taken yet
    match literal:
        case p.Reduce(group=group):
            return (4 if bound.issuperset(group) else waiting, 0)
        case p.Atom(negated=False):
            return (3, unbound)
        case p.Generate(_, args):
            return (2 if bound.issuperset(term_variables(args)) else waiting, 0)
        case p.Compare(p.Comparison.EQ, left, right) if unbound:
            ready = any(_is_known(side, bound) for side in (left, right))
            able = used <= bound | newly_bound(literal, bound)
            return (1 if ready and able else waiting, 0)
        case _:
            return (0 if unbound == 0 else waiting, 0)


def _local_types(literal: p.Reduce) -> Iterator[tuple[str, Any]]:
    """Yield the types of the variables in the aggregate's body."""
    return typed_variables(term for part in literal.body for term in terms_of(part))
