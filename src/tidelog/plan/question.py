"""A checked query (logic/query.py) becomes a demand program.

Its rules are lowered like any others, with three differences:

- Constants become rows of a relation, `%given`. So the same question about other constants has the
  same plan.
- Columns that no rule of the program joins have different domains. Where the query joins them, each
  domain gets a slot of its own, and the slots are equal.
- What lowering makes for the query's own negations and aggregates is not stored: it is computed on
  demand, like relations that are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.logic.graph import UnionFind
from tidelog.logic.program import Program
from tidelog.logic.query import ANSWERS, Query
from tidelog.plan.body import Assign, AtomUse, Constant, LoweredRule, Range, is_fallible
from tidelog.plan.demand import (
    Definition,
    DemandProgram,
    DemandRewriting,
    Origin,
    definitions,
    unit_after,
    with_unit,
)
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Aggregation, Layer, Lowered
from tidelog.plan.order import Stats
from tidelog.values.types import Type

DomainOf = Callable[[str, int], Hashable]
"""Returns for a column of a stored relation something that stands for its domain."""
_OTHERS = object()
_NEVER_FAIL = frozenset({"count", "min", "max", "setof"})
"""Aggregates that have a value for every group with rows."""


@dataclass(frozen=True)
class LoweredQuestion:
    """The rules of a query, without its constants."""

    rules: tuple[LoweredRule, ...]
    """The rules that derive the answers, and what is an error."""
    relations: Mapping[str, tuple[Type, ...]]
    """The relations of the query, with those that lowering has made."""
    origins: Mapping[str, Origin]
    defined: Mapping[str, Definition]
    """How the relations that lowering has made are derived."""
    errors: Mapping[str, str]
    """For each relation of errors: that of the failures which they are (plan/failure_rules.py)."""
    constants: tuple[tuple[Constant, ...], ...]
    """The rows of the relations of constants; rules that have some begin with such a relation."""

    @property
    def shape(self) -> str:
        """What queries have in common that differ in constants only.

        Their texts are different. They do not matter where nothing can fail: messages show them.
        """
        rules = [*self.rules, *(rule for d in self.defined.values() for rule in d.rules)]
        aggregations = [d.aggregation for d in self.defined.values()]
        if not any(map(_shows_text, (*rules, *aggregations))):
            rules = [replace(rule, text="") for rule in rules]
            aggregations = [found and _without_text(found) for found in aggregations]
        types = [[c.type for c in constants] for constants in self.constants]
        return repr((rules, aggregations, types))

    @property
    def values(self) -> list[tuple[Any, ...]]:
        """The constants of each rule that has some, as a row."""
        return [tuple(constant.value for constant in of_rule) for of_rule in self.constants]

    def program(
        self,
        defined: Mapping[str, Definition],
        types: Callable[[str], tuple[Type, ...]],
        stats: Callable[[str], Stats],
        judged: Iterable[Layer] = (),
    ) -> tuple[DemandProgram, Mapping[str, str]]:
        """Return the demand program of the query, and its relations of errors.

        `defined` are the relations of the program that are not stored, `judged` says which of
        their failures are errors.
        """
        first = unit_after(defined.values())
        own = {name: replace(d, unit=first + d.unit) for name, d in self.defined.items()}

        def known_types(name: str) -> tuple[Type, ...]:
            return self.relations[name] if name in self.relations else types(name)

        rewriting = DemandRewriting({**defined, **own}, known_types, stats)
        for name in (ANSWERS, *self.errors, *map(given_name, range(len(self.constants)))):
            rewriting.add_relation(name, self.relations[name], self.origins[name])
        for name, origin in self.origins.items():
            rewriting.add_origin(name, origin)
        last = max(first, unit_after(own.values()))
        for rule in self.rules:
            rewriting.add_question(rule, last)
        errors = {**self.errors, **rewriting.add_errors(judged, last)}
        return rewriting.program(), errors


def given_name(place: int) -> str:
    """Return the relation that holds the constants of a rule."""
    return f"%given{place}"


def lowered_question(query: Query, program: Program, domain_of: DomainOf) -> LoweredQuestion:
    """Return a query about the relations of a program in the kernel's terms."""
    lowered = _renamed(lower(query.alone(program)), program)
    rules = [rule for layer in lowered.layers for rule in layer.rules]
    relations = {n: t for n, t in lowered.relations.items() if n not in program.relations}
    origins = _origins(lowered, relations, domain_of)
    errors = {la.relations[0]: la.errors_of for la in lowered.layers if la.errors_of is not None}
    asked = {ANSWERS, *errors}
    split = {id(rule): _Splitting(rule, origins, domain_of).rule for rule in rules}
    defined = definitions(
        Lowered(
            lowered.relations,
            tuple(
                replace(layer, rules=tuple(split[id(rule)] for rule in layer.rules))
                for layer in lowered.layers
            ),
            {},
        ),
        lambda name: name in asked or name in program.relations,
    )
    lifting = _Lifting(relations, origins)
    answers = tuple(lifting.rule(split[id(rule)]) for rule in rules if rule.head.relation in asked)
    defined = {
        name: replace(d, given=None, rules=tuple(map(lifting.inner_rule, d.rules)))
        for name, d in defined.items()
    }
    constants = tuple(lifting.constants)
    return LoweredQuestion(answers, lifting.types, origins, defined, errors, constants)


