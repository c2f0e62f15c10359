"""Aggregates over an inequality join of two atoms, without its pairs.

    p(k, n) :- c(k), n = count : { a(k, x), b(k, y), x < y }.      pairs by a group both atoms have
    p(k, x, n) :- a(k, x), n = count : { b(k, y), y < x }.         partners of each row
    p(k, x, m) :- a(k, x), m = max y : { b(k, y), y < x }.         the nearest partner: as-of joins

Lowering makes a relation of the pairs, `source`. If its rule joins two atoms by equal keys and by
bounds on one column, the partners of a row are a range (plan/ranges.py). Then the aggregate reads
that, and `source` stays empty. `count` and `sum` read sums of ranges (maintain/range_sums.py),
`min` and `max` of the bounded column its first or last row (maintain/nearest.py).

Conditions on one atom alone, constants, and columns that nobody reads become a relation of their
own first, which has at most as many rows as the atom.

Other extremes of inequality joins, such as

    p(k, m) :- c(k), m = max y : { a(k, x), b(k, y), x < y }.

need no pairs either, but only the values: the rows of `b` that have a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from types import MappingProxyType

from tidelog.logic.program import Comparison
from tidelog.plan.body import (
    Assign,
    AtomUse,
    Check,
    Condition,
    FunctorCall,
    LoweredRule,
    OnFailure,
    is_fallible,
)
from tidelog.plan.bounds import MIRRORED
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import Aggregation, Layer, Lowered
from tidelog.plan.ranges import Neighbours, RangedJoin, RangeRead
from tidelog.plan.theta.compared import ComparedSlots, compared_slots, range_read
from tidelog.plan.theta.query import theta_query
from tidelog.plan.theta.unfolding import reads
from tidelog.values.types import Kind, Type

_SUMMED = (Kind.NUMBER, Kind.UNSIGNED, Kind.DECIMAL)
_UPPER = (Comparison.LT, Comparison.LE)
_NEGATED = {
    Comparison.LT: Comparison.GE,
    Comparison.LE: Comparison.GT,
    Comparison.GT: Comparison.LE,
    Comparison.GE: Comparison.LT,
}


def with_ranges(lowered: Lowered) -> Lowered:
    """Return the program with aggregates that read ranges in place of pairs, where they can."""
    relations: dict[str, tuple[Type, ...]] = dict(lowered.relations)
    ids = count(1 + max((r.id for la in lowered.every_layer() for r in la.rules), default=0))

    def new_relation(hint: str, types: Sequence[Type]) -> str:
        name = f"{hint.partition('@')[0]}@range{len(relations)}"
        relations[name] = tuple(types)
        return name

    layers = list(lowered.layers)
    for layer in lowered.layers:
        if layer.aggregation is not None and layer.virtual is None:
            found = _Ranged(layers, layer.aggregation, relations, new_relation, ids).layers()
            if found is None:
                found = _with_fewer_columns(layers, layer.aggregation, relations)
            layers = layers if found is None else found
    kept = {name: relations[name] for layer in layers for name in layer.relations}
    return Lowered(MappingProxyType(kept), tuple(layers), lowered.facts)


class _Ranged:
    """Finds out whether one aggregate can read ranges."""

    def __init__(
        self,
        layers: Sequence[Layer],
        aggregation: Aggregation,
        relations: dict[str, tuple[Type, ...]],
        new_relation: Callable[[str, Sequence[Type]], str],
        ids: Iterator[int],
    ) -> None:
        self._layers, self._aggregation, self._relations = layers, aggregation, relations
        self._new_relation, self._ids = new_relation, ids
        self._made: list[Layer] = []

    def layers(self) -> list[Layer] | None:
        """Return all layers, with those of this aggregate replaced; None if they have to stay."""
        aggregation, source = self._aggregation, self._aggregation.source
        own = next((la for la in self._layers if source in la.relations), None)
        if own is None or not _is_plain(own, source):
            return None
        (rule,) = own.rules
        projections = self._projections(source)
        if projections is None:
            return None
        join = self._nearest(rule) if aggregation.op in ("min", "max") else self._summed(rule)
        if join is None or (join.neighbours is not None and projections):
            return None
        found: list[Layer] = []
        for layer in self._layers:
            if layer is own:
                found += [*self._made, Layer(layer.relations, (), False)]
            elif layer.aggregation is aggregation:
                ranged = replace(aggregation, ranged=join)
                found.append(replace(layer, aggregation=ranged, rules=join.rules))
                found += map(self._projected_result, projections)
            elif not any(layer is projection for projection in projections):
                found.append(layer)
        return found

    # --- who reads the pairs ---

    def _projections(self, source: str) -> list[Layer] | None:
        """Return the layers that project the pairs to their groups; None if others read them.

        The neutral elements of groups without rows need them.
        """
        found = []
        for layer in self._layers:
            aggregation = layer.aggregation
            if aggregation is not None and aggregation is not self._aggregation:
                if source in (aggregation.source, *reads(layer)):
                    return None
            elif layer.recompute is not None and source in layer.recompute.reads:
                return None
            elif source in reads(layer):
                if not self._is_projection(layer):
                    return None
                found.append(layer)
        return found

    def _is_projection(self, layer: Layer) -> bool:
        if len(layer.rules) != 1 or layer.recursive or layer.judges or layer.virtual is not None:
            return False
        (rule,) = layer.rules
        if len(rule.atoms) != 1 or rule.atoms[0].negated or rule.conditions:
            return False
        args = rule.atoms[0].args
        group = {args[column] for column in self._aggregation.group}
        # A projection to no columns has a 0 in its head.
        head = {slot for slot in rule.head.args if slot not in rule.constants}
        others = {arg for arg in args if arg is not None} - group
        return not others and head == group and None not in group

    def _projected_result(self, layer: Layer) -> Layer:
        """Return the layer of a projection that reads the result: it has the same groups.

        A group without a value is among the failed ones.
        """
        (rule,) = layer.rules
        group = tuple(rule.atoms[0].args[column] for column in self._aggregation.group)
        names = [self._aggregation.result]
        if self._aggregation.failed is not None:
            names.append(self._aggregation.failed)
        rules: list[LoweredRule] = []
        for name in names:
            width = max(1, len(self._relations[name]))
            args = (*group, *(None,) * (width - len(group)))
            number = rule.id if not rules else next(self._ids)
            rules.append(replace(rule, id=number, atoms=(AtomUse(name, args),)))
        return replace(layer, rules=tuple(rules))

    # --- the kinds of aggregates ---

    def _summed(self, rule: LoweredRule) -> RangedJoin | None:
        """Return the join for counts, sums and means."""
        if not all(map(_is_summed, self._aggregation.each)):
            return None
        made = self._two_atoms(rule, whole_rows=True)
        if made is None:
            return None
        rule, compared = made
        group = {rule.head.args[column] for column in self._aggregation.group}
        ranges = tuple(
            range_read(rule.atoms, compared, place, 1 - place)
            if group <= rule.atoms[place].slots
            else None
            for place in (0, 1)
        )
        is_whole = all(slot in rule.head.args for atom in rule.atoms for slot in atom.slots)
        if not any(ranges) or not is_whole:
            return None
        return RangedJoin(rule, (ranges[0], ranges[1]))

    def _nearest(self, rule: LoweredRule) -> RangedJoin | None:
        """Return the join for `min` or `max` of the column that is bounded."""
        aggregation = self._aggregation
        type_, target = aggregation.target_type, aggregation.target
        if aggregation.algebra is not None or type_ is None or target is None or aggregation.parts:
            return None
        group = tuple(rule.head.args[column] for column in aggregation.group)
        place = next((i for i, atom in enumerate(rule.atoms) if atom.args == group), None)
        if place is None or len(rule.atoms) != 2 or type_.kind in UNORDERED or not group:
            return None
        rule = replace(rule, atoms=(rule.atoms[place], rule.atoms[1 - place]))
        made = self._two_atoms(rule, whole_rows=False)
        if made is None:
            return None
        rule, compared = made
        if rule.atoms[0].args != group:  # a condition on the group alone
            return None
        read = range_read(rule.atoms, compared, 0, 1)
        if read is None or rule.atoms[1].args[read.column] != rule.head.args[target]:
            return None
        if any(comparison.right.offset for comparison in compared):
            return None
        neighbours = self._neighbours(rule, compared, read)
        return RangedJoin(rule, (read, None), neighbours)

    def _neighbours(
        self, rule: LoweredRule, compared: Sequence[ComparedSlots], read: RangeRead
    ) -> Neighbours:
        guard, partner = rule.atoms
        target = partner.args[read.column]
        keys = tuple(partner.args[column] for _, column in read.keys)
        assert target is not None
        type_, following = rule.types[target], "%next"
        key_types = [rule.types[key] for key in keys if key is not None]
        moved = self._new_relation(partner.relation, [*key_types, type_, type_])
        last = self._new_relation(partner.relation, [*key_types, type_])
        touched = self._new_relation(guard.relation, [rule.types[s] for s in guard.args if s])
        self._made += [Layer((name,), (), False) for name in (moved, last, touched)]
        head = AtomUse(touched, guard.args)
        types = MappingProxyType({**rule.types, following: type_})
        made = replace(rule, head=head, text=f"a part of {rule.text}")

        def finding(atom: AtomUse, *more: Condition) -> LoweredRule:
            return replace(
                made,
                id=next(self._ids),
                atoms=(atom, guard),
                conditions=(*rule.conditions, *more),
                types=types,
            )

        # The next value must be beyond a bound, or the changed one does not matter.
        is_max = self._aggregation.op == "max"
        beyond = []
        for comparison in compared:
            check = comparison.check
            is_left = check.left == target
            op = check.op if is_left else MIRRORED[check.op]
            other = check.right if is_left else check.left
            if (op in _UPPER) == is_max:
                beyond.append(Check(_NEGATED[op], following, other, check.type))
        pair = AtomUse(moved, (*keys, target, following))
        return Neighbours(
            moved,
            last,
            tuple(finding(pair, check) for check in beyond),
            finding(AtomUse(last, (*keys, target))),
        )

    # --- the shape of the join ---

    def _two_atoms(
        self, rule: LoweredRule, *, whole_rows: bool
    ) -> tuple[LoweredRule, list[ComparedSlots]] | None:
        """Return a rule of two atoms without filters, and the comparisons between the atoms.

        With `whole_rows` all columns of an atom are variables.
        """
        if len(rule.atoms) != 2 or any(atom.negated for atom in rule.atoms):
            return None
        constants = rule.constants
        own = [atom.slots.difference(constants) for atom in rule.atoms]
        local: tuple[list[Condition], list[Condition]] = ([], [])
        compared: list[ComparedSlots] = []
        kept: list[Condition] = []
        assigned = {c.into: c for c in rule.conditions if isinstance(c, Assign)}
        if len(assigned) < sum(isinstance(c, Assign) for c in rule.conditions):
            return None
        if any(into in own[0] | own[1] | {*rule.head.args} for into in assigned):
            return None
        for condition in rule.conditions:
            if isinstance(condition, Assign):
                if not isinstance(condition.value, FunctorCall):
                    return None
                continue
            if not isinstance(condition, Check):
                return None
            needed = list(_needed(condition, assigned))
            inputs = condition.inputs.union(*(c.inputs for c in needed))
            read = inputs - {*assigned, *constants}
            place = next((i for i in (0, 1) if read <= own[i]), None)
            if place is not None:
                if any(map(is_fallible, needed)):
                    return None
                local[place].extend([*needed, condition])
                continue
            found = compared_slots(rule, condition, assigned, own)
            if found is None or rule.types[found.left.slot].kind in UNORDERED:
                return None
            compared.append(found)
            kept.extend([*needed, condition])
        if not compared:
            return None
        atoms = tuple(
            self._filtered(rule, atom, list(dict.fromkeys(filters)), whole_rows)
            for atom, filters in zip(rule.atoms, local, strict=True)
        )
        used = {s for c in kept for s in c.inputs}
        made = replace(
            rule,
            atoms=atoms,
            conditions=tuple(dict.fromkeys(kept)),
            constants=MappingProxyType({s: c for s, c in constants.items() if s in used}),
        )
        return made, compared

    def _filtered(
        self, rule: LoweredRule, atom: AtomUse, filters: Sequence[Condition], whole_rows: bool
    ) -> AtomUse:
        """Return an atom without constants and repeated slots, with the rows that filters leave."""
        slots = tuple(dict.fromkeys(s for s in atom.args if s is not None))
        variables = tuple(slot for slot in slots if slot not in rule.constants)
        is_plain = variables == tuple(arg for arg in atom.args if arg is not None)
        if not filters and is_plain and not (whole_rows and None in atom.args):
            return atom
        name = self._new_relation(atom.relation, [rule.types[slot] for slot in variables])
        head = AtomUse(name, variables)
        used = {*slots, *(s for c in filters for s in c.inputs)}
        made = replace(
            rule,
            id=next(self._ids),
            head=head,
            atoms=(atom,),
            conditions=tuple(filters),
            constants=MappingProxyType({s: c for s, c in rule.constants.items() if s in used}),
            text=f"a part of {rule.text}",
        )
        self._made.append(Layer((name,), (made,), False))
        return head


def _with_fewer_columns(
    layers: Sequence[Layer], aggregation: Aggregation, relations: dict[str, tuple[Type, ...]]
) -> list[Layer] | None:
    """Return layers in which the source of a `min` or `max` has only the columns that it needs.

    Pairs with the same group and value are then one row, and often a projection that a semi-join
    maintains (choice.py). Returns None if the source has no other columns, or other readers.
    """
    source, target = aggregation.source, aggregation.target
    own = next((la for la in layers if source in la.relations), None)
    if own is None or target is None or not _is_plain(own, source):
        return None
    (rule,) = own.rules
    query = theta_query(rule)
    if aggregation.op not in ("min", "max") or query is None or not query.joins_by_inequality:
        return None
    columns = tuple(dict.fromkeys((*aggregation.group, target)))
    others = [la for la in layers if la.aggregation is not aggregation]
    if len(columns) == len(rule.head.args) or any(
        source in reads(la) or (la.aggregation is not None and la.aggregation.source == source)
        for la in others
    ):
        return None
    relations[source] = tuple(relations[source][column] for column in columns)
    head = AtomUse(source, tuple(rule.head.args[column] for column in columns))
    fewer = replace(
        aggregation,
        group=tuple(map(columns.index, aggregation.group)),
        target=columns.index(target),
        order=(columns.index(target),),
    )
    return [
        replace(la, rules=(replace(rule, head=head),)) if la is own
        else replace(la, aggregation=fewer) if la.aggregation is aggregation
        else la
        for la in layers
    ]  # fmt: skip


def _is_summed(part: Aggregation) -> bool:
    """Return whether an aggregate is a count of rows, or comes from a sum of whole numbers."""
    if part.target is None or part.target_type is None:
        return part.op == "count" and part.algebra is None
    return part.op in ("sum", "mean", "total") and part.target_type.kind in _SUMMED


def _is_plain(layer: Layer, source: str) -> bool:
    """Return whether a layer derives internal rows by one rule, and only where nothing fails."""
    if "@" not in source or len(layer.rules) != 1 or layer.recursive or layer.judges:
        return False
    if layer.aggregation is not None or layer.strategy is not None or layer.virtual is not None:
        return False
    (rule,) = layer.rules
    return rule.on_failure is OnFailure.RAISE


def _needed(condition: Condition, assigned: dict[str, Assign]) -> Iterator[Assign]:
    """Yield the computations that a condition needs, before those that read them."""
    for slot in sorted(condition.inputs):
        if slot in assigned:
            yield from _needed(assigned[slot], assigned)
            yield assigned[slot]
