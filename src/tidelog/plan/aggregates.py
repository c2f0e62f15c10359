"""An aggregate becomes relations: its source, its result, and the groups that its rule reads.

plan/lower.py has an example. Several aggregates over the same rows are lowered together
(plan/siblings.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

from tidelog.logic import program as p
from tidelog.logic.functors import is_fallible
from tidelog.logic.variables import (
    literal_variables,
    newly_bound,
    term_variables,
    terms_of,
    typed_variables,
)
from tidelog.plan.body import OnFailure
from tidelog.plan.lowered import Aggregation
from tidelog.plan.redundant import holds_iff_group_has_rows
from tidelog.source import Span
from tidelog.values.algebra import SetFunction
from tidelog.values.types import Kind, Type, set_type

NEUTRAL: dict[str, Any] = {"count": 0, "sum": 0, "total": 0.0, "setof": frozenset(), "concat": ""}
"""The values of aggregates over no rows. Other aggregates have no value then."""


@dataclass(frozen=True)
class Noted:
    """Where a rule fails, it derives `relation(args)`, and another rule decides what follows."""

    relation: str
    args: tuple[p.Var, ...]


Fate: TypeAlias = OnFailure | Noted
"""What to do with a failure in the body of a rule."""


class Lowering(Protocol):
    """The part of the program's lowering that the lowering of an aggregate uses."""

    relations: dict[str, tuple[Type, ...]]
    aggregations: dict[str, Aggregation]
    errors: dict[str, str]
    """For each relation of errors, the relation of the failures."""
    judging: set[str]
    """The relations that have rows only where something has failed."""
    groups: dict[str, str]
    """For each relation of computed groups, the relation of the groups that a recursion wants."""

    def fresh_relation(self, hint: str, types: Sequence[Type]) -> str:
        """Add a relation with a new name, and return the name."""

    def add_rule(
        self,
        head: str,
        args: tuple[p.Term, ...],
        body: tuple[p.Literal, ...],
        text: str,
        span: Span | None,
        fate: Fate = OnFailure.RAISE,
    ) -> None:
        """Lower one rule; `fate` says what to do with failures in its body."""

    def projection(self, relation: str, columns: tuple[int, ...]) -> str:
        """Return the relation that holds some columns of another."""

    def stratum_of(self, relation: str) -> frozenset[str]:
        """Return the recursive stratum of a relation; empty if it is not recursive."""

    def is_recursive(self, literals: Iterable[p.Literal]) -> bool:
        """Return whether literals read the recursion that the current rule is part of."""


