"""A checked program becomes rules over slots, and relations that its rules only imply.

- Functors leave the head; patterns become `Unpack`; constants get slots.
- A negated atom that leaves columns open, `!edge(x, _)`, asks for the absence of a projection: the
  projection becomes a relation of its own.
- An aggregate becomes three relations. With `g` the variables it shares with its rule:

      p(x, n) :- q(x), n = count : { r(x, y), y > 2 }.

      source(x, y)    :- r(x, y), y > 2.              the assignments of the body
      result(x, n)    :  count over source, by x      kept by maintain/aggregations.py
      wanted(x)       :- q(x).                        the groups that the rule asks for
      value(x, n)     :- result(x, n).
      value(x, 0)     :- wanted(x), !source(x, _).    only if the aggregate has a neutral element
      p(x, n)         :- q(x), value(x, n).

  Where the rule asks only for groups that have rows (plan/implied.py) the result is all it takes.
  Of a set only the values matter, and not how often the body finds them: the source of `setof`
  has no other columns than the group and the value. And of `q(x, _)` in the rule around an
  aggregate only the projection to `x` is read (plan/outer.py). Sums over the same rows, by the
  same groups, are one relation (plan/siblings.py). Groups that have no value, and rows of the rule
  in which that is an error, are relations as well (plan/failing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from tidelog.logic import program as p
from tidelog.logic.functors import FALLIBLE
from tidelog.logic.graph import components
from tidelog.logic.safety import newly_bound, pattern_variables, term_variables
from tidelog.plan.aggregates import types_of
from tidelog.plan.body import (
    Apply,
    Assign,
    AtomUse,
    Check,
    Condition,
    Constant,
    Count,
    Filter,
    Rule,
    Unpack,
)
from tidelog.plan.externals import UNORDERED, is_external
from tidelog.plan.lowered import Aggregation, Layer, Lowered
from tidelog.plan.outer import without_unasked
from tidelog.plan.siblings import without_aggregates
from tidelog.source import Span
from tidelog.values.types import NUMBER, Type


def lower(program: p.Program) -> Lowered:
    """Return the program in the kernel's terms."""
    recomputed: frozenset[int] = frozenset()
    while True:
        try:
            return _Lowering(program, recomputed).run()
        except _GroupsInRecursionError as error:
            recomputed |= {error.stratum.index}


class _GroupsInRecursionError(Exception):
    """An aggregate of the stratum is grouped by variables that only its recursion binds.

    The program is stratified, but the groups would be a relation that depends on the recursion,
    and the recursion on their absence.
    """

    def __init__(self, stratum: p.Stratum) -> None:
        super().__init__(stratum)
        self.stratum = stratum


