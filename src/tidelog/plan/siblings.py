"""Aggregates of one rule over the same rows, by the same groups: they become one relation.

    ka(k, n, s) :- a(k, _, _), n = count : { a(k, _, _) }, s = sum x : { a(k, _, x) }.

    result(k, n, s) :  count and sum over a, by k
    ka(k, n, s)     :- result(k, n, s).

One by one they would be two relations, stored and joined again by every change of either. Bodies
are the same if only the names of their own variables differ: each assignment is a row of both. Then
each group that one has the others have as well, and it comes and goes in all of them at once.

Only counts of rows, sums and means are put together: what maintain/sums.py keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.logic import program as p
from tidelog.plan.aggregates import (
    NEUTRAL,
    AggregateLowering,
    Lowering,
    joined,
)
from tidelog.plan.failing import Failures, Family, Placed, error_rules, may_fail
from tidelog.plan.implied import without_implied
from tidelog.plan.lowered import Aggregation
from tidelog.source import Span
from tidelog.values.types import NUMBER


def without_aggregates(
    whole: Lowering,
    body: tuple[p.Literal, ...],
    head: str,
    args: Sequence[p.Term],
    text: str,
    span: Span | None,
    *,
    judged: bool,
) -> tuple[p.Literal, ...]:
    """Return the body of a rule with atoms in the places of its aggregates.

    If it is not `judged`, where these have no value is not looked at.
    """
    fused = siblings(body, args)
    met = {id(part) for family in fused for part in family}
    alone = [part for part in body if isinstance(part, p.Reduce) and id(part) not in met]
    families: list[Family] = [*fused, *((part,) for part in alone)]
    if not families:
        return body
    failures = Failures(body, families, judged=judged)
    placed: list[Placed] = []
    for i, family in enumerate(families):
        lowering = (
            SiblingsLowering(whole, body, family, head, text, span)
            if len(family) > 1
            else AggregateLowering(whole, body, family[0], head, text, span)
        )
        atom = lowering.atom(excusable=i in failures.excusable)
        placed.append(Placed(family, atom, lowering.failed))
    _add_errors(whole, failures, placed, head, text, span)
    atoms = {id(part): place.atom for place in placed for part in place.family}
    # Several parts of a family have the same atom.
    plain = {id(found := atoms.get(id(part), part)): found for part in without_implied(body)}
    return tuple(plain.values())


def _add_errors(
    whole: Lowering,
    failures: Failures,
    placed: Sequence[Placed],
    head: str,
    text: str,
    span: Span | None,
) -> None:
    """Add the rules that say which failures are errors."""
    relations: dict[int, str] = {}
    for family, terms, body in error_rules(failures, placed):
        if family not in relations:
            types = [term.type for term in terms]
            relations[family] = whole.fresh_relation(f"{head}@error", types)
            failed = placed[family].failed
            assert failed is not None
            whole.errors[relations[family]] = failed
        whole.add_rule(relations[family], terms, body, text, span)


def siblings(body: Sequence[p.Literal], head: Sequence[p.Term]) -> list[tuple[p.Reduce, ...]]:
    """Return the aggregates of a body that can be one relation, in the order of a rule's head.

    So the rule often does nothing but to copy the relation.
    """
    families: list[list[p.Reduce]] = []
    for literal in body:
        if not isinstance(literal, p.Reduce) or _as_sum(literal) is None:
            continue
        for family in families:
            if alike(family[0], literal) is not None:
                family.append(literal)
                break
        else:
            families.append([literal])
    places = {term: place for place, term in reversed(list(enumerate(head)))}
    return [
        tuple(sorted(family, key=lambda reduce: places.get(reduce.result, len(places))))
        for family in families
        if len(family) > 1
    ]


def alike(first: p.Reduce, other: p.Reduce) -> p.Reduce | None:
    """Return an aggregate with the body and the variables of another, if it is over its rows."""
    if set(first.group) != set(other.group) or len(first.local) != len(other.local):
        return None
    names = dict(zip(other.local, first.local, strict=True))
    if any(isinstance(literal, p.Reduce) for literal in first.body):
        return other if (first.body, first.local) == (other.body, other.local) else None
    if tuple(_literal(literal, names) for literal in other.body) != first.body:
        return None
    target = None if other.target is None else _term(other.target, names)
    return replace(other, target=target, body=first.body, group=first.group, local=first.local)


def _as_sum(reduce: p.Reduce) -> p.Reduce | None:
    """Return an aggregate as one that adds up rows, if it does."""
    if reduce.registered is not None:
        return None
    if reduce.op == "count" and isinstance(reduce.target, p.Var):
        # Where a row has nothing but its value, different values are different rows.
        is_whole = reduce.local == (reduce.target.name,)
        return replace(reduce, target=None) if is_whole else None
    return reduce if reduce.op in ("count", "sum", "mean", "total") else None


def _term(term: p.Term, names: Mapping[str, str]) -> p.Term:
    """Return a term with other names for some variables."""
    match term:
        case p.Var(name):
            return replace(term, name=names.get(name, name))
        case p.Apply(args=args) | p.MakeRecord(args=args):
            return replace(term, args=tuple(_term(arg, names) for arg in args))
        case _:
            return term


def _literal(literal: p.Literal, names: Mapping[str, str]) -> p.Literal:
    """Return a literal with other names for some variables."""
    match literal:
        case p.Atom(args=args) | p.Test(args=args):
            return replace(literal, args=tuple(_term(arg, names) for arg in args))
        case p.Compare(_, left, right):
            return replace(literal, left=_term(left, names), right=_term(right, names))
        case p.Generate(target, args):
            terms = tuple(_term(arg, names) for arg in args)
            return replace(literal, target=_term(target, names), args=terms)
        case p.Reduce():
            return literal


class SiblingsLowering(AggregateLowering):
    """Lowers several aggregates of a rule to one relation."""

    def __init__(
        self,
        whole: Lowering,
        body: tuple[p.Literal, ...],
        reduces: tuple[p.Reduce, ...],
        head: str,
        text: str,
        span: Span | None,
    ) -> None:
        super().__init__(whole, body, reduces[0], head, text, span)
        self._replaced = reduces
        parts = []
        for reduce in reduces:
            renamed = alike(reduces[0], reduce)
            part = None if renamed is None else _as_sum(renamed)
            assert part is not None, "aggregates of other rows"
            parts.append(part)
        self._parts = tuple(parts)

    def atom(self, *, excusable: bool) -> p.Atom:
        """Return the atom that takes the place of the aggregates.

        As for one of them (plan/aggregates.py). A mean of nothing has no value, so where one is
        among them the rule asks for no empty group.
        """
        parts, reduce = self._parts, self._reduce
        types = dict(self._all_types())
        group = tuple(p.Var(name, types[name]) for name in reduce.group)
        needs_wanted = self._needs_outer() or self._body_may_fail(part.target for part in parts)
        has_neutral = all(part.op in NEUTRAL for part in parts)
        meets_empty = has_neutral and not self._asks_only_groups_with_rows()
        wanted = self._wanted(group) if needs_wanted or meets_empty else None
        local = tuple(p.Var(name, types[name]) for name in reduce.local)
        source, places = self._shared_source((*group, *local), wanted if needs_wanted else None)
        columns = tuple(places[variable] for variable in group)
        results = [part.result for part in parts]
        result = self._whole.fresh_relation(
            joined(parts), [*(v.type for v in group), *(term.type for term in results)]
        )
        if excusable:
            flags = [NUMBER for part in parts if may_fail(part)]
            self.failed = self._whole.fresh_relation(
                f"{joined(parts)}@failed", [*self._whole.relations[result], *flags]
            )
        aggregations = tuple(
            Aggregation(
                result, source, part.op, columns,
                None if part.target is None else places[part.target], (),
                None if part.target is None else part.target.type, part.result.type,
                self._text, self._span, self.failed, None, reduce.group,
            )
            for part in parts
        )  # fmt: skip
        self._whole.aggregations[result] = replace(aggregations[0], parts=aggregations)
        if meets_empty:
            assert wanted is not None
            result = self._with_neutral(result, source, columns, group, wanted, parts)
        return p.Atom(result, (*group, *results), reduce.span)

    def _shared_source(
        self, variables: tuple[p.Var, ...], wanted: str | None
    ) -> tuple[str, dict[p.Term, int]]:
        """Return the relation of the body's assignments, and where it has what is aggregated."""
        body = self._reduce.body
        targets = [part.target for part in self._parts if part.target is not None]
        args = tuple(dict.fromkeys((*variables, *targets)))
        if wanted is None and len(body) == 1 and isinstance(body[0], p.Atom):
            columns = body[0].args
            if len(columns) == len(args) and set(columns) == set(args):
                return body[0].relation, {term: place for place, term in enumerate(columns)}
        name = self._whole.fresh_relation(f"{self._head}@source", [arg.type for arg in args])
        if wanted is not None:
            group = variables[: len(self._reduce.group)]
            body = (p.Atom(wanted, group, self._reduce.span), *body)
        self._whole.add_rule(name, args, body, self._text, self._span)
        return name, {term: place for place, term in enumerate(args)}
