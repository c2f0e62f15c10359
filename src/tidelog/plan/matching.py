"""Which relations and layers of two lowered programs are the same.

A rule that is added or dropped leaves most of a program as it was. But lowering numbers the
relations that it makes (`edge@7`), so the same relation can have another number afterwards. `alike`
gives the relations of the new program the names that they have in the old one: two of them are the
same if they are made from the same rules over the same relations. What has no counterpart gets a
number that neither program uses.

Names with `@` and no number (`edge@facts`, `edge@given`) say by themselves what they are.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from tidelog.plan.body import Constant, LoweredRule
from tidelog.plan.lowered import Layer, Lowered
from tidelog.plan.traces import NAME as LEAPFROG
from tidelog.source import Span
from tidelog.values.algebra import Group, Semigroup, SetFunction

T = TypeVar("T")
Names = Mapping[str, str]
_SHAPE = "#shape"
"""The attribute in which a rule or a layer keeps its shape."""
_DIGITS = re.compile(r"@\d+")
_NUMBERED = re.compile(r"(.*@\D*)(\d+)")


@dataclasses.dataclass(frozen=True)
class Alike:
    """A lowered program with the names of another one."""

    lowered: Lowered
    names: Names
    """For each relation that has another name than its program alone would give it: that name."""


def alike(
    new: Lowered,
    old: Lowered,
    can_keep: Callable[[Lowered, Layer], bool],
    declared: Collection[str],
) -> Alike:
    """Return the new program with the names of the old one.

    Relations that are `declared` keep their names, also if these look like numbered ones.
    `can_keep` says whether what a layer stores can be kept; it gets the whole program.
    """
    pairs = _paired(_colours(new, declared), _colours(old, declared))
    first = 1 + max((_number(name) for name in {**_relations(new), **_relations(old)}), default=0)
    before = {name: shape(layer) for layer in old.layers for name in layer.relations}
    while True:
        names = dict(pairs)
        others = (n for n in _relations(new) if n not in pairs and n not in declared)
        unpaired = [name for name in others if _number(name) >= 0]
        for at, name in enumerate(unpaired, first):
            names[name] = f"{_hint(name)}{at}"
        found = renamed(new, names)
        inverse = {own: name for name, own in names.items()}
        changed = {
            inverse[name]
            for layer in found.layers
            if not can_keep(found, layer)
            or any(before.get(n) != shape(layer) for n in layer.relations)
            for name in _all_names(layer)
            if inverse.get(name) in pairs
        }
        if not changed:
            return Alike(found, {own: name for own, name in inverse.items() if own != name})
        pairs = {name: own for name, own in pairs.items() if name not in changed}


def renamed(value: T, names: Names) -> T:
    """Return a part of a lowered program with other names of relations."""
    names = {name: own for name, own in names.items() if own != name}
    return _renamed(value, names) if names else value


def _renamed(value: Any, names: Names) -> Any:
    """Return a value with other names: the same object, if none of them occurs in it."""
    match value:
        case str():
            return names.get(value, value)
        case tuple():
            items = [_renamed(item, names) for item in value]
            return value if all(map(operator.is_, items, value)) else tuple(items)
        case frozenset():
            return (
                value if names.keys().isdisjoint(value) else frozenset(map(names.get, value, value))
            )
        case Lowered(facts=facts):
            kept = MappingProxyType(dict(facts))  # rows of values, and names without numbers
            relations, layers = (_renamed(part, names) for part in (value.relations, value.layers))
            return Lowered(relations, layers, kept)
        case Mapping():
            held = {names.get(key, key): _renamed(item, names) for key, item in value.items()}
            same = all(held.get(key) is item for key, item in value.items())
            return value if same else MappingProxyType(held)
        case Constant() | Span():
            return value
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changed = {}
            for name in _names_of_fields(type(value)):
                item = getattr(value, name)
                other = _renamed(item, names)
                if other is not item:
                    changed[name] = other
            return dataclasses.replace(value, **changed) if changed else value
        case _:
            return value


@cache
def _names_of_fields(of: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(of) if field.init)


@cache
def _compared_fields(of: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(of) if field.compare)


def shape(value: Any) -> Any:
    """Return what a layer or a rule is, as a hashable value.

    Positions, numbers of rules and most forced strategies do not matter, nor does the order of
    rules.
    """
    match value:
        case LoweredRule() | Layer():
            # They never change, and most of them are the same from one program to the next.
            held = vars(value)
            if _SHAPE not in held:
                held[_SHAPE] = _shape_of(value)
            return held[_SHAPE]
        case str() | int() | None:
            return value
        case Mapping():
            return tuple(sorted(((key, shape(item)) for key, item in value.items()), key=repr))
        case tuple() | list():
            return tuple(map(shape, value))
        case Span():
            return None
        case Group() | Semigroup() | SetFunction():
            return id(value)  # they are registered once, and may hold any values
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return (type(value).__name__, *_fields(value))
        case _:
            return value


def _shape_of(value: LoweredRule | Layer) -> Any:
    if isinstance(value, LoweredRule):
        return (
            "rule", shape(value.head), shape(value.atoms), shape(value.conditions),
            shape(value.constants), shape(value.types), _DIGITS.sub("@", value.text),
            value.on_failure,
        )  # fmt: skip
    rules = sorted(map(shape, value.rules), key=repr)
    strategy = value.strategy if value.strategy == LEAPFROG else None
    rest = dataclasses.replace(value, rules=(), strategy=strategy)
    return ("layer", tuple(rules), frozenset(value.relations), *_fields(rest, "relations"))


def _fields(value: Any, *but: str) -> Iterator[Any]:
    for name in _compared_fields(value.__class__):
        if name not in but:
            yield shape(getattr(value, name))


# --- pairing ------------------------------------------------------------------------------------


def _paired(new: Mapping[str, int], old: Mapping[str, int]) -> dict[str, str]:
    """Return for relations of the new program those of the old one with the same colour."""
    free: dict[int, list[str]] = {}
    for name, colour in old.items():
        free.setdefault(colour, []).append(name)
    pairs = {}
    for name, colour in new.items():
        if free.get(colour):
            pairs[name] = free[colour].pop(0)
    return pairs


def _colours(lowered: Lowered, declared: Collection[str]) -> dict[str, int]:
    """Return a colour for each numbered relation: the same for those that are made the same way.

    Layers come after those that they read. So a colour stands for all that is below a relation.
    """
    colours: dict[str, int] = {}
    for layer in lowered.layers:
        own = [n for n in _all_names(layer) if n not in declared and _number(n) >= 0]
        shown = {name: str(colour) for name, colour in colours.items()}
        for name in own:
            local = {other: _DIGITS.sub("@", other) for other in own} | {name: "this"}
            made = renamed(layer, {**shown, **local})
            colours[name] = hash((_DIGITS.sub("@", name), lowered.relations.get(name), shape(made)))
    return colours


def _all_names(layer: Layer) -> Iterator[str]:
    """Yield the relations of a layer, and those of the program that it re-evaluates."""
    yield from layer.relations
    if layer.recompute is not None:
        inner = layer.recompute.program
        for part in inner.layers:
            yield from (name for name in _all_names(part) if name not in layer.relations)
    if layer.semi_join is not None:
        yield layer.semi_join.moved


def _relations(lowered: Lowered) -> dict[str, None]:
    """Return the names of all relations, those of re-evaluated programs as well."""
    names = dict.fromkeys(lowered.relations)
    for layer in lowered.every_layer():
        names.update(dict.fromkeys(layer.relations))
        if layer.recompute is not None:
            names.update(dict.fromkeys(layer.recompute.program.relations))
    return names


def _hint(name: str) -> str:
    found = _NUMBERED.fullmatch(name)
    return name if found is None else found[1]


def _number(name: str) -> int:
    """Return the number at the end of an internal name; -1 if it has none."""
    found = _NUMBERED.fullmatch(name)
    return -1 if found is None else int(found[2])


# --- rules --------------------------------------------------------------------------------------


def rule_difference(
    old: Sequence[LoweredRule], new: Sequence[LoweredRule]
) -> tuple[list[LoweredRule], list[LoweredRule], list[LoweredRule]]:
    """Return the rules that stay, those that are added, and those that are dropped."""
    left: dict[Any, list[LoweredRule]] = {}
    for rule in old:
        left.setdefault(shape(rule), []).append(rule)
    kept, added = [], []
    for rule in new:
        same = left.get(shape(rule))
        if same:
            same.pop()
            kept.append(rule)
        else:
            added.append(rule)
    return kept, added, [rule for rules in left.values() for rule in rules]
