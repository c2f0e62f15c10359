"""Demand: a program that computes only those rows of its relations that somebody asks for.

The rows of a relation are asked for by the values of some of its columns, the *bound* ones. Each
relation and set of bound columns becomes two relations (magic sets): the values that are *asked*
for, and the *answers*. For the question `reach("a", x)`,

    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).

becomes

    asked("a").
    reach?bf(x, y) :- asked(x), edge(x, y).
    reach?bf(x, z) :- asked(x), reach?bf(x, y), edge(y, z).

Atoms of a body are taken in an order in which values are passed on (plan/sideways.py). An atom that
is computed on demand is asked for what the atoms before it have found:

    asked_q(y) :- asked_p(x), r(x, y).              for  p(x, z) :- r(x, y), q(y, z).

Relations that are stored are read, and no more.

*Negation and aggregates* need complete answers. Whoever asks `!q(x)` waits until q has been
computed for x:

    p?b(x) :- asked_p(x), r(x), done_q(x), !q?b(x).

`done_q` has what was asked when all that it depends on had come to rest. The parts of the program
that depend on each other are *units*, in order. A unit runs when all before it are at rest
(maintain/tables.py), and only then its `done` relations grow. A unit may ask more of the units
before it; but answers never change, so what was done stays done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.plan.body import Assign, AtomUse, Condition, Constant, LoweredRule, OnFailure
from tidelog.plan.linear import followed
from tidelog.plan.lowered import Aggregation, Layer, Lowered, given_of
from tidelog.plan.order import Stats
from tidelog.plan.sideways import Passing, needed_conditions
from tidelog.values.types import NUMBER, Type

_FEW_GIVEN = Stats(1e3, (1e2,) * 256)  # relations that rules derive are rarely given many rows
Columns = tuple[int, ...]
Origin = tuple[tuple[str, int] | None, ...]
"""For each column of a relation a column of another, whose domain it has; None for any value."""


@dataclass(frozen=True)
class Definition:
    """How the rows of a relation that is not stored are derived: by rules or by an aggregate."""

    rules: tuple[LoweredRule, ...]
    aggregation: Aggregation | None
    unit: int
    """Its place in the order of computation. Relations of one unit depend on each other.

    The number after it is free, for what such a unit leaves until it is at rest.
    """
    given: str | None = None
    """The relation of its given rows, if it can have some."""


@dataclass(frozen=True)
class DemandCall:
    """A relation with some of its columns bound, as relations of the demand program."""

    answers: str
    asked: str
    bound: Columns


@dataclass
class DemandUnit:
    """Rules that are evaluated together, and aggregates over answers of the units before."""

    number: int
    rules: list[LoweredRule] = field(default_factory=list)
    aggregations: list[Aggregation] = field(default_factory=list)
    """Their sources hold the rows of complete groups."""
    done: dict[str, str] = field(default_factory=dict)
    """For each relation of what is done, that of what is asked."""
    staged: dict[str, str] = field(default_factory=dict)
    """For each source of an aggregate, the answers that it takes when they are complete."""


@dataclass(frozen=True)
class DemandProgram:
    """What is evaluated on demand. Relations that it does not list are stored."""

    relations: Mapping[str, tuple[Type, ...]]
    origins: Mapping[str, Origin]
    units: tuple[DemandUnit, ...]

    def lowered(self, stored: Mapping[str, tuple[Type, ...]]) -> Lowered:
        """Return all relations and rules, with those that are stored as inputs."""
        read = {a.relation for unit in self.units for rule in unit.rules for a in rule.atoms}
        given = {given_of(name): types for name, types in stored.items()}
        inputs = {name: types for name, types in {**given, **stored}.items() if name in read}
        layers = [
            Layer(tuple({rule.head.relation: None for rule in unit.rules}), tuple(unit.rules), True)
            for unit in self.units
        ]
        for unit in self.units:
            for a in unit.aggregations:
                names = (a.result,) if a.failed is None else (a.result, a.failed)
                layers.append(Layer(names, (), False, a))
        return Lowered({**inputs, **self.relations}, tuple(layers), {})


def definitions(lowered: Lowered, is_stored: Callable[[str], bool]) -> dict[str, Definition]:
    """Return how the relations of a program that are not stored are derived.

    Of a relation that a join tree maintains, that is its rules as the program has them. Of an
    aggregate that reads ranges, it is the aggregate over its pairs: those of some groups are few.
    """
    found: dict[str, Definition] = {}
    layers = [*_flat(lowered.layers)]
    pairs = {
        a.source: a.ranged.rule
        for a in (layer.aggregation for layer in layers)
        if a is not None and a.ranged is not None
    }
    for place, layer in enumerate(layers):
        number = 2 * place
        if layer.aggregation is not None:
            if not is_stored(layer.aggregation.result):
                aggregation = replace(layer.aggregation, ranged=None)
                for name in layer.relations:
                    found[name] = Definition((), aggregation, number)
            continue
        rules = layer.rules if layer.tree is None else layer.tree.wholes
        for name in layer.relations:
            own = tuple(rule for rule in rules if rule.head.relation == name)
            if name in pairs:
                own = (pairs[name],)
            if own and not is_stored(name):
                found[name] = Definition(own, None, number, given_of(name))
    return found


def unit_after(defined: Iterable[Definition]) -> int:
    """Return the number of a unit that comes after those of relations."""
    return 2 + max((definition.unit for definition in defined), default=-2)


def judged_failures(lowered: Lowered) -> tuple[Layer, ...]:
    """Return the layers that say which groups without a value are errors (failure_rules.py)."""
    return tuple(
        layer
        for layer in lowered.layers
        if layer.errors_of is not None and layer.errors_of not in layer.relations
    )


def bound_by_recursion(lowered: Lowered) -> frozenset[str]:
    """Return the relations that cannot be computed on demand.

    That is a recursion that binds the groups of its own aggregates (`ReevaluatedProgram`).
    """
    return frozenset(
        name
        for layer in lowered.layers
        if layer.recompute is not None and layer.recompute.groups
        for name in layer.relations
    )


def _flat(layers: Iterable[Layer]) -> Iterable[Layer]:
    """Return the layers, with those inside of a layer that is re-evaluated in its place."""
    for layer in layers:
        if layer.recompute is None or layer.recompute.groups:
            yield layer
        else:
            yield from _flat(layer.recompute.program.layers)


class DemandRewriting:
    """Makes the demand program for some questions."""

    def __init__(
        self,
        defined: Mapping[str, Definition],
        types: Callable[[str], tuple[Type, ...]],
        stats: Callable[[str], Stats],
    ) -> None:
        """Start without questions.

        `types` are those of all relations of the program, `stats` those of the stored ones.
        """
        self._defined, self._types, self._stats = defined, types, stats
        self._calls: dict[tuple[str, Columns], DemandCall] = {}
        self._waiting: list[tuple[str, DemandCall]] = []
        self._relations: dict[str, tuple[Type, ...]] = {}
        self._origins: dict[str, Origin] = {}
        self._units: dict[int, DemandUnit] = {}
        self._given = {d.given for d in defined.values() if d.given is not None}
        self._rules = 0
        self._aggregated: set[str] = set()

    def add_relation(
        self, name: str, types: tuple[Type, ...], origin: Origin | None = None
    ) -> None:
        """Add a relation of the program's own: one that is given rows, or the answers of a rule.

        `origin` is needed unless the relation has domains already.
        """
        self._relations[name] = types
        if origin is not None:
            self._origins[name] = origin

    def has(self, name: str) -> bool:
        """Return whether the program has a relation of its own by this name."""
        return name in self._relations

    def add_origin(self, name: str, origin: Origin) -> None:
        """Say which domains a relation has that no program stores."""
        self._origins[name] = origin

    def add_question(self, rule: LoweredRule, unit: int, start: str | None = None) -> None:
        """Add a rule whose head is a relation of the program's own: its answers are wanted.

        With `start`, a relation without columns, it is evaluated when that has its row.
        """
        head = rule.head.relation
        call = None if start is None else DemandCall(head, start, ())
        self._add(rule, head, call, unit, frozenset())
        self._work()

    def add_errors(self, layers: Iterable[Layer], unit: int) -> dict[str, str]:
        """Add the rules for errors among the groups that are asked for, and for no others.

        Returns for each relation of errors that of the failures.
        """
        errors: dict[str, str] = {}
        done: set[tuple[str, Columns]] = set()
        while waiting := [key for key in self._calls if key not in done]:
            done.update(waiting)
            for layer in layers:
                assert layer.errors_of is not None
                for call in (self._calls[key] for key in waiting if key[0] == layer.errors_of):
                    of = layer.relations[0]
                    name = f"%{of}"
                    if name not in errors:
                        errors[name] = layer.errors_of
                        types = self._types(of)
                        columns = range(max(1, len(types)))
                        self.add_relation(name, types, tuple((of, i) for i in columns))
                    for rule in layer.rules:
                        atoms = (
                            replace(atom, relation=call.answers)
                            if atom.relation == layer.errors_of
                            else atom
                            for atom in rule.atoms
                        )
                        head = replace(rule.head, relation=name)
                        self.add_question(replace(rule, head=head, atoms=tuple(atoms)), unit)
        return errors

    def call(self, relation: str, bound: Columns) -> DemandCall:
        """Return the relations for a relation that is asked for by some of its columns."""
        call = self._call(relation, bound)
        self._work()
        return call

    @property
    def calls(self) -> Collection[tuple[str, Columns]]:
        """The relations that are asked for, with the columns that are bound."""
        return self._calls.keys()

    def program(self) -> DemandProgram:
        """Return the program for all questions."""
        units = tuple(self._units[number] for number in sorted(self._units))
        return DemandProgram(self._relations, self._origins, units)

    # --- calls ---

    def _work(self) -> None:
        while self._waiting:
            relation, call = self._waiting.pop()
            self._define(relation, call)

    def _call(self, relation: str, bound: Columns) -> DemandCall:
        definition = self._defined.get(relation)
        if definition is not None and definition.aggregation is not None:
            # Groups can be asked for, but not values.
            width = len(definition.aggregation.group)
            bound = tuple(column for column in bound if column < width)
        types = self._types(relation)
        bound = tuple(column for column in bound if column < len(types))
        found = self._calls.get((relation, bound))
        if found is None:
            pattern = "".join("b" if i in bound else "f" for i in range(len(types)))
            name = f"{relation}?{pattern}"
            found = self._calls[relation, bound] = DemandCall(name, f"{name}@asked", bound)
            self.add_relation(name, types, tuple((relation, i) for i in range(max(1, len(types)))))
            self._add_columns(found.asked, relation, bound)
            self._waiting.append((relation, found))
        return found

    def _add_columns(self, name: str, relation: str, columns: Columns) -> None:
        """Add a relation with some columns of another; without any, it has one row."""
        types = self._types(relation)
        self.add_relation(
            name,
            tuple(types[c] for c in columns),
            tuple((relation, c) for c in columns),
        )

    def _define(self, relation: str, call: DemandCall) -> None:
        definition = self._defined.get(relation)
        if definition is None:  # the rows of groups, for an aggregate over a stored relation
            self._add(self._copying(relation, relation), call.answers, call, 0, frozenset())
            return
        if definition.aggregation is not None:
            self._aggregate(definition.aggregation, call, definition.unit)
            return
        own = frozenset(n for n, d in self._defined.items() if d.unit == definition.unit)
        rules = [*definition.rules]
        if definition.given is not None:
            rules.append(self._copying(definition.given, relation))
        if self._follow(rules, relation, call, definition.unit, own):
            return
        for rule in rules:
            self._add(rule, call.answers, call, definition.unit, own)

    def _follow(
        self,
        rules: Sequence[LoweredRule],
        relation: str,
        call: DemandCall,
        unit: int,
        own: frozenset[str],
    ) -> bool:
        """Add a recursion that passes on what it is not asked for; return False for others."""
        reached = f"{call.answers}@reached"
        types = self._types(relation)
        parts = followed(
            rules, relation, call.bound, types, own, reached, self._is_on_demand, self._stats_of
        )
        if parts is None:
            return False
        self._add_columns(reached, relation, (*call.bound, *call.bound))
        slots = tuple(f"c{i}" for i in call.bound)
        start = _rule(
            AtomUse(reached, (*slots, *slots)),
            (AtomUse(call.asked, slots),),
            {f"c{i}": types[i] for i in call.bound},
            "what is asked for",
        )
        self._append(self._unit(unit), start)
        for rule in parts.follow:
            self._add(rule, reached, None, unit, own)
        # The answers are joined once, when all that leads to them is known. If the recursion is one
        # with other relations, these may need them before.
        end = unit + 1 if own == {relation} else unit
        for rule in parts.end:
            self._add(rule, call.answers, None, end, own)
        return True

    def _stats_of(self, name: str) -> Stats:
        """Return the size of a stored relation; those of the program's own are small."""
        if name in self._relations:
            return Stats(0.0, (1.0,) * max(1, len(self._relations[name])))
        if name in self._given:
            return _FEW_GIVEN
        return self._stats(name)

    def _unit(self, number: int) -> DemandUnit:
        return self._units.setdefault(number, DemandUnit(number))

    def _copying(self, relation: str, whole: str) -> LoweredRule:
        """Return the rule that answers with rows of a stored relation."""
        types = self._types(whole)
        slots = tuple(f"c{i}" for i in range(len(types)))
        of_slots = dict(zip(slots, types, strict=True))
        rule = _rule(
            AtomUse(whole, slots), (AtomUse(relation, slots),), of_slots, f"rows of {whole}"
        )
        return with_unit(rule)

    # --- aggregates ---

    def _aggregate(self, aggregation: Aggregation, call: DemandCall, unit: int) -> None:
        """Add an aggregate over the groups that are asked for."""
        bound = call.bound
        result = self._call(aggregation.result, bound)
        if aggregation.failed is not None:
            failed = self._call(aggregation.failed, bound)
            for one, other in ((result, failed), (failed, result)):
                self._ask(unit, one, other, aggregation.result, bound)
        if result.answers in self._aggregated:
            return
        self._aggregated.add(result.answers)
        source = self._call(aggregation.source, tuple(sorted(aggregation.group[c] for c in bound)))
        order = sorted(bound, key=lambda c: aggregation.group[c])
        slots = {c: f"g{c}" for c in bound}
        types = self._types(aggregation.result)
        asks = _rule(
            AtomUse(source.asked, tuple(slots[c] for c in order)),
            (AtomUse(result.asked, tuple(slots[c] for c in bound)),),
            {slots[c]: types[c] for c in bound},
            "groups that are asked for",
        )
        own = self._unit(unit)
        self._append(own, with_unit(asks))
        staged = f"{result.answers}@source"
        self.add_relation(
            staged,
            self._types(aggregation.source),
            tuple(
                (aggregation.source, i) for i in range(max(1, len(self._types(aggregation.source))))
            ),
        )
        own.staged[staged] = source.answers
        own.aggregations.append(
            replace(
                aggregation,
                result=result.answers,
                source=staged,
                failed=None if aggregation.failed is None else failed.answers,
            )
        )

    def _ask(
        self, unit: int, one: DemandCall, other: DemandCall, relation: str, bound: Columns
    ) -> None:
        """Add the rule that asks for one with all that is asked of the other."""
        slots = tuple(f"g{c}" for c in bound)
        types = self._types(relation)
        rule = _rule(
            AtomUse(other.asked, slots), (AtomUse(one.asked, slots),),
            {f"g{c}": types[c] for c in bound}, "groups that are asked for",
        )  # fmt: skip
        self._append(self._unit(unit), with_unit(rule))

    # --- rules ---

    def _append(self, unit: DemandUnit, rule: LoweredRule) -> None:
        if (rule.head.relation, rule.head.args) in [(a.relation, a.args) for a in rule.atoms]:
            return  # it asks for what is asked already
        self._rules += 1
        unit.rules.append(replace(rule, id=self._rules))

    def _add(
        self, rule: LoweredRule, head: str, call: DemandCall | None, unit: int, own: frozenset[str]
    ) -> None:
        """Add a rule for a head, restricted to what the call asks for, and what it asks itself."""
        rule, guard = _guarded(rule, call)
        passing = Passing(rule, guard, own, self._is_on_demand, self._stats_of)
        target = self._unit(unit)
        atoms: list[AtomUse] = [] if guard is None else [guard]
        for place, bound in passing.steps:
            atom = rule.atoms[place]
            if atom.relation not in self._defined:
                atoms.append(atom)
                continue
            called = self._call(atom.relation, bound)
            conditions = passing.conditions_before(place)
            self._append(target, _asking(rule, called, atom, atoms, conditions))
            if atom.negated:
                done = f"{called.answers}@done"
                if done not in self._relations:
                    self._add_columns(done, atom.relation, called.bound)
                target.done[done] = called.asked
                atoms.append(AtomUse(done, tuple(atom.args[c] for c in called.bound)))
            atoms.append(replace(atom, relation=called.answers))
        answer = replace(rule, head=AtomUse(head, rule.head.args), atoms=tuple(atoms))
        self._append(target, with_unit(answer))

    def _is_on_demand(self, relation: str) -> bool:
        return relation in self._defined


