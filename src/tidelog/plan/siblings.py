"""Siblings: aggregates of one rule over the same rows and groups become one relation.

    ka(k, n, s) :- a(k, _, _), n = count : { a(k, _, _) }, s = sum x : { a(k, _, x) }.

    result(k, n, s) :  count and sum over a, by k
    ka(k, n, s)     :- result(k, n, s).

Lowered separately they would be two relations, stored twice and joined after every change of
either. Two bodies have the same rows if they differ only in the names of their own variables. Then
both aggregates have the same groups, which are inserted and deleted at the same time.

Only counts of rows, sums and means are combined: those that maintain/sums.py maintains. And only if
what is summed cannot fail, or nobody needs the others then: in

    p(k) :- a(k, _, _), n = count : { a(k, _, _) }, s = sum x / y : { a(k, x, y) }, n < 2.

the count must have its value even where the sum has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.logic import program as p
from tidelog.plan.aggregates import (
    NEUTRAL,
    AggregateLowering,
    Fate,
    Lowering,
    joined,
    may_fail,
    term_can_fail,
)
from tidelog.plan.body import OnFailure
from tidelog.plan.excuses import Family, excuses, matters_without
from tidelog.plan.failure_conditions import Placed
from tidelog.plan.failure_rules import Judgement
from tidelog.plan.lowered import Aggregation
from tidelog.plan.redundant import without_redundant_atoms
from tidelog.source import Span
from tidelog.values.types import NUMBER


def without_aggregates(
    whole: Lowering,
    body: tuple[p.Literal, ...],
    head: str,
    args: Sequence[p.Term],
    text: str,
    span: Span | None,
    fate: Fate,
) -> tuple[p.Literal, ...]:
    """Return the body of a rule with its aggregates replaced by atoms.

    `fate` is what becomes of failures.
    """
    fused = siblings(body, args)
    met = {id(part) for family in fused for part in family}
    alone = [part for part in body if isinstance(part, p.Reduce) and id(part) not in met]
    families: list[Family] = [*fused, *((part,) for part in alone)]
    if not families:
        return body
    placed: list[Placed] = []
    for family in families:
        lowering = (
            SiblingsLowering(whole, body, family, head, text, span)
            if len(family) > 1
            else AggregateLowering(whole, body, family[0], head, text, span)
        )
        raises = fate is OnFailure.RAISE
        atom = lowering.atom(
            excusable=any(
                may_fail(part) and (not raises or bool(excuses(body, family, (part,))))
                for part in family
            ),
            excuses=excuses(body, family, family) if raises else None,
        )
        placed.append(Placed(family, atom, lowering.failed, lowering.spoilt))
    Judgement(whole, body, placed, head, text, span, fate).add()
    replaced = {id(part): place for place in placed for part in place.family}
    # The first member of a family is replaced, the others are left out.
    firsts = {id(place.family[0]): place for place in placed}
    plain: list[p.Literal] = []
    for literal in without_redundant_atoms(body):
        if id(literal) not in replaced:
            plain.append(literal)
        elif id(literal) in firsts:
            plain += firsts[id(literal)].literals
    return tuple(plain)


def siblings(body: Sequence[p.Literal], head: Sequence[p.Term]) -> list[tuple[p.Reduce, ...]]:
    """Return the families of aggregates in a body that can be one relation.

    Their members are in the order of the rule's head, so that the rule often only copies the
    relation.
    """
    families: list[list[p.Reduce]] = []
    for literal in body:
        if not isinstance(literal, p.Reduce) or _as_sum(literal) is None:
            continue
        for family in families:
            if all(_can_be_combined(part, literal, body) for part in family):
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


def _can_be_combined(one: p.Reduce, other: p.Reduce, body: Sequence[p.Literal]) -> bool:
    """Return whether two aggregates can be one relation."""
    renamed = alike(one, other)
    if renamed is None:
        return False
    return renamed.target == one.target or not any(
        mine.target is not None
        and term_can_fail(mine.target)
        and matters_without(others, mine, body)
        for mine, others in ((one, other), (other, one))
    )


def alike(first: p.Reduce, other: p.Reduce) -> p.Reduce | None:
    """Return `other` with the body and the variables of `first` if both have the same rows."""
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
    """Return an aggregate in the form that maintain/sums.py maintains, or None."""
    if reduce.registered is not None:
        return None
    if reduce.op == "count" and isinstance(reduce.target, p.Var):
        # If a row consists of its value only, distinct values are distinct rows.
        is_whole = reduce.local == (reduce.target.name,)
        return replace(reduce, target=None) if is_whole else None
    return reduce if reduce.op in ("count", "sum", "mean", "total") else None


def _term(term: p.Term, names: Mapping[str, str]) -> p.Term:
    """Return a term with some variables renamed."""
    match term:
        case p.Var(name):
            return replace(term, name=names.get(name, name))
        case p.Apply(args=args) | p.MakeRecord(args=args):
            return replace(term, args=tuple(_term(arg, names) for arg in args))
        case _:
            return term


def _literal(literal: p.Literal, names: Mapping[str, str]) -> p.Literal:
    """Return a literal with some variables renamed."""
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
    """Lowers several aggregates of a rule, as one relation."""

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
            assert part is not None, "the aggregates are not siblings"
            parts.append(part)
        self._parts = tuple(parts)

    def atom(self, *, excusable: bool, excuses: Sequence[p.Literal] | None) -> p.Atom:
        """Add the relations of the aggregates, and return the atom that replaces them.

        The mean of no rows has no value, so that a rule with a mean reads no empty group.
        """
        parts, reduce = self._parts, self._reduce
        types = dict(self._all_types())
        group = tuple(p.Var(name, types[name]) for name in reduce.group)
        rows_may_fail = self._body_may_fail(part.target for part in parts)
        needs_wanted = self._needs_outer() or rows_may_fail
        has_neutral = all(part.op in NEUTRAL for part in parts)
        meets_empty = has_neutral and not self._asks_only_groups_with_rows()
        wanted = None
        if needs_wanted or meets_empty:
            wanted, kept = self._wanted(group, sourced=needs_wanted)
            if rows_may_fail:
                self._note_spoilt(group, kept, excuses)
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
        """Return the relation of the body's solutions, and the columns of variables and targets."""
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
        fate = self._source_fate(variables[: len(self._reduce.group)])
        self._whole.add_rule(name, args, body, self._text, self._span, fate)
        return name, {term: place for place, term in enumerate(args)}
