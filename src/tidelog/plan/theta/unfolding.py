"""Rules that read an inequality join read what it joins instead, so that it need not be stored.

    tried(a, t, u)    :- small(a, t), small(a, u), t < u.
    alert(a, v)       :- large(a, v), tried(a, t, u), u < v.

becomes

    alert(a, v)       :- large(a, v), small(a, t), small(a, u), t < u, u < v.
    alert(a, v)       :- large(a, v), tried@given(a, t, u), u < v.

The second rule is for given rows: transactions may insert rows into any relation. `tried@given` has
those of `tried`, and is usually empty.

A relation is unfolded if a join tree can maintain it, and if every rule that reads it can do
without its rows: it reads them as a positive atom, and without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tidelog.plan.body import Assign, AtomUse, Check, Condition, Filter, FunctorCall, LoweredRule
from tidelog.plan.lowered import Aggregation, Layer, given_of

_MOST_ATOMS = 6
_MOST_RULES = 8
_SUMS = ("sum", "mean", "total")


def can_be_given(name: str) -> bool:
    """Return whether transactions can insert rows into a relation: lowering has not made it."""
    return "@" not in name


def is_sum(aggregation: Aggregation) -> bool:
    """Return whether an aggregate reads nothing but changes (maintain/sums.py)."""
    return all(part.target is None or part.op in _SUMS for part in aggregation.each)


def reads(layer: Layer) -> set[str]:
    """Return the relations that the rules of a layer read."""
    return {atom.relation for rule in layer.rules for atom in rule.atoms}


def can_take_its_place(layers: Sequence[Layer], name: str, rules: Sequence[LoweredRule]) -> bool:
    """Return whether every rule that reads a relation can read the bodies of its rules instead."""
    longest = max(len(rule.atoms) for rule in rules)
    for layer in layers:
        if layer.recompute is not None and name in layer.recompute.reads:
            return False
        aggregation = layer.aggregation
        if aggregation is not None and aggregation.source == name and not is_sum(aggregation):
            return False
        if aggregation is not None and name in reads(layer):
            return False  # it reads ranges of rows
        for reader in layer.rules:
            atoms = [atom for atom in reader.atoms if atom.relation == name]
            if not atoms:
                continue
            size = len(reader.atoms) + len(atoms) * (longest - 1)
            if layer.recursive or layer.judges or layer.errors_of is not None:
                return False
            if any(atom.negated for atom in atoms) or size > _MOST_ATOMS:
                return False
            if len(layer.rules) * (1 + len(rules)) ** len(atoms) > _MOST_RULES:
                return False
    return True


def unfolded(layer: Layer, name: str, own: Sequence[LoweredRule], ids: Iterator[int]) -> Layer:
    """Return a layer whose rules read the bodies of a relation's own rules in its place."""
    if not any(atom.relation == name for reader in layer.rules for atom in reader.atoms):
        return layer
    rules: list[LoweredRule] = []
    for reader in layer.rules:
        first, *others = _expanded(reader, name, own)
        rules += [first, *(replace(other, id=next(ids)) for other in others)]
    return replace(layer, rules=tuple(rules))


def _expanded(reader: LoweredRule, name: str, own: Sequence[LoweredRule]) -> Iterator[LoweredRule]:
    """Yield the rules that a rule becomes: each read is a join, or a read of given rows."""
    place = next((i for i, atom in enumerate(reader.atoms) if atom.relation == name), None)
    if place is None:
        yield reader
        return
    versions = [_joined(reader, place, rule) for rule in own]
    if can_be_given(name):
        given = AtomUse(given_of(name), reader.atoms[place].args)
        versions.append(_with_atoms(reader, place, (given,)))
    for version in versions:
        yield from _expanded(version, name, own)


def _with_atoms(reader: LoweredRule, place: int, atoms: tuple[AtomUse, ...]) -> LoweredRule:
    return replace(reader, atoms=(*reader.atoms[:place], *atoms, *reader.atoms[place + 1 :]))


def _joined(reader: LoweredRule, place: int, rule: LoweredRule) -> LoweredRule:
    """Return a rule in which the body of another one replaces one of its atoms."""
    atom = reader.atoms[place]
    renaming = _Renaming(reader, rule)
    equal: list[Condition] = []
    bound = {slot for own in rule.atoms for slot in own.slots} - set(rule.constants)
    for slot, wanted in zip(rule.head.args, atom.args, strict=True):
        if slot is None or wanted is None:
            continue
        if slot in bound and slot not in renaming.names:
            renaming.names[slot] = wanted
        else:  # a constant, a computed value, or a slot that occurs twice
            equal.append(Assign(wanted, renaming.of(slot)))
    atoms = tuple(
        AtomUse(own.relation, tuple(None if a is None else renaming.of(a) for a in own.args))
        for own in rule.atoms
    )
    made = _with_atoms(reader, place, atoms)
    return replace(
        made,
        conditions=(*map(renaming.condition, rule.conditions), *equal, *reader.conditions),
        constants=MappingProxyType(
            {**reader.constants, **{renaming.of(s): c for s, c in rule.constants.items()}}
        ),
        types=MappingProxyType(
            {**{renaming.of(s): t for s, t in rule.types.items()}, **reader.types}
        ),
    )


@dataclass
class _Renaming:
    """Slots of a rule within another one."""

    names: dict[str, str]

    def __init__(self, reader: LoweredRule, rule: LoweredRule) -> None:
        taken = {*reader.types, *reader.constants}
        self._mark = next(m for m in _marks() if not any(f"{s}{m}" in taken for s in rule.types))
        self.names = {}

    def of(self, slot: str) -> str:
        """Return the new name of a slot."""
        return self.names.setdefault(slot, f"{slot}{self._mark}")

    def condition(self, condition: Condition) -> Condition:
        """Return a condition over the new slots."""
        match condition:
            case Assign(into, str() as value):
                return Assign(self.of(into), self.of(value))
            case Assign(into, FunctorCall() as call):
                args = tuple(map(self.of, call.args))
                return Assign(self.of(into), replace(call, args=args))
            case Check(op, left, right, type_):
                return Check(op, self.of(left), self.of(right), type_)
            case Filter():
                return replace(condition, args=tuple(map(self.of, condition.args)))
        raise AssertionError(f"{condition} is in no join tree")


def _marks() -> Iterator[str]:
    number = 1
    while True:
        yield f"'{number}"
        number += 1