class AggregateLowering:
    """Lowers one aggregate of a rule."""

    def __init__(
        self,
        whole: Lowering,
        body: tuple[p.Literal, ...],
        reduce: p.Reduce,
        head: str,
        text: str,
        span: Span | None,
    ) -> None:
        self._whole = whole
        self._body = body
        self._reduce = reduce
        self._replaced: tuple[p.Reduce, ...] = (reduce,)
        """The literals that the atom replaces in the rule."""
        self._head = head
        self._text = text
        self._span = span
        self.failed: str | None = None
        """The relation of the groups without a value; None if none, or all are errors."""
        self.spoilt: str | None = None
        """The relation of the groups in which something in the braces fails; None likewise."""

    def atom(self, *, excusable: bool, excuses: Sequence[p.Literal] | None) -> p.Atom:
        """Add the relations of the aggregate, and return the atom that replaces it in the rule.

        If its failures are `excusable`, there is a relation of the groups in which it has failed.
        A failure in the braces is an error at once if the computed groups satisfy all `excuses`. It
        never is if `excuses` is None.
        """
        reduce = self._reduce
        types = dict(self._all_types())
        group = tuple(p.Var(name, types[name]) for name in reduce.group)
        # Only failures in groups that the rule reads count, so only these are computed.
        may_fail = self._body_may_fail((reduce.target,))
        needs_wanted = self._needs_outer() or may_fail
        algebra = None if reduce.registered is None else reduce.registered.algebra
        meets_empty = reduce.op in NEUTRAL and not self._asks_only_groups_with_rows()
        wanted = None
        if needs_wanted or meets_empty:
            wanted, kept = self._wanted(group, sourced=needs_wanted)
            if may_fail:
                self._note_spoilt(group, kept, excuses)
        source, columns = self._source(group, types, wanted if needs_wanted else None)
        own = () if _is_of_set(reduce) else columns[len(group) : len(group) + len(reduce.local)]
        result_type = reduce.result.type
        result = self._whole.fresh_relation(f"{reduce.op}", [*(v.type for v in group), result_type])
        target = None if reduce.target is None else columns[-1]
        target_type = None if reduce.target is None else reduce.target.type
        if isinstance(algebra, SetFunction):
            # The set is maintained as for `setof`, and the function is called on it.
            source, target_type = self._sets(group, source, columns)
            columns = tuple(range(len(group) + 1))
            target = len(group)
        if excusable:
            self.failed = self._whole.fresh_relation(f"{reduce.op}@failed", [v.type for v in group])
        if reduce.op == "count" and target is not None:
            self._count_values(result, source, columns, target)
        else:
            self._whole.aggregations[result] = Aggregation(
                result, source, reduce.op, columns[: len(group)], target,
                own, target_type, result_type, self._text, self._span,
                self.failed, algebra, reduce.group,
            )  # fmt: skip
        if meets_empty:
            assert wanted is not None
            result = self._with_neutral(result, source, columns, group, wanted, (reduce,))
        return p.Atom(result, (*group, reduce.result), reduce.span)

    def _count_values(
        self, result: str, source: str, columns: tuple[int, ...], target: int
    ) -> None:
        """Count the distinct values of a group: the rows of a projection to (group, value).

        The projection counts how many rows of the source have each value. It deletes a value when
        the last of them is deleted.
        """
        reduce = self._reduce
        group = columns[: len(reduce.group)]
        kept = tuple(dict.fromkeys((*group, target)))
        if len(kept) < len(self._whole.relations[source]):
            source = self._whole.projection(source, kept)
            group = tuple(range(len(group)))
        self._whole.aggregations[result] = Aggregation(
            result, source, "count", group, None, (), None, reduce.result.type,
            self._text, self._span, variables=reduce.group,
        )  # fmt: skip

    def _asks_only_groups_with_rows(self) -> bool:
        return any(holds_iff_group_has_rows(literal, self._reduce) for literal in self._body)

    def _all_types(self) -> Iterable[tuple[str, Type]]:
        def walk(literals: tuple[p.Literal, ...]) -> Iterable[tuple[str, Type]]:
            for literal in literals:
                yield from typed_variables(terms_of(literal))
                if isinstance(literal, p.Reduce):
                    yield from walk(literal.body)

        yield from walk(self._body)
        # The aggregate's own variables come last: they hide outer ones of the same name.
        yield from walk(self._reduce.body)
        if self._reduce.target is not None:
            yield from typed_variables((self._reduce.target,))

    def _body_may_fail(self, targets: Iterable[p.Term | None]) -> bool:
        """Return whether computing the rows to aggregate can fail."""
        return any(target is not None and term_can_fail(target) for target in targets) or any(
            map(can_fail, self._reduce.body)
        )

    def _note_spoilt(
        self,
        group: tuple[p.Var, ...],
        fulfilled: Sequence[p.Literal],
        excuses: Sequence[p.Literal] | None,
    ) -> None:
        """Add the relation of groups in which the braces fail, unless that is an error at once.

        It is one if the groups satisfy all that could excuse the failure.
        """
        if excuses is not None and _are_among(excuses, fulfilled):
            return
        types = [v.type for v in group]
        self.spoilt = self._whole.fresh_relation(f"{self._head}@spoilt", types)
        self._whole.judging.add(self.spoilt)

    def _source_fate(self, group: tuple[p.Var, ...]) -> Fate:
        """Return what to do with a failure in the braces."""
        return OnFailure.RAISE if self.spoilt is None else Noted(self.spoilt, group)

    def _needs_outer(self) -> bool:
        """Return whether the body alone leaves a variable of the group unbound."""
        bound: set[str] = set()
        size = -1
        while size != len(bound):
            size = len(bound)
            for literal in self._reduce.body:
                bound |= newly_bound(literal, bound)
        return not bound.issuperset(self._reduce.group)

    def _wanted(
        self, group: tuple[p.Var, ...], *, sourced: bool
    ) -> tuple[str, Sequence[p.Literal]]:
        """Return the relation of the groups that the rest of the rule reads.

        And the literals that these groups satisfy. `sourced` says whether the source of the
        aggregate reads the relation.
        """
        needed = {v.name for v in group}
        # More groups than necessary do no harm, so the atoms of the recursion are left out if
        # possible.
        kept: Sequence[p.Literal] = ()
        for left_out in (self._whole.stratum_of(self._head), frozenset[str]()):
            kept, bound = self._runnable(left_out, ())
            if bound.issuperset(needed):
                break
        kept = self._without_doubtful(left_out, kept, needed)
        types = [v.type for v in group]
        feeds = sourced and self._whole.is_recursive(kept)
        match kept:
            case [p.Atom(relation, args, negated=False)] if args == group and not feeds:
                return relation, kept  # it exists already
        name = self._whole.fresh_relation(f"{self._head}@wanted", types)
        read = name
        if feeds:  # the recursion must not depend on what it wants (ReevaluatedProgram)
            read = self._whole.fresh_relation(f"{self._head}@groups", types)
            self._whole.groups[read] = name
        # The rule itself has the same literals. It decides whether their failures are errors.
        self._whole.add_rule(name, group, tuple(kept), self._text, self._span, OnFailure.SKIP)
        return read, kept

    def _without_doubtful(
        self, left_out: frozenset[str], kept: Sequence[p.Literal], needed: set[str]
    ) -> Sequence[p.Literal]:
        """Drop literals that may fail, and aggregates, unless a group needs them.

        If what binds a group fails, there is no group. But no other failure may hide a group.
        """
        aggregates = [literal for literal in kept if isinstance(literal, p.Reduce)]
        others = [x for x in kept if not isinstance(x, p.Reduce) and can_fail(x)]
        dropped: list[p.Literal] = []
        for literal in (*aggregates, *others):
            fewer, bound = self._runnable(left_out, [*dropped, literal])
            if bound.issuperset(needed):
                dropped.append(literal)
                kept = fewer
        return kept

    def _runnable(
        self, left_out: frozenset[str], dropped: Sequence[p.Literal]
    ) -> tuple[list[p.Literal], set[str]]:
        """Return the literals that do not need this aggregate, and the variables that they bind."""
        bound: set[str] = set()
        kept: list[p.Literal] = []
        moved = True
        while moved:
            moved = False
            for literal in self._body:
                if literal in kept or any(literal is own for own in (*self._replaced, *dropped)):
                    continue
                if isinstance(literal, p.Atom) and literal.relation in left_out:
                    continue
                if _can_run(literal, bound) and bound.union(newly_bound(literal, bound)).issuperset(
                    literal_variables(literal)
                ):
                    kept.append(literal)
                    bound |= newly_bound(literal, bound)
                    moved = True
        return kept, bound

    def _source(
        self, group: tuple[p.Var, ...], types: Mapping[str, Type], wanted: str | None
    ) -> tuple[str, tuple[int, ...]]:
        """Return the relation of the body's solutions, and its columns: group, local, target."""
        reduce = self._reduce
        target = reduce.target
        local = tuple(p.Var(name, types[name]) for name in reduce.local)
        if _is_of_set(reduce):
            local = tuple(variable for variable in local if variable == target)
        wanted_columns = [*group, *local]
        if isinstance(target, p.Var):
            target_place = [v.name for v in wanted_columns].index(target.name)
        else:
            target_place = len(wanted_columns)
        body = reduce.body
        if wanted is None and len(body) == 1 and isinstance(body[0], p.Atom):
            atom = body[0]
            names = [arg.name if isinstance(arg, p.Var) else None for arg in atom.args]
            plain = None not in names and len(set(names)) == len(names)
            if plain and _is_of_set(reduce) and target_place < len(wanted_columns) < len(names):
                kept = tuple(sorted(names.index(v.name) for v in wanted_columns))
                columns = tuple(kept.index(names.index(v.name)) for v in wanted_columns)
                name = self._whole.projection(atom.relation, kept)
                return name, (*columns, columns[target_place])
            if plain and target_place < len(wanted_columns):
                columns = tuple(names.index(v.name) for v in wanted_columns)
                return atom.relation, (*columns, columns[target_place])
            if plain and target is None:
                return atom.relation, tuple(names.index(v.name) for v in wanted_columns)
        args: tuple[p.Term, ...] = tuple(wanted_columns)
        if target is not None and target_place == len(wanted_columns):
            args = (*args, target)
        name = self._whole.fresh_relation(f"{self._head}@source", [a.type for a in args])
        if wanted is not None:
            body = (p.Atom(wanted, group, reduce.span), *body)
        self._whole.add_rule(name, args, body, self._text, self._span, self._source_fate(group))
        columns = tuple(range(len(wanted_columns)))
        return name, columns if target is None else (*columns, target_place)

    def _sets(
        self, group: tuple[p.Var, ...], source: str, columns: tuple[int, ...]
    ) -> tuple[str, Type]:
        """Add the relation of the sets of all groups; return its name and the type of the sets."""
        target = self._reduce.target
        assert target is not None
        type_ = set_type(target.type)
        name = self._whole.fresh_relation(
            f"{self._reduce.op}@set", [*(v.type for v in group), type_]
        )
        self._whole.aggregations[name] = Aggregation(
            name, source, "setof", columns[: len(group)], columns[-1], (), target.type, type_,
            self._text, self._span, variables=self._reduce.group,
        )  # fmt: skip
        return name, type_

    def _with_neutral(
        self,
        result: str,
        source: str,
        columns: tuple[int, ...],
        group: tuple[p.Var, ...],
        wanted: str,
        reduces: tuple[p.Reduce, ...],
    ) -> str:
        """Add a relation with neutral elements for groups without rows, and return its name."""
        span = self._reduce.span
        values = tuple(p.Var(f"%value{i}", r.result.type) for i, r in enumerate(reduces))
        row = (*group, *values)
        name = self._whole.fresh_relation(f"{joined(reduces)}@value", [v.type for v in row])
        self._whole.add_rule(name, row, (p.Atom(result, row, span),), self._text, self._span)
        arity = len(self._whole.relations[source])
        args: list[p.Term] = [p.Wildcard(t) for t in self._whole.relations[source]]
        for column, variable in zip(columns, group, strict=False):
            args[column] = variable
        assert len(args) == arity
        self._whole.add_rule(
            name,
            (*group, *map(_neutral, reduces)),
            (
                p.Atom(wanted, group, span),
                p.Atom(source, tuple(args), span, negated=True),
            ),
            self._text,
            self._span,
        )
        return name