def _rule(
    head: AtomUse, atoms: tuple[AtomUse, ...], types: Mapping[str, Type], text: str
) -> LoweredRule:
    return LoweredRule(0, head, atoms, (), {}, types, text)


UNIT = "#unit"
"""The slot of the only value that a relation without columns has."""


def with_unit(rule: LoweredRule) -> LoweredRule:
    """Return a rule in which relations without columns have one, which holds 0."""
    if rule.head.args and all(atom.args for atom in rule.atoms):
        return rule
    atoms = tuple(replace(a, args=a.args or (UNIT,)) for a in rule.atoms)
    head = replace(rule.head, args=rule.head.args or (UNIT,))
    return replace(
        rule,
        head=head,
        atoms=atoms,
        constants={**rule.constants, UNIT: Constant(0, NUMBER)},
        types={**rule.types, UNIT: NUMBER},
    )


def _guarded(rule: LoweredRule, call: DemandCall | None) -> tuple[LoweredRule, AtomUse | None]:
    """Return a rule and the atom that restricts it to what is asked for."""
    if call is None:
        return rule, None
    guard, more = _distinct(AtomUse(call.asked, tuple(rule.head.args[c] for c in call.bound)))
    types = {**rule.types, **{c.into: rule.types[str(c.value)] for c in more}}
    return replace(rule, conditions=(*rule.conditions, *more), types=types), guard


def _distinct(atom: AtomUse) -> tuple[AtomUse, list[Assign]]:
    """Return the atom with another slot for each that is repeated, and their equalities."""
    args: list[str | None] = []
    more: list[Assign] = []
    for slot in atom.args:
        if slot not in args:
            args.append(slot)
            continue
        again = f"%same{len(args)}:{atom.relation}"
        more.append(Assign(again, str(slot)))
        args.append(again)
    return replace(atom, args=tuple(args)), more


def _asking(
    rule: LoweredRule,
    called: DemandCall,
    atom: AtomUse,
    before: Sequence[AtomUse],
    conditions: Sequence[Condition],
) -> LoweredRule:
    """Return the rule that asks for what the atoms before an atom have found."""
    args = tuple(atom.args[c] for c in called.bound)
    head = AtomUse(called.asked, args)
    positive = [atom for atom in before if not atom.negated]
    kept, known = needed_conditions(rule, head, positive, conditions)
    atoms = tuple(atom for atom in before if not atom.negated or atom.slots <= known)
    asking = replace(rule, head=head, atoms=atoms, conditions=kept, on_failure=OnFailure.SKIP)
    return with_unit(asking)