def selection(relation: str, types: tuple[Type, ...], bound: tuple[int, ...]) -> LoweredQuestion:
    """Return the question for the rows of a relation that have given values in some columns."""
    slots = tuple(f"c{i}" for i in range(len(types)))
    given = tuple(f"?{i}" for i in bound)
    of_slots = dict(zip((*slots, *given), (*types, *(types[i] for i in bound)), strict=True))
    rule = LoweredRule(
        0,
        AtomUse(ANSWERS, slots),
        (AtomUse(given_name(0), given), AtomUse(relation, slots)),
        tuple(Assign(slots[i], f"?{i}") for i in bound),
        {},
        of_slots,
        f"rows of {relation}",
    )
    relations = {ANSWERS: types, given_name(0): tuple(types[i] for i in bound)}
    origins: dict[str, Origin] = {
        ANSWERS: tuple((relation, i) for i in range(max(1, len(types)))),
        given_name(0): (None,) * max(1, len(bound)),
    }
    return LoweredQuestion((with_unit(rule),), relations, origins, {}, {}, ((),))


def _shows_text(part: LoweredRule | Aggregation | None) -> bool:
    """Return whether a message can show the text of a rule or an aggregate: it can fail."""
    if part is None:
        return False
    if isinstance(part, Aggregation):
        return any(one.algebra is not None or one.op not in _NEVER_FAIL for one in part.each)
    return any(isinstance(c, Range) or is_fallible(c) for c in part.conditions)


def _without_text(aggregation: Aggregation) -> Aggregation:
    parts = tuple(replace(part, text="") for part in aggregation.parts)
    return replace(aggregation, text="", parts=parts)


def _renamed(lowered: Lowered, program: Program) -> Lowered:
    """Return the query with other names for what lowering has made: they could be there already."""

    def name(relation: str) -> str:
        return relation if relation in (*program.relations, ANSWERS) else f"%{relation}"

    def rule(one: LoweredRule) -> LoweredRule:
        return replace(
            one,
            head=replace(one.head, relation=name(one.head.relation)),
            atoms=tuple(replace(atom, relation=name(atom.relation)) for atom in one.atoms),
        )

    layers = []
    for layer in lowered.layers:
        found = layer.aggregation
        if found is not None:
            failed = None if found.failed is None else name(found.failed)
            found = replace(
                found, result=name(found.result), source=name(found.source), failed=failed
            )
        layers.append(
            replace(
                layer,
                relations=tuple(map(name, layer.relations)),
                rules=tuple(map(rule, layer.rules)),
                aggregation=found,
                errors_of=None if layer.errors_of is None else name(layer.errors_of),
            )
        )
    return Lowered({name(n): t for n, t in lowered.relations.items()}, tuple(layers), {})


