"""Random programs with facts and epochs, reproducible from a seed.

`random_case(seed, shape)` gives a program that is safe, stratified and terminates, by construction:

- every relation has a level; a rule reads relations up to its head's level, and negates or
  aggregates only relations below it;
- variables of negated atoms, comparisons and heads come from those that the body has bound;
- a value that a rule computes is bounded by a guard which is one *unit* with the computation
  (`-9 < x, x < 9, y = x + 1`), so that shrinking cannot take the guard away and leave the sum. That
  also keeps every value in 32 bits, which clingo needs, unless `Shape.wide` asks for more.

`shrink(case, fails)` makes a failing case small; `case.describe()` prints it as Python to paste
into a regression test. Plain `random.Random` and no Hypothesis: a case takes well under a
millisecond to make, so thousands can be run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pprint import pformat
from random import Random
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Facts: TypeAlias = dict[str, set[Row]]
Epoch: TypeAlias = dict[str, tuple[list[Row], list[Row]]]
"""Relation -> (inserts, deletes); both may repeat rows, name absent ones, and share rows."""

BASE_SEED = int(os.environ.get("TIDELOG_SEED", "20240229"))
"""The first seed of every random test; the environment variable TIDELOG_SEED changes it."""


@dataclass(frozen=True)
class Shape:
    """What random programs look like.

    Counts are ranges, both ends included. The other numbers are weights: roughly the probability
    with which a feature is used where it could be; 0 turns it off.
    """

    relations: tuple[int, int] = (2, 7)
    rules: tuple[int, int] = (1, 3)  # of each derived relation
    atoms: tuple[int, int] = (1, 3)  # positive ones, in a body
    facts: tuple[int, int] = (0, 8)  # given rows of each relation
    epochs: tuple[int, int] = (1, 4)
    domain: int = 5  # numbers are 0 .. domain, symbols "a" .. "d"

    given_and_derived: float = 0.3
    program_facts: float = 0.2
    symbols: float = 0.4
    negative_numbers: float = 0.2
    wide: float = 0.0  # numbers near -2**63 and 2**63, and beyond 2**53
    wide_arity: float = 0.03  # six to eight columns
    nullary: float = 0.1

    linear: float = 0.5
    nonlinear: float = 0.3
    mutual: float = 0.4
    negation: float = 0.35
    negated_groups: float = 0.1  # !(a(x), x < 2)
    constants: float = 0.12
    repeated: float = 0.1
    wildcards: float = 0.15
    comparisons: float = 0.3
    arithmetic: float = 0.25
    equalities: float = 0.12
    disjunction: float = 0.15
    several_heads: float = 0.12
    same_rows: float = 0.15  # a second rule that derives the same head from the same rows
    aggregates: float = 0.25
    range: float = 0.1

    functional: float = 0.0  # two values for one key are possible, and an error
    floats: float = 0.0
    strings: float = 0.0  # cat, strlen, substr, contains


SMALL = Shape(relations=(2, 5), atoms=(1, 2), facts=(0, 5), domain=3, wide_arity=0.0)
"""Cheap enough for evaluation by nested loops."""


# --- cases --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declaration:
    """A relation of a random program. `types` are those of all columns, value column included."""

    name: str
    types: tuple[str, ...]
    functional: bool = False

    def __str__(self) -> str:
        columns = [f"c{i}: {type_}" for i, type_ in enumerate(self.types)]
        if self.functional:
            return f".decl {self.name}[{', '.join(columns[:-1])}]: {self.types[-1]}"
        return f".decl {self.name}({', '.join(columns)})"


@dataclass(frozen=True)
class Choice:
    """A disjunction: alternatives, each of them a conjunction."""

    alternatives: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"({'; '.join(', '.join(part) for part in self.alternatives)})"


@dataclass(frozen=True)
class NotBoth:
    """A negated group: `!(atom, left op right)`, or with `;` for the comma when `either`."""

    atom: str
    comparison: tuple[str, str, str]
    either: bool

    def __str__(self) -> str:
        joint = "; " if self.either else ", "
        return f"!({self.atom}{joint}{' '.join(self.comparison)})"


Conjunct: TypeAlias = str | Choice | NotBoth


@dataclass(frozen=True)
class RuleText:
    """A rule in pieces that shrinking can take away; a fact when the body is empty."""

    heads: tuple[str, ...]
    body: tuple[Conjunct, ...] = ()

    def __str__(self) -> str:
        heads = ", ".join(self.heads)
        return f"{heads} :- {', '.join(map(str, self.body))}." if self.body else f"{heads}."


@dataclass(frozen=True)
class RandomCase:
    """A program, the facts given at first, and the epochs that follow."""

    seed: int
    declarations: tuple[Declaration, ...]
    rules: tuple[RuleText, ...]
    facts: Mapping[str, frozenset[Row]]
    epochs: tuple[Epoch, ...] = ()
    shape: Shape = field(default_factory=Shape, repr=False, compare=False)

    @property
    def program(self) -> str:
        """The text of the program."""
        return "".join(f"{part}\n" for part in (*self.declarations, *self.rules))

    def states(self) -> Iterator[dict[str, frozenset[Row]]]:
        """Yield the given facts: at first, then after each epoch.

        A row that an epoch both inserts and deletes stays as it was.
        """
        current = {d.name: self.facts.get(d.name, frozenset()) for d in self.declarations}
        yield dict(current)
        for epoch in self.epochs:
            for name, (inserts, deletes) in epoch.items():
                added, removed = frozenset(inserts), frozenset(deletes)
                current[name] = (current[name] - (removed - added)) | (added - removed)
            yield dict(current)

    def describe(self) -> str:
        """Return the case as Python text, ready to paste into a regression test."""
        lines = "".join(f"    {line}\n" for line in self.program.splitlines())
        facts = {name: set(rows) for name, rows in self.facts.items() if rows}
        return (
            f"# seed {self.seed}\n"
            f'PROGRAM = r"""\n{lines}"""\n'
            f"FACTS = {pformat(facts, width=96)}\n"
            f"EPOCHS = {pformat(list(self.epochs), width=96)}\n"
        )


# --- generation ---------------------------------------------------------------------------------

WIDE_NUMBERS = (
    -(2**63),
    -(2**63) + 1,
    2**63 - 1,
    2**63 - 2,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**32,
)
SYMBOLS = ("a", "b", "c", "d")
FLOATS = (0.0, 0.5, 1.5, -2.0, 0.1)
_GUARD = 9  # computed values stay within -9 .. 9 times a small factor


def random_case(seed: int, shape: Shape | None = None) -> RandomCase:
    """Return the random case of a seed."""
    return _Generator(seed, shape or Shape()).case()


def literal(value: Any) -> str:
    """Return a value as the program text writes it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass
