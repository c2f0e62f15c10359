"""An aggregate becomes relations: its source, its result, and the groups that are asked for.

The picture is in plan/lower.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Any, Protocol

from tidelog.logic import program as p
from tidelog.logic.functors import FALLIBLE
from tidelog.logic.safety import literal_variables, newly_bound, term_variables
from tidelog.plan.implied import says_it_has_rows
from tidelog.plan.lowered import Aggregation
from tidelog.source import Span
from tidelog.values.algebra import SetFunction
from tidelog.values.types import Kind, Type, set_type

NEUTRAL: dict[str, Any] = {"count": 0, "sum": 0, "total": 0.0, "setof": frozenset(), "concat": ""}


class Lowering(Protocol):
    """What is needed of the lowering of the whole program."""

    relations: dict[str, tuple[Type, ...]]
    aggregations: dict[str, Aggregation]
    errors: dict[str, str]
    """For each relation of errors that of the groups that have failed."""

    def fresh_relation(self, hint: str, types: Sequence[Type]) -> str:
        """Make a relation."""

    def add_rule(
        self,
        head: str,
        args: tuple[p.Term, ...],
        body: tuple[p.Literal, ...],
        text: str,
        span: Span | None,
        *,
        judged: bool = True,
    ) -> None:
        """Lower one rule; unless it is `judged` nothing in it that has no value is an error."""

    def projection(self, relation: str, columns: tuple[int, ...]) -> str:
        """Return the relation that holds some columns of another."""

    def stratum_of(self, relation: str) -> frozenset[str]:
        """Return the relations that depend on each other with this one, if it is recursive."""


def types_of(terms: Iterable[p.Term]) -> Iterable[tuple[str, Type]]:
    """Yield the variables of terms, with their types."""
    for term in terms:
        match term:
            case p.Var(name, type_):
                yield name, type_
            case p.MakeRecord(args) | p.Apply(_, args):
                yield from types_of(args)


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
        """The literals of the rule that the atom takes the place of."""
        self._head = head
        self._text = text
        self._span = span
        self.failed: str | None = None
        """The relation of the groups that have no value, if that can be and is no error at once."""

    def atom(self, *, excusable: bool) -> p.Atom:
        """Return the atom that takes the place of the aggregate.

        If its failures are `excusable` there is a relation of the groups in which it has failed.
        """
        reduce = self._reduce
        types = dict(self._all_types())
        group = tuple(p.Var(name, types[name]) for name in reduce.group)
        # A failure counts only in groups that are asked for: what can fail is computed only there.
        needs_wanted = self._needs_outer() or self._body_may_fail((reduce.target,))
        algebra = None if reduce.registered is None else reduce.registered.algebra
        meets_empty = reduce.op in NEUTRAL and not self._asks_only_groups_with_rows()
        wanted = self._wanted(group) if needs_wanted or meets_empty else None
        source, columns = self._source(group, types, wanted if needs_wanted else None)
        own = () if _is_of_set(reduce) else columns[len(group) : len(group) + len(reduce.local)]
        result_type = reduce.result.type
        result = self._whole.fresh_relation(f"{reduce.op}", [*(v.type for v in group), result_type])
        target = None if reduce.target is None else columns[-1]
        target_type = None if reduce.target is None else reduce.target.type
        if isinstance(algebra, SetFunction):
            # The set is kept as any other is, and the function is called on what it becomes.
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
        """Count the different values of a group: the rows of a relation of (group, value).

        Its counts tell how many rows of the source have a value, so it goes with the last of them.
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
        return any(says_it_has_rows(literal, self._reduce) for literal in self._body)

    def _all_types(self) -> Iterable[tuple[str, Type]]:
        def walk(literals: tuple[p.Literal, ...]) -> Iterable[tuple[str, Type]]:
            for literal in literals:
                match literal:
                    case p.Atom(args=args) | p.Test(args=args):
                        yield from types_of(args)
                    case p.Compare(_, left, right):
                        yield from types_of((left, right))
                    case p.Generate(target, args):
                        yield from types_of((target, *args))
                    case p.Reduce(result, _, target, body):
                        yield from types_of((result,))
                        yield from walk(body)

        yield from walk(self._body)
        # The aggregate's own variables last: they hide outer ones of the same name.
        yield from walk(self._reduce.body)
        if self._reduce.target is not None:
            yield from types_of((self._reduce.target,))

    def _body_may_fail(self, targets: Iterable[p.Term | None]) -> bool:
        """Return whether computing the rows to aggregate can fail."""
        return any(target is not None and _may_fail(target) for target in targets) or any(
            map(_fails, self._reduce.body)
        )

    def _needs_outer(self) -> bool:
        """Return whether the body cannot find the values of the shared variables by itself."""
        bound: set[str] = set()
        size = -1
        while size != len(bound):
            size = len(bound)
            for literal in self._reduce.body:
                bound |= newly_bound(literal, bound)
        return not bound.issuperset(self._reduce.group)

    def _wanted(self, group: tuple[p.Var, ...]) -> str:
        """Return the relation of the groups that the rest of the rule asks for."""
        needed = {v.name for v in group}
        own = self._whole.stratum_of(self._head)
        # More groups than asked for do no harm. So first without what depends on the result, then
        # without what may fail, and with other aggregates only if a group variable is one's result.
        attempts = ((False, False), (True, False), (False, True), (True, True))
        for left_out, (fallible, aggregates) in product((own, frozenset[str]()), attempts):
            kept, bound = self._runnable(left_out, fallible, aggregates)
            if bound.issuperset(needed):
                break
        match kept:
            case [p.Atom(relation, args, negated=False)] if args == group:
                return relation  # it is there already
        name = self._whole.fresh_relation(f"{self._head}@wanted", [v.type for v in group])
        # The rule that asks has the same aggregates, and says whether their failures are errors.
        self._whole.add_rule(name, group, tuple(kept), self._text, self._span, judged=False)
        return name

    def _runnable(
        self, left_out: frozenset[str], fallible: bool, aggregates: bool
    ) -> tuple[list[p.Literal], set[str]]:
        """Return the literals that can do without this aggregate, and what they bind."""
        bound: set[str] = set()
        kept: list[p.Literal] = []
        moved = True
        while moved:
            moved = False
            for literal in self._body:
                if literal in kept or any(literal is own for own in self._replaced):
                    continue
                if isinstance(literal, p.Reduce) and not (aggregates and self._leads_to(literal)):
                    continue
                if isinstance(literal, p.Atom) and literal.relation in left_out:
                    continue
                if _can_run(literal, bound, fallible):
                    kept.append(literal)
                    bound |= newly_bound(literal, bound)
                    moved = True
        return kept, bound

    def _leads_to(self, other: p.Reduce) -> bool:
        """Return whether a group of this aggregate may depend on the result of another."""
        everything = {name for literal in self._body for name in literal_variables(literal)}
        needed: set[str] = set(self._reduce.group)
        size = -1
        while size != len(needed):
            size = len(needed)
            for literal in self._body:
                if not needed.isdisjoint(newly_bound(literal, everything)):
                    needed.update(literal_variables(literal))
        return not needed.isdisjoint(term_variables((other.result,)))

    def _source(
        self, group: tuple[p.Var, ...], types: Mapping[str, Type], wanted: str | None
    ) -> tuple[str, tuple[int, ...]]:
        """Return the relation of the body's assignments, and its columns: group, local, target."""
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
        self._whole.add_rule(name, args, body, self._text, self._span)
        columns = tuple(range(len(wanted_columns)))
        return name, columns if target is None else (*columns, target_place)

    def _sets(
        self, group: tuple[p.Var, ...], source: str, columns: tuple[int, ...]
    ) -> tuple[str, Type]:
        """Return the relation of the sets of all groups, and the type of the sets."""
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
        """Return the relation that also has the groups without rows, with the neutral elements."""
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
    """Return what a relation with the results of aggregates is called."""
    return "+".join(reduce.op for reduce in reduces)