def _origins(
    lowered: Lowered, relations: Mapping[str, tuple[Type, ...]], domain_of: DomainOf
) -> dict[str, Origin]:
    """Return the domains of the query's relations: those of the columns that they are joined with.

    A column that is joined with several domains has room for any value.
    """
    classes = UnionFind[object]()
    places: dict[object, tuple[str, int]] = {}
    for layer in lowered.layers:
        for rule in layer.rules:
            for condition in rule.conditions:
                if isinstance(condition, Assign) and isinstance(condition.value, str):
                    classes.union((rule.id, condition.into), (rule.id, condition.value))
            for atom in (rule.head, *rule.atoms):
                for column, slot in enumerate(atom.args):
                    if slot is not None:
                        place = (atom.relation, column)
                        if atom.relation in relations:
                            classes.union((rule.id, slot), place)
                        else:
                            places[(rule.id, slot, place)] = place
        if layer.aggregation is not None:
            a = layer.aggregation
            for i, column in enumerate(a.group):
                for name in (a.result, a.failed) if a.failed is not None else (a.result,):
                    source = (a.source, column)
                    if a.source in relations:
                        classes.union((name, i), source)
                    else:
                        places[(name, i, source)] = source
    stored: dict[object, dict[Hashable, tuple[str, int]]] = {}
    for key, place in places.items():
        assert isinstance(key, tuple)
        found = stored.setdefault(classes.find(key[:2]), {})
        found.setdefault(domain_of(*place), place)
    origins: dict[str, Origin] = {}
    for name, types in relations.items():
        columns = []
        for column in range(max(1, len(types))):
            found = stored.get(classes.find((name, column)), {})
            columns.append(next(iter(found.values())) if len(found) == 1 else None)
        origins[name] = tuple(columns)
    return origins


class _Splitting:
    """Gives each domain in a rule slots of its own."""

    def __init__(
        self, rule: LoweredRule, origins: Mapping[str, Origin], domain_of: DomainOf
    ) -> None:
        self._origins, self._domain_of = origins, domain_of
        self._first: dict[str, Hashable] = {}
        self._others: dict[tuple[str, Hashable], str] = {}
        self._types = dict(rule.types)
        self._equal: list[Assign] = []
        atoms = [self._atom(atom) for atom in sorted(rule.atoms, key=lambda a: a.negated)]
        head = self._atom(rule.head)
        conditions = (*rule.conditions, *self._equal)
        self.rule = replace(
            rule, head=head, atoms=tuple(atoms), conditions=conditions, types=self._types
        )

    def _atom(self, atom: AtomUse) -> AtomUse:
        args = [
            None if slot is None else self._slot(slot, self._domain(atom.relation, column))
            for column, slot in enumerate(atom.args)
        ]
        return replace(atom, args=tuple(args))

    def _domain(self, relation: str, column: int) -> Hashable:
        if relation not in self._origins:
            return self._domain_of(relation, column)
        origin = self._origins[relation][column]
        return _OTHERS if origin is None else self._domain_of(*origin)

    def _slot(self, slot: str, domain: Hashable) -> str:
        if self._first.setdefault(slot, domain) == domain:
            return slot
        found = self._others.get((slot, domain))
        if found is None:
            found = self._others[slot, domain] = f"{slot}:{len(self._others)}"
            self._types[found] = self._types[slot]
            self._equal.append(Assign(found, slot))
        return found


class _Lifting:
    """Makes rules that read their constants from relations."""

    def __init__(self, types: Mapping[str, tuple[Type, ...]], origins: dict[str, Origin]) -> None:
        self.types = dict(types)
        self.constants: list[tuple[Constant, ...]] = []
        self._origins = origins

    def inner_rule(self, rule: LoweredRule) -> LoweredRule:
        """Return a rule that reads its constants, if it has some."""
        return self.rule(rule) if rule.constants else rule

    def rule(self, rule: LoweredRule) -> LoweredRule:
        """Return a rule that begins with the relation of its constants."""
        given, found = given_name(len(self.constants)), tuple(rule.constants.values())
        self.constants.append(found)
        self.types[given] = tuple(constant.type for constant in found)
        self._origins[given] = (None,) * max(1, len(found))
        slots = {slot: f"?{i}" for i, slot in enumerate(rule.constants)}
        types = {**rule.types, **{into: rule.types[slot] for slot, into in slots.items()}}
        equal = [Assign(slot, into) for slot, into in slots.items()]
        return replace(
            rule,
            atoms=(AtomUse(given, tuple(slots.values())), *rule.atoms),
            conditions=(*rule.conditions, *equal),
            constants={},
            types=types,
        )