def joined(reduces: tuple[p.Reduce, ...]) -> str:
    """Return the start of the name of a relation with the results of several aggregates."""
    return "+".join(reduce.op for reduce in reduces)


def _neutral(reduce: p.Reduce) -> p.Const:
    """Return the value of an aggregate over no rows."""
    type_ = reduce.result.type
    neutral = NEUTRAL[reduce.op]
    if type_.kind is Kind.FLOAT:
        neutral = 0.0
    elif type_.kind is Kind.DECIMAL:
        neutral = Decimal(0).scaleb(-type_.scale)
    return p.Const(neutral, type_)


def _is_of_set(reduce: p.Reduce) -> bool:
    """Return whether an aggregate depends only on the set of its values, not on their number."""
    registered = reduce.registered
    return reduce.op == "setof" or (
        registered is not None and isinstance(registered.algebra, SetFunction)
    )


def _are_among(literals: Sequence[p.Literal], others: Sequence[p.Literal]) -> bool:
    return all(any(literal is other for other in others) for literal in literals)


def _can_run(literal: p.Literal, bound: set[str]) -> bool:
    """Return whether the inputs of a literal are bound."""
    match literal:
        case p.Atom(args=args, negated=negated):
            return not negated or bound.issuperset(term_variables(args))
        case p.Compare(op, left, right):
            sides = [bound.issuperset(term_variables((side,))) for side in (left, right)]
            return all(sides) or (op is p.Comparison.EQ and any(sides))
        case p.Generate(_, args):
            return bound.issuperset(term_variables(args))
        case p.Test(args=args):
            return bound.issuperset(term_variables(args))
        case p.Reduce(group=group):
            return bound.issuperset(group)


def may_fail(reduce: p.Reduce) -> bool:
    """Return whether an aggregate may have no value: it overflows, or its function raises."""
    is_limited = reduce.op == "sum" and reduce.result.type.kind is not Kind.FLOAT
    return is_limited or reduce.registered is not None


def can_fail(literal: p.Literal) -> bool:
    """Return whether a literal computes something that can fail."""
    match literal:
        case p.Atom(args=args):
            return any(map(term_can_fail, args))
        case p.Compare(_, left, right):
            return term_can_fail(left) or term_can_fail(right)
        case p.Generate():
            return True
        case p.Test(name, args):
            return name == "match" or any(map(term_can_fail, args))
        case p.Reduce(target=target, body=body):
            target_can_fail = target is not None and term_can_fail(target)
            return may_fail(literal) or target_can_fail or any(map(can_fail, body))


def term_can_fail(term: p.Term) -> bool:
    """Return whether computing a term can fail."""
    match term:
        case p.Apply(op, args):
            return is_fallible(op) or any(map(term_can_fail, args))
        case p.MakeRecord(args):
            return any(map(term_can_fail, args))
        case _:
            return False