def _neutral(reduce: p.Reduce) -> p.Const:
    """Return what an aggregate of nothing is."""
    type_ = reduce.result.type
    neutral = NEUTRAL[reduce.op]
    if type_.kind is Kind.FLOAT:
        neutral = 0.0
    elif type_.kind is Kind.DECIMAL:
        neutral = Decimal(0).scaleb(-type_.scale)
    return p.Const(neutral, type_)


def _is_of_set(reduce: p.Reduce) -> bool:
    """Return whether only the set of its values matters, and not how often each is found."""
    registered = reduce.registered
    return reduce.op == "setof" or (
        registered is not None and isinstance(registered.algebra, SetFunction)
    )


def _can_run(literal: p.Literal, bound: set[str], fallible: bool) -> bool:
    """Return whether a literal has its inputs, and cannot fail unless that is allowed."""
    match literal:
        case p.Atom(args=args, negated=negated):
            return not negated or bound.issuperset(term_variables(args))
        case p.Compare(op, left, right):
            if not fallible and any(_may_fail(side) for side in (left, right)):
                return False
            sides = [bound.issuperset(term_variables((side,))) for side in (left, right)]
            return all(sides) or (op is p.Comparison.EQ and any(sides))
        case p.Generate(_, args):
            return bound.issuperset(term_variables(args))
        case p.Test(name, args):
            return (fallible or name != "match") and bound.issuperset(term_variables(args))
        case p.Reduce(group=group):
            return bound.issuperset(group)


def _fails(literal: p.Literal) -> bool:
    """Return whether a literal computes something that can fail."""
    match literal:
        case p.Atom(args=args):
            return any(map(_may_fail, args))
        case p.Compare(_, left, right):
            return _may_fail(left) or _may_fail(right)
        case p.Generate():
            return True
        case p.Test(name, args):
            return name == "match" or any(map(_may_fail, args))
        case p.Reduce():
            return True


def _may_fail(term: p.Term) -> bool:
    match term:
        case p.Apply(op, args):
            return op in FALLIBLE or any(map(_may_fail, args))
        case p.MakeRecord(args):
            return any(map(_may_fail, args))
        case _:
            return False