class _Lowering:
    def __init__(self, program: p.Program, recomputed: frozenset[int]) -> None:
        self._program = program
        self._recomputed = [s for s in program.strata if s.index in recomputed]
        self.relations: dict[str, tuple[Type, ...]] = {
            name: tuple(c.type for c in relation.columns)
            for name, relation in program.relations.items()
        }
        self.rules: list[Rule] = []
        self.aggregations: dict[str, Aggregation] = {}
        self.errors: dict[str, str] = {}
        self._projections: dict[tuple[str, tuple[int, ...]], str] = {}

    def run(self) -> Lowered:
        left = {name for stratum in self._recomputed for name in stratum.relations}
        for rule in self._program.rules:
            if rule.head.relation in left:
                continue
            self.add_rule(rule.head.relation, rule.head.args, rule.body, rule.text, rule.span)
        return Lowered(MappingProxyType(self.relations), self._layers())

    def stratum_of(self, relation: str) -> frozenset[str]:
        """Return the relations that depend on each other with this one, if it is recursive."""
        for stratum in self._program.strata:
            if relation in stratum.relations and stratum.recursive:
                return frozenset(stratum.relations)
        return frozenset()

    def fresh_relation(self, hint: str, types: Sequence[Type]) -> str:
        name = f"{hint}@{len(self.relations)}"
        self.relations[name] = tuple(types)
        return name

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
        """Lower one rule; what it implies is added as well.

        Failures of aggregates in a rule that is not `judged` are none of its business.
        """
        if any(isinstance(literal, p.Reduce) for literal in body):
            body = without_unasked(body, args, self.stratum_of(head), self.projection)
        plain = without_aggregates(self, body, head, args, text, span, judged=judged)
        self.rules.append(_RuleLowering(self, plain).rule(head, args, text, span))

    def projection(self, relation: str, columns: tuple[int, ...]) -> str:
        """Return the relation that holds some columns of another."""
        key = (relation, columns)
        if key not in self._projections:
            types = self.relations[relation]
            name = self.fresh_relation(relation, [types[c] for c in columns])
            self._projections[key] = name
            args = tuple(p.Var(f"c{i}", t) for i, t in enumerate(types))
            body_args = tuple(
                arg if i in columns else p.Wildcard(arg.type) for i, arg in enumerate(args)
            )
            span = _somewhere(self._program)
            self.add_rule(
                name,
                tuple(args[c] for c in columns),
                (p.Atom(relation, body_args, span),),
                f"columns of {relation}",
                span,
            )
        return self._projections[key]

    def _layers(self) -> tuple[Layer, ...]:
        # The groups that have failed are kept with the results.
        beside = {a.failed: a.result for a in self.aggregations.values() if a.failed is not None}
        needs: dict[str, set[str]] = {name: set() for name in self.relations if name not in beside}
        for rule in self.rules:
            read = (atom.relation for atom in rule.atoms)
            needs[rule.head.relation].update(beside.get(name, name) for name in read)
        for aggregation in self.aggregations.values():
            needs[aggregation.result].add(aggregation.source)
        whole = {}
        for stratum in self._recomputed:
            for name in stratum.relations:
                whole[name] = stratum
                needs[name] = relations_read(stratum) | set(stratum.relations)
        layers = []
        for names in components(needs):
            if names[0] in whole:
                layers.append(Layer(names, (), True, recompute=whole[names[0]]))
                continue
            recursive = any(needs[name].intersection(names) for name in names)
            rules = tuple(rule for rule in self.rules if rule.head.relation in names)
            if recursive:
                self._require_stratified(frozenset(names), rules)
            kept = self.aggregations.get(names[0])
            beside_it = () if kept is None or kept.failed is None else (kept.failed,)
            errors_of = self.errors.get(names[0])
            layers.append(Layer((*names, *beside_it), rules, recursive, kept, None, errors_of))
        return tuple(layers)

    def _require_stratified(self, names: frozenset[str], rules: tuple[Rule, ...]) -> None:
        negated = any(a.negated and a.relation in names for rule in rules for a in rule.atoms)
        if negated or names.intersection(self.aggregations):
            for stratum in self._program.strata:
                if names.intersection(stratum.relations):
                    raise _GroupsInRecursionError(stratum)


def relations_read(stratum: p.Stratum) -> set[str]:
    """Return the relations that the rules of a stratum read, its own among them."""
    found: set[str] = set()

    def walk(literals: tuple[p.Literal, ...]) -> None:
        for literal in literals:
            match literal:
                case p.Atom(relation):
                    found.add(relation)
                case p.Reduce(body=body):
                    walk(body)

    for rule in stratum.rules:
        walk(rule.body)
    return found


def _somewhere(program: p.Program) -> Span:
    return program.rules[0].span


