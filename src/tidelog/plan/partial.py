"""Partial evaluation: relations that are only read with constants are restricted to these (EPF, 4).

    far(x, y) :- edge(x, y).                        read as  !far("a", _)
    far(x, z) :- far(x, y), edge(y, z).

The constants are pushed down through the rules, as far as these pass them on:

    far_a("a", y) :- edge("a", y).
    far_a("a", z) :- far_a("a", y), edge(y, z).

So changes that no reader of the relation can see are neither propagated nor filtered. There is
one restricted relation for each set of constants. If a relation is read without constants
somewhere, or its own rules read it so, it stays whole.

That is only done for relations whose changes nobody sees: those that lowering has made for virtual
relations (plan/virtual.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from tidelog.plan.body import AtomUse, Constant, LoweredRule
from tidelog.plan.lowered import Layer, Lowered

_MOST = 8
"""Restrictions of the relations of one layer: with more, one whole relation is cheaper."""
Restriction = tuple[tuple[int, Constant], ...]
"""The columns that have constants, and these."""
_Key = tuple[str, str]
"""A relation and a restriction, as text: 1, 1.0 and true are different constants."""


@dataclass
class _Reading:
    """How a relation is read."""

    restrictions: dict[str, Restriction] = field(default_factory=dict)
    is_whole: bool = False


def partially_evaluated(lowered: Lowered, hidden: Collection[str]) -> Lowered:
    """Return the program with restricted relations in place of `hidden` ones, where that helps."""
    return _Evaluation(lowered, hidden).run() if hidden else lowered


class _Evaluation:
    def __init__(self, lowered: Lowered, hidden: Collection[str]) -> None:
        self._lowered, self._hidden = lowered, hidden
        self._readings: dict[str, _Reading] = {name: _Reading() for name in hidden}
        self._names: dict[_Key, str] = {}
        """The restricted relations."""
        self._types = dict(lowered.relations)
        self._fresh = count(len(lowered.relations) + 1)
        rule_ids = (rule.id for layer in lowered.every_layer() for rule in layer.rules)
        self._ids = count(1 + max(rule_ids, default=0))

    def run(self) -> Lowered:
        layers: list[Layer] = []
        for layer in reversed(self._lowered.layers):  # those who read a relation come first
            restricted = self._restricted(layer)
            if restricted is not None:
                for name in layer.relations:
                    del self._types[name]
            kept = layer if restricted is None else restricted
            self._note(kept)
            layers.append(kept)
        if not self._names:
            return self._lowered
        read = tuple(map(self._reading, reversed(layers)))
        return replace(self._lowered, relations=self._types, layers=read)

    def _note(self, layer: Layer) -> None:
        """Note how the rules of a layer read the relations below."""
        for rule in layer.rules:
            for atom in rule.atoms:
                self._note_atom(rule, atom)
        others = set(layer.recompute.reads) if layer.recompute is not None else set[str]()
        if layer.aggregation is not None:
            others.add(layer.aggregation.source)
        for name in others & self._readings.keys():
            self._readings[name].is_whole = True

    def _note_atom(self, rule: LoweredRule, atom: AtomUse) -> None:
        reading = self._readings.get(atom.relation)
        if reading is not None:
            restriction = restriction_of(rule, atom)
            reading.restrictions[repr(restriction)] = restriction
            reading.is_whole = reading.is_whole or not restriction

    # --- restricting a layer ---

    def _restricted(self, layer: Layer) -> Layer | None:
        """Return a layer with the restrictions that are read; None if it has to be whole."""
        own = set(layer.relations)
        if not own.issubset(self._hidden) or layer.aggregation is not None or not layer.rules:
            return None
        waiting: list[tuple[str, Restriction]] = []
        for name in layer.relations:
            reading = self._readings[name]
            if reading.is_whole:
                return None
            waiting += [(name, restriction) for restriction in reading.restrictions.values()]
        found: dict[_Key, list[LoweredRule]] = {}
        while waiting:
            name, restriction = waiting.pop()
            if (name, repr(restriction)) in found:
                continue
            if len(found) == _MOST:
                return None
            rules = found[name, repr(restriction)] = [*_rules(layer, name, restriction)]
            for rule in rules:
                for atom in rule.atoms:
                    if atom.relation in own:
                        inner = restriction_of(rule, atom)
                        if not inner:
                            return None
                        waiting.append((atom.relation, inner))
        if not found:
            return None
        for key in found:
            restricted = self._names[key] = self._new_name(key[0])
            self._types[restricted] = self._lowered.relations[key[0]]
        heads = {key: self._names[key] for key in found}
        made = tuple(
            replace(rule, id=next(self._ids), head=replace(rule.head, relation=heads[key]))
            for key, of_key in found.items()
            for rule in of_key
        )
        names = tuple(heads.values())
        virtual = None if layer.virtual is None else frozenset(names)
        return replace(layer, relations=names, rules=made, virtual=virtual)

    def _new_name(self, relation: str) -> str:
        while True:
            name = f"{relation.partition('@')[0]}@where@{next(self._fresh)}"
            if name not in self._types:
                return name

    # --- reading what is restricted ---

    def _reading(self, layer: Layer) -> Layer:
        rules = tuple(map(self._reading_rule, layer.rules))
        return layer if rules == layer.rules else replace(layer, rules=rules)

    def _reading_rule(self, rule: LoweredRule) -> LoweredRule:
        atoms = tuple(
            replace(atom, relation=self._names.get(key, atom.relation))
            for atom in rule.atoms
            for key in [(atom.relation, repr(restriction_of(rule, atom)))]
        )
        return rule if atoms == rule.atoms else replace(rule, atoms=atoms)


def restriction_of(rule: LoweredRule, atom: AtomUse) -> Restriction:
    """Return the columns of an atom that are constants, and these."""
    found: list[tuple[int, Constant]] = []
    for column, slot in enumerate(atom.args):
        constant = rule.constants.get(slot or "")
        if constant is not None:
            found.append((column, constant))
    return tuple(found)


def _rules(layer: Layer, name: str, restriction: Restriction) -> Iterator[LoweredRule]:
    """Yield the rules of a relation with constants in some columns of the head."""
    for rule in layer.rules:
        if rule.head.relation == name:
            constants = _constants(rule, restriction)
            if constants is not None:
                yield replace(rule, constants=constants)


def _constants(rule: LoweredRule, restriction: Restriction) -> Mapping[str, Constant] | None:
    """Return the constants of a restricted rule; None if it derives other rows only."""
    constants = dict(rule.constants)
    for column, constant in restriction:
        slot = rule.head.args[column]
        assert slot is not None
        held = constants.setdefault(slot, constant)
        if repr(held) != repr(constant):
            return None
    return constants
