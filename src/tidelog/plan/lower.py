"""Lowering: a checked program becomes rules over slots, in layers.

Some constructs become relations of their own, with `@` in their names:

- Functors in heads and atoms become conditions, patterns become `Unpack`, constants get slots.
- The facts of a relation become a relation that never changes, `p@facts`, and one rule that copies
  it, `p(x..) :- p@facts(x..)`. So a fact is one more derivation of its row.
- A negated atom with unbound columns, `!edge(x, _)`, becomes the negation of a projection, which
  is a relation of its own.
- An aggregate becomes three relations. With `g` the variables it shares with its rule:

      p(x, n) :- q(x), n = count : { r(x, y), y > 2 }.

      source(x, y)    :- r(x, y), y > 2.              the solutions of the body
      result(x, n)    :  count over source, by x      see maintain/aggregations.py
      wanted(x)       :- q(x).                        the groups that the rule reads
      value(x, n)     :- result(x, n).
      value(x, 0)     :- wanted(x), !source(x, _).    only if the aggregate has a neutral element
      p(x, n)         :- q(x), value(x, n).

  If the rule reads only groups that have rows, `result` is enough; and instead of `q(x, _)` in a
  rule with an aggregate, only the projection to `x` is read (plan/redundant.py). A set depends only
  on its values, not on how often the body finds them, so the source of `setof` has no columns but
  the group and the value. Sums over the same rows and groups are one relation (plan/siblings.py).
  Groups without a value are a relation, and so are the rows in which that is an error
  (plan/failure_rules.py).
- If only a recursion binds the groups of an aggregate in its own rules, and the source depends on
  them, the wanted groups and the computed groups become two relations (`ReevaluatedProgram`
  in plan/lowered.py).
- A relation that keeps only some of its candidates reads them from a relation of their own
  (plan/pruning.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tidelog.logic import program as p
from tidelog.logic.functors import is_fallible
from tidelog.logic.graph import components
from tidelog.logic.pruning import needs_rounds
from tidelog.logic.variables import (
    newly_bound,
    pattern_variables,
    term_variables,
    typed_variables,
)
from tidelog.plan.aggregates import Fate, Noted, can_fail, term_can_fail
from tidelog.plan.body import (
    Assign,
    AtomUse,
    Check,
    Condition,
    Constant,
    Filter,
    FunctorCall,
    LoweredRule,
    OnFailure,
    Range,
    Unpack,
)
from tidelog.plan.externals import UNORDERED, needs_python
from tidelog.plan.folding import folded
from tidelog.plan.forced import ForcedStrategies
from tidelog.plan.lowered import (
    Aggregation,
    Candidates,
    Layer,
    Lowered,
    ReevaluatedProgram,
    facts_of,
    given_of,
)
from tidelog.plan.pruning import pruning_rules
from tidelog.plan.redundant import without_unused_columns
from tidelog.plan.siblings import without_aggregates
from tidelog.source import Span
from tidelog.values.types import NUMBER, Row, Type

_WHY_PRUNED = "it keeps only some of its candidates"
_WHY_ROUNDS = "its candidates are found in rounds"
_WHY_RECOMPUTED = "an aggregate in it is grouped by what only its recursion binds"


def lower(program: p.Program, forced: ForcedStrategies | None = None) -> Lowered:
    """Return the program in the kernel's terms; `forced` are the forced strategies, if not its own.

    A join tree is a later choice (plan/planned.py).
    """
    return _Lowering(program, forced or ForcedStrategies(program)).run()


def lower_body(program: p.Program, body: tuple[p.Literal, ...]) -> LoweredRule:
    """Return a body of positive atoms and comparisons over slots, as a rule without a head.

    Every comparison must find the variables bound that it needs.
    """
    whole = _Lowering(program, ForcedStrategies(program))
    return _RuleLowering(whole, body).rule("", (), "", None)


class _Lowering:
    def __init__(self, program: p.Program, forced: ForcedStrategies) -> None:
        self._program, self._forced = program, forced
        self.relations: dict[str, tuple[Type, ...]] = {
            name: tuple(c.type for c in relation.columns)
            for name, relation in program.relations.items()
        }
        self.rules: list[LoweredRule] = []
        self.aggregations: dict[str, Aggregation] = {}
        self.errors: dict[str, str] = {}
        self.judging: set[str] = set()
        self.groups: dict[str, str] = {}
        self.candidates: dict[str, Candidates] = {}
        self._pruned: dict[str, str] = {}
        """For each relation that holds candidates of another the relation that is pruned."""
        self._projections: dict[tuple[str, tuple[int, ...]], str] = {}
        self._projected: dict[str, str] = {}
        """For each projection the relation whose columns it has."""
        self._recursion: frozenset[str] = frozenset()
        """The relations that depend on each other with the head of the rule at hand."""

    def run(self) -> Lowered:
        heads = {name: self._add_pruned(name) for name in self._program.pruned}
        for rule in self._program.rules:
            self._recursion = self.stratum_of(rule.head.relation)
            head = heads.get(rule.head.relation, rule.head.relation)
            self.add_rule(head, rule.head.args, rule.body, rule.text, rule.span)
        facts = self._add_facts(heads)
        layers = self._layers()
        relations = self._types(name for layer in layers for name in layer.relations)
        return Lowered(relations, layers, facts)

    def _add_pruned(self, name: str) -> str:
        """Add the rules of a relation that is pruned; return the relation of its candidates."""
        recursive = bool(self.stratum_of(name))
        kept = self._program.pruned[name]
        in_rounds = needs_rounds(kept, recursive=recursive)
        relation = self._program.relations[name]
        made = pruning_rules(relation, kept, self.fresh_relation, one_by_one=in_rounds)
        self._pruned.update(dict.fromkeys((made.candidates, *made.helpers), name))
        self._recursion = self.stratum_of(name)
        for rule in made.rules:
            self.add_rule(rule.head.relation, rule.head.args, rule.body, rule.text, rule.span)
        source = made.candidates
        if not in_rounds:
            self._forced.refuse_others([name], "counting", _WHY_PRUNED)
        else:
            source = self.fresh_relation(f"{name}@new", self.relations[name])
            self._pruned[source] = name
            choice = kept if isinstance(kept, p.ChoiceDomain) else None
            self.candidates[made.candidates] = Candidates(source, choice)
        given = given_of(name)
        types = self.relations[given] = self.relations[name]
        args = tuple(p.Var(f"c{i}", t) for i, t in enumerate(types))
        span = self._program.relations[name].span or _somewhere(self._program)
        body = (p.Atom(given, args, span),)
        self.add_rule(source, args, body, f"given rows of {name}", span)
        return source

    def _add_facts(self, heads: Mapping[str, str]) -> Mapping[str, Sequence[Row]]:
        """Add relations that hold the facts, and a rule for each that copies them.

        `heads` has the relations of the candidates of those that are pruned.
        """
        found: dict[str, list[Row]] = {}
        for fact in self._program.facts:
            name = facts_of(fact.relation)
            if name not in found:
                types = self.relations[name] = self.relations[fact.relation]
                found[name] = []
                args = tuple(p.Var(f"c{i}", t) for i, t in enumerate(types))
                body = (p.Atom(name, args, fact.span),)
                head = heads.get(fact.relation, fact.relation)
                self.add_rule(head, args, body, f"facts of {fact.relation}", fact.span)
            found[name].append(fact.row)
        return MappingProxyType(found)

    def stratum_of(self, relation: str) -> frozenset[str]:
        """Return the relations that depend on each other with this one, if it is recursive."""
        relation = self._pruned.get(relation, relation)
        for stratum in self._program.strata:
            if relation in stratum.relations and stratum.recursive:
                return frozenset(stratum.relations)
        return frozenset()

    def is_recursive(self, literals: Iterable[p.Literal]) -> bool:
        """Return whether literals read the recursion that the rule at hand is part of."""
        return any(
            isinstance(literal, p.Atom) and self._whole(literal.relation) in self._recursion
            for literal in literals
        )

    def _whole(self, relation: str) -> str:
        """Return the relation that a projection is taken from, or the relation itself."""
        while relation in self._projected:
            relation = self._projected[relation]
        return relation

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
        fate: Fate = OnFailure.RAISE,
    ) -> None:
        """Lower one rule, and add the relations that it needs.

        `fate` says what to do with failures in its body.
        """
        if any(isinstance(literal, p.Reduce) for literal in body):
            body = without_unused_columns(body, args, self.stratum_of(head), self.projection)
        plain = without_aggregates(self, body, head, args, text, span, fate)
        if not isinstance(fate, Noted):
            self._add_plain(head, args, plain, text, span, fate)
            return
        args, computed = _without_doubtful(args, plain)
        plain = (*plain, *computed)
        self._add_plain(head, args, plain, text, span, OnFailure.SKIP)
        if any(map(can_fail, plain)):
            self._add_plain(fate.relation, fate.args, plain, text, span, OnFailure.DERIVE)

    def _add_plain(
        self,
        head: str,
        args: tuple[p.Term, ...],
        body: tuple[p.Literal, ...],
        text: str,
        span: Span | None,
        on_failure: OnFailure,
    ) -> None:
        """Lower a rule without aggregates."""
        rule = _RuleLowering(self, body).rule(head, args, text, span)
        self.rules.append(replace(rule, on_failure=on_failure))

    def projection(self, relation: str, columns: tuple[int, ...]) -> str:
        """Return the relation that holds some columns of another."""
        key = (relation, columns)
        if key not in self._projections:
            types = self.relations[relation]
            name = self.fresh_relation(relation, [types[c] for c in columns])
            self._projections[key] = name
            self._projected[name] = relation
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

    # --- layers ---

    def _layers(self) -> tuple[Layer, ...]:
        needs = self._needs()
        whole = dict(needs)
        for names in self._grouped_recursions(needs):
            every = names.union(*(needs[name] for name in names))
            whole.update(dict.fromkeys(names, every))
        return tuple(
            self._with_strategy(self._layer(names, needs))
            if self._inserted_in_rounds.keys().isdisjoint(names)
            else self._grouped_layer(names, needs)
            for names in components(whole)
        )

    def _with_strategy(self, layer: Layer) -> Layer:
        """Return a layer that is maintained by the strategy that is forced, if one is."""
        if not layer.rules or (strategy := self._forced.of(layer.relations)) is None:
            return layer
        if strategy == "recompute":
            return Layer(layer.relations, (), True, None, self._private([layer]), strategy=strategy)
        recursive = layer.recursive or strategy == "elastic"
        return replace(layer, recursive=recursive, strategy=strategy)

    def _needs(self) -> dict[str, set[str]]:
        """Return what each relation reads. Failed groups count as part of the result relation."""
        beside = {a.failed: a.result for a in self.aggregations.values() if a.failed is not None}
        needs: dict[str, set[str]] = {name: set() for name in self.relations if name not in beside}
        for rule in self.rules:
            read = (atom.relation for atom in rule.atoms)
            needs[rule.head.relation].update(beside.get(name, name) for name in read)
        for aggregation in self.aggregations.values():
            needs[aggregation.result].add(aggregation.source)
        return needs

    def _layer(self, names: tuple[str, ...], needs: Mapping[str, set[str]]) -> Layer:
        recursive = any(needs[name].intersection(names) for name in names)
        rules = tuple(rule for rule in self.rules if rule.head.relation in names)
        if recursive:
            negated = any(a.negated and a.relation in names for rule in rules for a in rule.atoms)
            assert not negated, f"{names} depend on their own absence"
            assert self.aggregations.keys().isdisjoint(names), f"{names} aggregate themselves"
        kept = self.aggregations.get(names[0])
        beside_it = () if kept is None or kept.failed is None else (kept.failed,)
        errors_of = self.errors.get(names[0])
        judges = names[0] in self.judging
        return Layer(
            (*names, *beside_it), rules, recursive, kept, None, judges, errors_of,
            pruned=names[0] in self._program.pruned,
        )  # fmt: skip

    @property
    def _inserted_in_rounds(self) -> dict[str, str]:
        """For each relation whose rows are inserted in rounds the one that they come from."""
        return self.groups | {name: found.source for name, found in self.candidates.items()}

    def _grouped_recursions(self, needs: Mapping[str, set[str]]) -> Iterator[set[str]]:
        """Yield the relations of each recursion that is evaluated in rounds.

        That is one that binds the groups of its own aggregates, or keeps some of its candidates.

        Relations of failures belong to it if they read its private relations.
        """
        groups = self._inserted_in_rounds
        fed = {name: {*read, groups[name]} for name, read in needs.items() if name in groups}
        for names in components({**needs, **fed}) if fed else ():
            if groups.keys().isdisjoint(names):
                continue
            kept = {self._pruned[name] for name in names if name in self.candidates}
            own = {name for name, of in self._pruned.items() if of in kept}
            together = {*names, *kept, *own}
            private = {name for name in together if not self._is_visible(name)}
            size = -1
            while size != len(private):
                size = len(private)
                private |= {name for name in self.judging if needs[name] & private}
            yield {*together, *private}

    def _is_visible(self, name: str) -> bool:
        """Return whether other layers read a relation of a grouped recursion."""
        return self._whole(name) in self._program.relations

    def _grouped_layer(self, names: tuple[str, ...], needs: Mapping[str, set[str]]) -> Layer:
        own = {name: needs[name].intersection(names) for name in names}
        layers = [self._layer(part, own) for part in components(own)]
        visible = tuple(filter(self._is_visible, names))
        is_pruned = not self.candidates.keys().isdisjoint(names)
        why = _WHY_ROUNDS if is_pruned else _WHY_RECOMPUTED
        self._forced.refuse_others(visible, "recompute", why)
        strategy = self._forced.of(visible)
        return Layer(visible, (), True, recompute=self._private(layers), strategy=strategy)

    def _private(self, layers: Sequence[Layer]) -> ReevaluatedProgram:
        """Return layers as a program of their own; what they read from others is its input."""
        known = {name for layer in layers for name in layer.relations}
        reads = {atom.relation for layer in layers for rule in layer.rules for atom in rule.atoms}
        reads |= {layer.aggregation.source for layer in layers if layer.aggregation is not None}
        inputs = [Layer((name,), (), False) for name in self.relations if name in reads - known]
        program = Lowered(self._types(known | reads), (*inputs, *layers), {})
        groups = {name: wanted for name, wanted in self.groups.items() if name in known}
        candidates = {name: found for name, found in self.candidates.items() if name in known}
        return ReevaluatedProgram(
            program,
            MappingProxyType(groups),
            frozenset(reads - known),
            MappingProxyType(candidates),
        )

    def _types(self, names: Iterable[str]) -> Mapping[str, tuple[Type, ...]]:
        """Return some relations with the types of their columns, in the order they were made."""
        kept = set(names)
        return MappingProxyType({n: types for n, types in self.relations.items() if n in kept})


def _without_doubtful(
    args: tuple[p.Term, ...], body: tuple[p.Literal, ...]
) -> tuple[tuple[p.Term, ...], tuple[p.Literal, ...]]:
    """Return the arguments of a head without what can fail, and conditions that compute it."""
    computed = [
        p.Compare(p.Comparison.EQ, p.Var(f"%head{i}", arg.type), arg, body[0].span)
        for i, arg in enumerate(args)
        if term_can_fail(arg)
    ]
    made = {id(condition.right): condition.left for condition in computed}
    return tuple(made.get(id(arg), arg) for arg in args), tuple(computed)


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

    def rule(
        self, head: str, args: tuple[p.Term, ...], text: str, span: Span | None
    ) -> LoweredRule:
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
        return LoweredRule(
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
        known = folded(op, args, type_)
        if known is not None:
            return self._slot(known)
        slots = tuple(self._slot(arg) for arg in args)
        types = tuple(arg.type for arg in args)
        into = self._new(type_)
        value = FunctorCall(
            op, slots, types, type_, is_fallible(op), needs_python(op, types, type_)
        )
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
                self._conditions.append(Range(into, slots[0], slots[1], step, target.type))
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
            types = dict(typed_variables(atom.args))
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