class _RuleLowering:
    """Lowers the literals of one rule without aggregates."""

    def __init__(self, whole: _Lowering, body: tuple[p.Literal, ...]) -> None:
        self._whole = whole
        self._body = body
        self._atoms: list[AtomUse] = []
        self._conditions: list[Condition] = []
        self._constants: dict[str, Constant] = {}
        self._types: dict[str, Type] = {}
        self._fresh = 0

    def rule(self, head: str, args: tuple[p.Term, ...], text: str, span: Span | None) -> Rule:
        bound: set[str] = set()
        waiting = list(self._body)
        for literal in self._body:
            if isinstance(literal, p.Atom) and not literal.negated:
                bound |= set(pattern_variables(literal.args))
                self._positive(literal)
                waiting.remove(literal)
        while waiting:
            literal = next(lit for lit in waiting if _ready(lit, bound))
            waiting.remove(literal)
            new = newly_bound(literal, bound)
            self._literal(literal, bound)
            bound |= new
        slots = self._with_unit(tuple(self._slot(arg) for arg in args))
        return Rule(
            len(self._whole.rules), AtomUse(head, slots), tuple(self._atoms),
            tuple(self._conditions), MappingProxyType(self._constants),
            MappingProxyType(self._types), text, span,
        )  # fmt: skip

    # --- slots ---

    def _new(self, type_: Type) -> str:
        self._fresh += 1
        name = f"%{self._fresh}"
        self._types[name] = type_
        return name

    def _slot(self, term: p.Term) -> str:
        """Return a slot with the value of a term; what must be computed becomes a condition."""
        match term:
            case p.Var(name, type_):
                self._types[name] = type_
                return name
            case p.Const(value, type_):
                # Each use has a slot of its own: its code depends on the column it is used in.
                name = f"#{len(self._constants)}"
                self._constants[name] = Constant(value, type_)
                self._types[name] = type_
                return name
            case p.MakeRecord(args, type_):
                return self._computed("record", args, type_)
            case p.Apply(op, args, type_):
                return self._computed(op, args, type_)
            case p.Wildcard():
                raise AssertionError("`_` has no value")

    def _computed(self, op: str, args: tuple[p.Term, ...], type_: Type) -> str:
        slots = tuple(self._slot(arg) for arg in args)
        types = tuple(arg.type for arg in args)
        into = self._new(type_)
        value = Apply(op, slots, types, type_, op in FALLIBLE, is_external(op, types, type_))
        self._conditions.append(Assign(into, value))
        return into

    # --- literals ---

    def _positive(self, atom: p.Atom) -> None:
        args: list[str | None] = []
        patterns: list[tuple[str, p.MakeRecord]] = []
        for arg in atom.args:
            match arg:
                case p.Wildcard():
                    args.append(None)
                case p.MakeRecord():
                    slot = self._new(arg.type)
                    patterns.append((slot, arg))
                    args.append(slot)
                case _:
                    args.append(self._unrepeated(self._slot(arg), arg.type, args))
        self._atoms.append(AtomUse(atom.relation, self._with_unit(tuple(args))))
        for slot, pattern in patterns:
            self._unpack(slot, pattern)

    def _unrepeated(self, slot: str, type_: Type, args: Sequence[str | None]) -> str:
        """Return the slot, or for a repeated one a second slot that must be equal to it."""
        if slot not in args:
            return slot
        again = self._new(type_)
        self._conditions.append(Assign(again, slot))
        return again

    def _unpack(self, record: str, pattern: p.MakeRecord) -> None:
        into = []
        inner: list[tuple[str, p.Term]] = []
        for arg in pattern.args:
            slot = self._new(arg.type)
            into.append(slot)
            if not isinstance(arg, p.Wildcard):
                inner.append((slot, arg))
        self._conditions.append(Unpack(record, tuple(into), pattern.type))
        for slot, arg in inner:
            if isinstance(arg, p.MakeRecord):
                self._unpack(slot, arg)
            elif isinstance(arg, p.Var):
                self._conditions.append(Assign(self._slot(arg), slot))
            else:
                self._conditions.append(Check(p.Comparison.EQ, slot, self._slot(arg), arg.type))

    def _literal(self, literal: p.Literal, bound: set[str]) -> None:
        match literal:
            case p.Atom():
                self._negative(literal)
            case p.Compare(p.Comparison.EQ, left, right):
                self._equal(left, right, bound)
            case p.Compare(op, left, right):
                a, b = self._slot(left), self._slot(right)
                if left.type.kind in UNORDERED and op is not p.Comparison.NE:
                    types = (left.type, right.type)
                    self._conditions.append(Filter(op.value, (a, b), types, False, False))
                else:
                    self._conditions.append(Check(op, a, b, left.type))
            case p.Test(name, args, negated=negated):
                slots = tuple(self._slot(arg) for arg in args)
                kinds = tuple(arg.type for arg in args)
                self._conditions.append(Filter(name, slots, kinds, negated, name == "match"))
            case p.Generate(target, args):
                slots = tuple(self._slot(arg) for arg in args)
                into = self._new(target.type)
                step = slots[2] if len(slots) == 3 else None
                self._conditions.append(Count(into, slots[0], slots[1], step, target.type))
                if isinstance(target, p.Var):
                    self._conditions.append(Assign(self._slot(target), into))
                else:
                    self._conditions.append(
                        Check(p.Comparison.EQ, into, self._slot(target), target.type)
                    )
            case p.Reduce():
                raise AssertionError("aggregates have been replaced")

    def _negative(self, atom: p.Atom) -> None:
        """`!r(x, _)` and `!r([x, _])` become the absence of a projection over the variables."""
        if not any(isinstance(arg, p.Wildcard | p.MakeRecord) for arg in atom.args):
            self._absent(atom.relation, atom.args)
            return
        if any(isinstance(arg, p.MakeRecord) for arg in atom.args):
            names = tuple(dict.fromkeys(term_variables(atom.args)))
            types = dict(types_of(atom.args))
            head = tuple(p.Var(name, types[name]) for name in names)
            relation = self._whole.fresh_relation(atom.relation, [v.type for v in head])
            body = (p.Atom(atom.relation, atom.args, atom.span),)
            self._whole.add_rule(relation, head, body, f"matches in {atom.relation}", atom.span)
            self._absent(relation, head)
        else:
            columns = tuple(i for i, a in enumerate(atom.args) if not isinstance(a, p.Wildcard))
            relation = self._whole.projection(atom.relation, columns)
            self._absent(relation, tuple(atom.args[i] for i in columns))

    def _absent(self, relation: str, args: tuple[p.Term, ...]) -> None:
        slots: list[str] = []
        for arg in args:
            slots.append(self._unrepeated(self._slot(arg), arg.type, slots))
        self._atoms.append(AtomUse(relation, self._with_unit(tuple(slots)), negated=True))

    def _with_unit(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments; a relation without columns is stored with one, which holds 0."""
        return args or (self._slot(p.Const(0, NUMBER)),)

    def _equal(self, left: p.Term, right: p.Term, bound: set[str]) -> None:
        if not bound.issuperset(term_variables((right,))) or (
            isinstance(right, p.Var | p.MakeRecord) and not isinstance(left, p.Var | p.MakeRecord)
        ):
            left, right = right, left
        # Now the right side is known, and the left one is a pattern if either is.
        match left:
            case p.Var():
                self._conditions.append(Assign(self._slot(left), self._slot(right)))
            case p.MakeRecord() if not bound.issuperset(term_variables((left,))):
                self._unpack(self._slot(right), left)
            case _:
                a, b = self._slot(left), self._slot(right)
                self._conditions.append(Check(p.Comparison.EQ, a, b, left.type))


def _ready(literal: p.Literal, bound: set[str]) -> bool:
    """Return whether a condition's direction can be decided: its inputs are bound."""
    match literal:
        case p.Compare(p.Comparison.EQ, left, right):
            return any(bound.issuperset(term_variables((side,))) for side in (left, right))
        case p.Generate(_, args):
            return bound.issuperset(term_variables(args))
        case _:
            return True