class _Bound:
    """The variables that a body has bound so far, by type."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def of(self, type_: str) -> list[str]:
        return self.names.setdefault(type_, [])

    def add(self, name: str, type_: str) -> None:
        if name not in self.of(type_):
            self.of(type_).append(name)

    def copy(self) -> _Bound:
        return _Bound({type_: list(names) for type_, names in self.names.items()})

    def __len__(self) -> int:
        return sum(map(len, self.names.values()))


class _Generator:
    def __init__(self, seed: int, shape: Shape) -> None:
        self._seed = seed
        self._shape = shape
        self._random = Random(seed)
        self._fresh = 0
        numbers = list(range(shape.domain + 1))
        if self._chance(shape.negative_numbers):
            numbers += [-1, -2]
        self._wide = self._chance(shape.wide)
        if self._wide:
            numbers += self._random.sample(WIDE_NUMBERS, 3)
        self._domains: dict[str, tuple[Any, ...]] = {
            "number": tuple(numbers),
            "symbol": SYMBOLS,
            "float": FLOATS,
        }
        self._use_symbols = self._chance(shape.symbols * 2)
        # Sums grow: only rules of one level may pass on a sum that is not cut to size.
        self._sum_level = self._random.randint(1, 3)
        self._declarations: list[Declaration] = []
        self._levels: dict[str, int] = {}

    def _chance(self, weight: float) -> bool:
        return self._random.random() < weight

    def _between(self, bounds: tuple[int, int]) -> int:
        return self._random.randint(*bounds)

    def case(self) -> RandomCase:
        self._declare()
        rules: list[RuleText] = []
        for declaration in self._declarations:
            if self._levels[declaration.name] > 0:
                for i in range(self._between(self._shape.rules)):
                    # A recursion needs a start: mostly the first rule only looks down.
                    rules.append(self._rule(declaration, i > 0 or self._chance(0.15)))
                    if self._chance(self._shape.same_rows):
                        rules.append(self._variant(rules[-1]))
        rules += self._cycles()
        facts: dict[str, frozenset[Row]] = {}
        for declaration in self._declarations:
            given = self._levels[declaration.name] == 0 or self._chance(
                self._shape.given_and_derived
            )
            count = self._between(self._shape.facts) if given else 0
            rows = frozenset(self._row(declaration) for _ in range(count))
            stated = set()
            if self._chance(self._shape.program_facts) and not declaration.functional:
                stated = {self._row(declaration) for _ in range(self._random.randint(1, 2))}
                stated |= set(self._random.sample(sorted(rows, key=repr), min(1, len(rows))))
            rules += [RuleText((self._fact(declaration, row),)) for row in sorted(stated, key=repr)]
            facts[declaration.name] = rows
        if self._chance(0.5):
            self._random.shuffle(rules)
        return RandomCase(
            self._seed,
            tuple(self._declarations),
            tuple(rules),
            facts,
            tuple(self._epochs(facts)),
            self._shape,
        )

    # --- relations and rows ---

    def _declare(self) -> None:
        count = self._between(self._shape.relations)
        level = 0
        for i in range(count):
            # Level 0 is only given; relations that share a level may be mutually recursive.
            if i == 1 or (i > 1 and self._chance(0.4)):
                level += 1
            functional = self._chance(self._shape.functional)
            name = f"{'abcdefghij'[i]}{'f' if functional else 'r'}"
            self._declarations.append(Declaration(name, self._types(functional), functional))
            self._levels[name] = level

    def _types(self, functional: bool) -> tuple[str, ...]:
        if self._chance(self._shape.nullary) and not functional:
            return ()
        arity = self._random.choice((1, 1, 2, 2, 2, 2, 3, 3, 4))
        if self._chance(self._shape.wide_arity):
            arity = self._random.randint(6, 8)
        arity = max(arity, 2 if functional else 1)
        kinds = ["number"] * 3
        kinds += ["symbol"] * (2 if self._use_symbols else 0)
        kinds += ["float"] * (2 if self._chance(self._shape.floats) else 0)
        return tuple(self._random.choice(kinds) for _ in range(arity))

    def _value(self, type_: str) -> Any:
        return self._random.choice(self._domains[type_])

    def _row(self, declaration: Declaration) -> Row:
        return tuple(self._value(type_) for type_ in declaration.types)

    def _fact(self, declaration: Declaration, row: Row) -> str:
        return f"{declaration.name}({', '.join(map(literal, row))})"

    # --- rules ---

    def _variable(self, prefix: str = "v") -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def _relations(self, low: int, high: int) -> list[Declaration]:
        return [d for d in self._declarations if low <= self._levels[d.name] <= high]

    def _rule(
        self, head: Declaration, may_recurse: bool, reads: Declaration | None = None
    ) -> RuleText:
        """Return a rule for `head`; one of its atoms is of `reads`, if that is given."""
        self._fresh = 0
        level = self._levels[head.name]
        bound = _Bound()
        body: list[Conjunct] = []
        for relation in self._body_relations(head, level, may_recurse, reads):
            body.append(self._positive(relation, bound, level))
        shape = self._shape
        if self._chance(shape.same_rows) and body:  # the same atom twice
            body.append(self._random.choice(body))
        extras: list[tuple[float, Callable[[_Bound, int], Conjunct | None]]] = [
            (shape.equalities, self._equality),
            (shape.arithmetic, self._arithmetic),
            (shape.strings, self._text),
            (shape.range, self._range),
            (shape.aggregates, self._aggregate),
            (shape.aggregates / 4, self._aggregate),
            (shape.negation, self._negated),
            (shape.negation / 3, self._negated),
            (shape.negated_groups, self._negated_group),
            (shape.comparisons, self._comparison),
            (shape.comparisons / 3, self._comparison),
            (shape.disjunction, self._choice),
        ]
        for weight, make in extras:
            if self._chance(weight):
                conjunct = make(bound, level)
                # Not what contradicts an atom, or most bodies would be empty.
                if conjunct is not None and str(conjunct).removeprefix("!") not in body:
                    body.append(conjunct)
        if self._chance(0.4):
            self._random.shuffle(body)
        heads = [self._head(head, bound)]
        if self._chance(shape.several_heads):
            others = self._relations(level, max(self._levels.values()))
            heads.append(self._head(self._random.choice(others), bound))
        return RuleText(tuple(heads), tuple(body))

    def _cycles(self) -> Iterator[RuleText]:
        """Yield rules by which all relations of a level depend on each other."""
        for level in range(1, max(self._levels.values(), default=0) + 1):
            members = self._relations(level, level)
            if len(members) > 1 and self._chance(self._shape.mutual):
                for relation, following in zip(members, members[1:] + members[:1], strict=True):
                    yield self._rule(relation, True, following)

    def _variant(self, rule: RuleText) -> RuleText:
        """Return a rule that derives the head of `rule` from the same rows."""
        body = list(rule.body)
        self._random.shuffle(body)
        return RuleText(rule.heads[:1], tuple(body))

    def _body_relations(
        self, head: Declaration, level: int, may_recurse: bool, reads: Declaration | None
    ) -> list[Declaration]:
        shape = self._shape
        lower = self._relations(0, level - 1)
        same = self._relations(level, level)
        count = self._between(shape.atoms)
        recursive = 0
        if may_recurse and self._chance(shape.linear):
            recursive = 1
            if self._chance(shape.nonlinear):
                recursive = self._random.choice((2, 2, 3))
        chosen = [] if reads is None else [reads]
        for _ in range(min(recursive, shape.atoms[1])):
            other = len(same) > 1 and self._chance(shape.mutual)
            chosen.append(self._random.choice(same) if other else head)
        while len(chosen) < count:
            # Mostly the level just below, so that levels build on each other.
            near = self._relations(max(0, level - 1), level - 1)
            chosen.append(self._random.choice(near if self._chance(0.5) else lower))
        self._random.shuffle(chosen)
        return chosen

    def _atom(self, relation: Declaration, args: list[str]) -> str:
        if relation.functional and self._chance(0.5):
            return f"{relation.name}[{', '.join(args[:-1])}] = {args[-1]}"
        return f"{relation.name}({', '.join(args)})"

    def _positive(
        self, relation: Declaration, bound: _Bound, level: int, prefix: str = "v", limit: int = 4
    ) -> str:
        """Return an atom that shares variables with what is bound, and binds others."""
        args = []
        here: dict[str, list[str]] = {}
        for type_ in relation.types:
            known = bound.of(type_)
            if self._chance(self._shape.constants):
                args.append(literal(self._value(type_)))
            elif self._chance(self._shape.wildcards):
                args.append("_")
            elif here.get(type_) and self._chance(self._shape.repeated):
                args.append(self._random.choice(here[type_]))
            else:
                # A body has few variables: joins hit, and nested loops end.
                if known and (len(bound) >= limit or self._chance(0.5)):
                    name = self._random.choice(known)
                else:
                    name = self._variable(prefix)
                args.append(name)
                here.setdefault(type_, []).append(name)
        for type_, names in here.items():
            for name in names:
                bound.add(name, type_)
        # A functional atom is written as a lookup only where that binds the same variables.
        return f"{relation.name}({', '.join(args)})" if "_" in args else self._atom(relation, args)

    def _head(self, relation: Declaration, bound: _Bound) -> str:
        args = []
        for type_ in relation.types:
            known = bound.of(type_)
            if known and not self._chance(self._shape.constants / 2):
                args.append(self._random.choice(known))
            else:
                args.append(literal(self._value(type_)))
        if relation.functional:
            return f"{relation.name}[{', '.join(args[:-1])}] = {args[-1]}"
        return f"{relation.name}({', '.join(args)})"

    # --- conditions on what is bound ---

    def _negated(self, bound: _Bound, level: int) -> str:
        relation = self._random.choice(self._relations(0, level - 1))
        args = []
        for type_ in relation.types:
            known = bound.of(type_)
            if self._chance(self._shape.wildcards):
                args.append("_")
            elif known and not self._chance(self._shape.constants):
                args.append(self._random.choice(known))
            else:
                args.append(literal(self._value(type_)))
        return f"!{relation.name}({', '.join(args)})"

    def _negated_group(self, bound: _Bound, level: int) -> NotBoth | None:
        condition = self._comparison(bound, level)
        if condition is None:
            return None
        left, op, right = condition.split(" ")
        atom = self._negated(bound, level).removeprefix("!")
        return NotBoth(atom, (left, op, right), self._chance(0.5))

    def _comparison(self, bound: _Bound, level: int) -> str | None:
        types = [type_ for type_, names in bound.names.items() if names]
        if not types:
            return None
        type_ = self._random.choice(types)
        left = self._random.choice(bound.of(type_))
        right = literal(self._value(type_))
        others = [name for name in bound.of(type_) if name != left]
        if others and self._chance(0.5):
            right = self._random.choice(others)
        if self._chance(0.3):
            left, right = right, left
        op = self._random.choice(("!=", "!=", "<", "<=", ">", ">=", "="))
        return f"{left} {op} {right}"

    def _choice(self, bound: _Bound, level: int) -> Choice | None:
        if self._chance(0.4):  # alternatives that bind
            high = level if self._shape.linear else level - 1
            relation = self._random.choice(self._relations(0, high))
            inner = bound.copy()
            atom = self._positive(relation, inner, level)
            new = [
                (name, type_)
                for type_, names in inner.names.items()
                for name in names
                if name not in bound.of(type_)
            ]
            if new:
                other = []
                for name, type_ in new:
                    known = bound.of(type_)
                    same = known and self._chance(0.5)
                    value = self._random.choice(known) if same else literal(self._value(type_))
                    other.append(f"{name} = {value}")
                    bound.add(name, type_)
                return Choice(((atom,), tuple(other)))
        parts: list[tuple[str, ...]] = []
        for _ in range(self._random.choice((2, 2, 3))):
            makers = [self._comparison, self._checked]
            if self._shape.negation:
                makers.append(self._negated)
            part = self._random.choice(makers)(bound, level)
            more = self._comparison(bound, level) if self._chance(0.25) else None
            if part is not None:
                parts.append((part,) if more is None else (part, more))
        return Choice(tuple(parts)) if len(parts) > 1 else None

    def _checked(self, bound: _Bound, level: int) -> str:
        """Return a positive atom that binds nothing: recursive ones may stand in a disjunction."""
        high = level if self._shape.linear else level - 1
        relation = self._random.choice(self._relations(0, high))
        return self._negated_like(relation, bound)

    def _negated_like(self, relation: Declaration, bound: _Bound) -> str:
        args = [
            self._random.choice(bound.of(type_)) if bound.of(type_) else "_"
            for type_ in relation.types
        ]
        return f"{relation.name}({', '.join(args)})"

    # --- conditions that bind ---

    def _equality(self, bound: _Bound, level: int) -> str | None:
        type_ = self._random.choice([t for t, names in bound.names.items() if names] or ["number"])
        known = bound.of(type_)
        value = literal(self._value(type_))
        if known and self._chance(0.5):
            value = self._random.choice(known)
        name = self._variable()
        bound.add(name, type_)
        return f"{name} = {value}" if self._chance(0.7) else f"{value} = {name}"

    def _arithmetic(self, bound: _Bound, level: int) -> str | None:
        """Return a computation and the guard that bounds it."""
        known = bound.of("number")
        if not known:
            return None
        x, y = self._random.choice(known), self._random.choice(known)
        k = self._random.randint(1, 3)
        if self._chance(0.3):
            term = self._random.choice((f"{x} % {k + 1}", f"-({x} % {k + 2})", f"{x} % -{k + 1}"))
            guard = ""
        else:
            term = self._random.choice(
                (f"{x} + {k}", f"{x} - {k}", f"{x} * {k}", f"{x} + {y}", f"{x} - {y} * {k}",
                 f"{x} * {y}", f"({x} + {k}) % 4", f"{x} / {k}", f"-{x}",
                 f"({x} - {y}) * {k}", f"{x} - ({y} - {k})")
            )  # fmt: skip
            low, high = -self._random.randint(0, _GUARD), self._random.randint(2, _GUARD)
            names = dict.fromkeys(name for name in (x, y) if name in term)
            guard = "".join(f"{low} <= {name}, {name} < {high}, " for name in names)
        # Values made in a recursion are cut, or they would grow with every round.
        if self._chance(0.25):
            return f"{guard}{self._random.choice(known)} != {term}"
        name = self._variable()
        bound.add(name, "number")
        cut = f", {-_GUARD} <= {name}, {name} <= {_GUARD}" if guard else ""
        return f"{guard}{name} = {term}{cut}"

    def _range(self, bound: _Bound, level: int) -> str:
        known = bound.of("number")
        start, stop = str(self._random.randint(-1, 4)), str(self._random.randint(-1, 5))
        if known and self._chance(0.5):
            start = f"{self._random.choice(known)} % 4"
        step = self._random.choice(("", "", "", ", 1", ", 2", ", -1", ", -2"))
        if known and self._chance(0.2):
            return f"{self._random.choice(known)} = range({start}, {stop}{step})"
        name = self._variable()
        bound.add(name, "number")
        return f"{name} = range({start}, {stop}{step})"

    def _text(self, bound: _Bound, level: int) -> str | None:
        known = bound.of("symbol")
        if not known:
            return None
        x, y = self._random.choice(known), self._random.choice(known)
        kind = self._random.randrange(4)
        if kind == 0:
            return f"contains({x}, {y})"
        if kind == 1:
            name = self._variable()
            bound.add(name, "number")
            return f"{name} = strlen({x})"
        term = f"cat({x}, {y})" if kind == 2 else f"substr({x}, {self._random.randint(0, 1)}, 1)"
        name = self._variable()
        bound.add(name, "symbol")
        return f"{name} = {term}, strlen({name}) < 4"

    def _aggregate(self, bound: _Bound, level: int) -> str | None:
        """Return an aggregate over lower relations, grouped by some of the bound variables."""
        op = self._random.choice(("count", "count", "sum", "sum", "min", "max"))
        groups = self._random.choice((0, 1, 1, 3))
        outer = _Bound()
        for type_, names in bound.names.items():
            for name in self._random.sample(names, min(len(names), groups)):
                outer.add(name, type_)
        inner = outer.copy()
        # Two aggregates of a rule may use the same names for their own variables.
        fresh, self._fresh = self._fresh, 0
        parts: list[str] = []
        for _ in range(self._random.choice((1, 1, 2))):
            relation = self._random.choice(self._relations(0, level - 1))
            parts.append(self._positive(relation, inner, level - 1, "w"))
        if self._chance(self._shape.negation):
            parts.append(self._negated(inner, level))
        if self._chance(self._shape.comparisons):
            condition = self._comparison(inner, level)
            if condition is not None:
                parts.append(condition)
        self._fresh = fresh
        local = {
            type_: [name for name in names if name not in bound.of(type_)]
            for type_, names in inner.names.items()
        }
        result = self._variable()
        if op == "count":
            bound.add(result, "number")
            return f"{result} = count : {{ {', '.join(parts)} }}"
        targets = [(n, t) for t, names in local.items() for n in names if t in ("number", "float")]
        if not targets:
            bound.add(result, "number")
            return f"{result} = count : {{ {', '.join(parts)} }}"
        target, type_ = self._random.choice(targets)
        bound.add(result, type_)
        shown = f"{target} + 1" if type_ == "number" and self._chance(0.2) else target
        if type_ == "float":
            return f"{result} = {op} {target} : {{ {', '.join(parts)} }}"
        if self._wide and (op == "sum" or shown != target):
            parts.append(f"{-_GUARD} < {target}, {target} < {_GUARD}")
        aggregate = f"{result} = {op} {shown} : {{ {', '.join(parts)} }}"
        if op == "sum" and level != self._sum_level:
            return f"{aggregate}, {result} < 50, -50 < {result}"
        return aggregate

    # --- epochs ---

    def _epochs(self, facts: Mapping[str, frozenset[Row]]) -> Iterator[Epoch]:
        current = {name: set(rows) for name, rows in facts.items()}
        for _ in range(self._between(self._shape.epochs)):
            epoch: Epoch = {}
            for declaration in self._declarations:
                # Derived relations change, too: any relation may be given.
                derived = self._levels[declaration.name] > 0
                if self._chance(0.75 if derived else 0.3):
                    continue
                here = current[declaration.name]
                present = sorted(here, key=repr)
                inserts = [self._row(declaration) for _ in range(self._random.choice((0, 1, 2, 3)))]
                deletes = self._random.sample(
                    present, min(len(present), self._random.choice((0, 1, 2, 4)))
                )
                if present and self._chance(0.15):
                    inserts.append(self._random.choice(present))  # present already
                if self._chance(0.15):
                    deletes.append(self._row(declaration))  # perhaps absent, perhaps only derived
                if inserts and self._chance(0.15):
                    inserts.append(self._random.choice(inserts))  # twice
                if inserts and self._chance(0.12):
                    deletes.append(self._random.choice(inserts))  # in and out: stays as it was
                if deletes and self._chance(0.08):
                    inserts.append(self._random.choice(deletes))
                epoch[declaration.name] = (inserts, deletes)
                added, removed = set(inserts), set(deletes)
                here -= removed - added
                here |= added - removed
            yield epoch


# --- shrinking ----------------------------------------------------------------------------------


def shrink(
    case: RandomCase, fails: Callable[[RandomCase], bool], attempts: int = 4000
) -> RandomCase:
    """Return a smaller case for which `fails` still holds: greedily, until nothing can go.

    Candidates that are no programs (an unbound variable, an undeclared relation) are skipped.
    """
    progress = True
    while progress and attempts > 0:
        progress = False
        for candidate in _smaller(case):
            attempts -= 1
            if attempts <= 0:
                break
            if is_program(candidate) and fails(candidate):
                case, progress = candidate, True
                break
    return case


def is_program(case: RandomCase) -> bool:
    """Return whether the text of the case is a program."""
    from tidelog.errors import ProgramError
    from tidelog.logic.program import Program

    try:
        Program.parse(case.program)
    except ProgramError:
        return False
    return True


def _smaller(case: RandomCase) -> Iterator[RandomCase]:
    """Yield cases with something taken away, the largest pieces first."""
    for epochs in _without_each(case.epochs):
        yield replace(case, epochs=epochs)
    for i, declaration in enumerate(case.declarations):
        declarations = case.declarations[:i] + case.declarations[i + 1 :]
        rules = tuple(rule for rule in case.rules if declaration.name not in str(rule))
        facts = {name: rows for name, rows in case.facts.items() if name != declaration.name}
        epochs = tuple(
            {name: change for name, change in epoch.items() if name != declaration.name}
            for epoch in case.epochs
        )
        yield replace(case, declarations=declarations, rules=rules, facts=facts, epochs=epochs)
    for rules in _without_each(case.rules):
        yield replace(case, rules=rules)
    for i, rule in enumerate(case.rules):
        for smaller in _smaller_rules(rule):
            yield replace(case, rules=(*case.rules[:i], smaller, *case.rules[i + 1 :]))
    for name, rows in case.facts.items():
        if len(rows) > 1:
            yield replace(case, facts={**case.facts, name: frozenset()})
        for row in sorted(rows, key=repr):
            yield replace(case, facts={**case.facts, name: rows - {row}})
    for i, epoch in enumerate(case.epochs):
        for smaller_epoch in _smaller_epochs(epoch):
            yield replace(case, epochs=(*case.epochs[:i], smaller_epoch, *case.epochs[i + 1 :]))


def _without_each(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for i in range(len(items)):
        yield items[:i] + items[i + 1 :]


def _smaller_rules(rule: RuleText) -> Iterator[RuleText]:
    if len(rule.heads) > 1:
        yield from (replace(rule, heads=heads) for heads in _without_each(rule.heads))
    if len(rule.body) > 1:
        yield from (replace(rule, body=body) for body in _without_each(rule.body))
    for i, conjunct in enumerate(rule.body):
        if isinstance(conjunct, Choice):
            for part in conjunct.alternatives:
                yield replace(rule, body=(*rule.body[:i], *part, *rule.body[i + 1 :]))


def _smaller_epochs(epoch: Epoch) -> Iterator[Epoch]:
    for name, (inserts, deletes) in epoch.items():
        yield {other: change for other, change in epoch.items() if other != name}
        for i in range(len(inserts)):
            yield {**epoch, name: (inserts[:i] + inserts[i + 1 :], deletes)}
        for i in range(len(deletes)):
            yield {**epoch, name: (inserts, deletes[:i] + deletes[i + 1 :])}


def check_cases(
    seeds: Iterable[int],
    check: Callable[[RandomCase], str | None],
    shape: Shape | None = None,
) -> None:
    """Run `check` on the case of every seed; it returns what is wrong with a case, or None.

    The first failure is shrunk and raised with its seed, what is wrong, and the case itself.
    """

    def complaint(case: RandomCase) -> str | None:
        try:
            return check(case)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    for seed in seeds:
        case = random_case(seed, shape)
        if complaint(case) is not None:
            small = shrink(case, lambda candidate: complaint(candidate) is not None, attempts=600)
            raise AssertionError(
                f"seed {seed}: {complaint(small)}\n\n{small.describe()}"
                f"\n# run again: TIDELOG_SEED={BASE_SEED}, or random_case({seed}, shape)"
            )


def seed_blocks(cases: int, block: int, offset: int = 0) -> list[range]:
    """Return the seeds of `cases` cases in blocks, one for each parametrized test."""
    first = BASE_SEED + offset
    return [
        range(start, min(start + block, first + cases))
        for start in range(first, first + cases, block)
    ]
