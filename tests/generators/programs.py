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

import datetime as dt
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pprint import pformat
from random import Random
from typing import Any, TypeAlias

from tests.seeds import again
from tidelog.values.scalars import canonical_float

Row: TypeAlias = tuple[Any, ...]
Facts: TypeAlias = dict[str, set[Row]]
Epoch: TypeAlias = dict[str, tuple[list[Row], list[Row]]]
"""Relation -> (inserts, deletes); both may repeat rows, name absent ones, and share rows."""


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
    wide_arity: float = 0.03  # of `wide_columns`
    wide_columns: tuple[int, int] = (6, 8)
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
    typed: float = 0.0  # the types of TYPED, and what is computed with them
    extremes: float = 0.0  # inf, NaN, the ends of unsigned and of floats, long symbols
    errors: float = 0.0  # computations that fail on some values

    bursts: float = 0.0  # epochs that insert many rows, or delete nearly all
    flips: float = 0.0  # epochs that undo the one before
    widening: float = 0.0  # from some epoch on, values that are wider than all before


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
    types: tuple[str, ...] = ()
    shape: Shape = field(default_factory=Shape, repr=False, compare=False)

    @property
    def program(self) -> str:
        """The text of the program."""
        return "".join(f"{part}\n" for part in (*self.types, *self.declarations, *self.rules))

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
POISON = 7  # rare in the rows of epochs, and what computations fail on (`Shape.errors`)

NAN = canonical_float(math.nan)  # there is one, an object
LONG_SYMBOLS = ("", "x" * 300, "x" * 299 + "y", "\u00e4\u20ac\U0001f600", "7", "-3", "a b,c")
EXTREME_FLOATS = (
    math.inf, -math.inf, NAN, sys.float_info.max, -sys.float_info.max, sys.float_info.min, 5e-324,
)  # fmt: skip
EXTREME_UNSIGNED = (2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)

RECORD_TYPES = (
    ".type Pair = [a: number, b: symbol]",
    ".type List = [head: number, tail: List]",
)
TYPED: dict[str, tuple[Any, ...]] = {
    "unsigned": (0, 1, 2, 3),
    "bool": (False, True),
    "date": (dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)),
    "timestamp": (
        dt.datetime(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2024, 2, 29, 12, 30),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    "decimal(9,2)": tuple(map(Decimal, ("0.00", "1.50", "-2.25", "9999999.99", "-9999999.99"))),
    "decimal(18,4)": tuple(map(Decimal, ("0.0000", "1.5000", "-99999999999999.9999"))),
    "Pair": (None, (0, "a"), (1, "a"), (1, "b"), (-(2**63), "")),
    "List": (None, (1, None), (2, (1, None)), (3, (2, (1, None))), (2**63 - 1, (1, None))),
    "set(number)": tuple(map(frozenset, ((), (1,), (1, 2), (0, 1, 2), (-(2**63), 2**63 - 1)))),
    "set(symbol)": tuple(map(frozenset, ((), ("a",), ("a", "b")))),
    "set(Pair)": tuple(map(frozenset, ((), (None,), ((1, "a"),), ((1, "a"), (1, "b"), None)))),
    "set(set(number))": (
        frozenset(),
        frozenset({frozenset()}),
        frozenset({frozenset({1}), frozenset({1, 2})}),
    ),
}
"""Types beside number, symbol and float, and the values that random rows take."""
NUMERIC = frozenset({"number", "unsigned", "float", "decimal(9,2)", "decimal(18,4)"})


def random_case(seed: int, shape: Shape | None = None) -> RandomCase:
    """Return the random case of a seed."""
    return _Generator(seed, shape or Shape()).case()


def literal(value: Any) -> str | None:
    """Return a value as the program text writes it; None for those that it cannot write."""
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case str() | dt.datetime() | dt.date():
            return f'"{value}"'
        case tuple():
            parts = list(map(literal, value))
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        case frozenset():
            return None
        case float() if not math.isfinite(value):
            return None
        case _:
            return str(value)


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
        self._typed = self._chance(shape.typed) if shape.typed else False
        if self._typed:
            self._domains.update(TYPED)
        if shape.extremes and self._chance(shape.extremes):
            self._extend("symbol", self._random.sample(LONG_SYMBOLS, 3))
            self._extend("float", self._random.sample(EXTREME_FLOATS, 4))
            if self._typed:
                self._extend("unsigned", EXTREME_UNSIGNED)
        self._use_symbols = self._chance(shape.symbols * 2)
        # Sums grow: only rules of one level may pass on a sum that is not cut to size.
        self._sum_level = self._random.randint(1, 3)
        self._declarations: list[Declaration] = []
        self._levels: dict[str, int] = {}

    def _extend(self, type_: str, values: Iterable[Any]) -> None:
        self._domains[type_] = (*self._domains[type_], *values)

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
        program_facts: dict[str, list[Row]] = {}
        for declaration in self._declarations:
            given = self._levels[declaration.name] == 0 or self._chance(
                self._shape.given_and_derived
            )
            count = self._between(self._shape.facts) if given else 0
            rows = frozenset(self._row(declaration) for _ in range(count))
            if declaration.functional:
                rows = frozenset({row[:-1]: row for row in sorted(rows, key=repr)}.values())
            fixed = program_facts[declaration.name] = []
            writable = all(map(self._is_writable, declaration.types))
            if self._chance(self._shape.program_facts) and writable:
                chosen = set(self._random.sample(sorted(rows, key=repr), min(1, len(rows))))
                if not declaration.functional:  # which has given rows as facts, or it would fail
                    chosen |= {self._row(declaration) for _ in range(self._random.randint(1, 2))}
                fixed += [r for r in sorted(chosen, key=repr) if self._fact(declaration, r)]
            rules += [RuleText((str(self._fact(declaration, row)),)) for row in fixed]
            facts[declaration.name] = rows
        if self._chance(0.5):
            self._random.shuffle(rules)
        return RandomCase(
            self._seed,
            tuple(self._declarations),
            tuple(rules),
            facts,
            tuple(self._epochs(facts, program_facts)),
            RECORD_TYPES if self._typed else (),
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
        # Rules take values that the text cannot write from these.
        used = dict.fromkeys(type_ for d in self._declarations for type_ in d.types)
        for i, type_ in enumerate(t for t in used if not self._is_writable(t)):
            self._declarations.append(Declaration(f"zr{i}", (type_,)))
            self._levels[f"zr{i}"] = 0

    def _types(self, functional: bool) -> tuple[str, ...]:
        if self._chance(self._shape.nullary) and not functional:
            return ()
        arity = self._random.choice((1, 1, 2, 2, 2, 2, 3, 3, 4))
        if self._chance(self._shape.wide_arity):
            arity = self._between(self._shape.wide_columns)
        arity = max(arity, 2 if functional else 1)
        kinds = ["number"] * 3
        kinds += ["symbol"] * (2 if self._use_symbols else 0)
        kinds += ["float"] * (2 if self._chance(self._shape.floats) else 0)
        if self._typed:
            kinds += self._random.sample(list(TYPED), 6)
        return tuple(self._random.choice(kinds) for _ in range(arity))

    def _value(self, type_: str) -> Any:
        return self._random.choice(self._domains[type_])

    def _row(self, declaration: Declaration) -> Row:
        return tuple(self._value(type_) for type_ in declaration.types)

    def _fact(self, declaration: Declaration, row: Row) -> str | None:
        args = list(map(literal, row))
        return None if None in args else f"{declaration.name}({', '.join(map(str, args))})"

    def _is_writable(self, type_: str) -> bool:
        return any(literal(value) is not None for value in self._domains[type_])

    def _literal(self, type_: str) -> str | None:
        """Return a value as the text writes it, where its place tells its type."""
        text = literal(self._value(type_))
        if text is None:  # an infinity, or a set
            texts = [text for value in self._domains[type_] if (text := literal(value)) is not None]
            text = self._random.choice(texts) if texts else None
        return text

    def _known(self, type_: str) -> str | None:
        """Return a value as the text writes it, where nothing else tells its type."""
        text = self._literal(type_)
        return f"as({text}, {type_})" if text is not None and type_ in TYPED else text

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
            (0.5 if self._typed else 0.0, self._typed_value),
            (0.2 if self._typed else 0.0, self._typed_value),
            (shape.errors, self._fallible),
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
            if weight and self._chance(weight):
                conjunct = make(bound, level)
                # Not what contradicts an atom, or most bodies would be empty.
                if conjunct is not None and str(conjunct).removeprefix("!") not in body:
                    body.append(conjunct)
        derived = [head]
        if self._chance(shape.several_heads):
            derived.append(self._random.choice(self._relations(level, max(self._levels.values()))))
        for type_ in dict.fromkeys(type_ for relation in derived for type_ in relation.types):
            if not bound.of(type_) and not self._is_writable(type_):
                name = self._variable()
                body.append(self._provider(type_, name))
                bound.add(name, type_)
        if self._chance(0.4):
            self._random.shuffle(body)
        return RuleText(tuple(self._head(relation, bound) for relation in derived), tuple(body))

    def _provider(self, type_: str, name: str) -> str:
        """Return an atom that binds `name` to values which the text cannot write."""
        relation = next(d for d in self._declarations if d.name[0] == "z" and d.types == (type_,))
        return f"{relation.name}({name})"

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
        args: list[str] = []
        here: dict[str, list[str]] = {}
        for type_ in relation.types:
            known = bound.of(type_)
            if self._chance(self._shape.constants) and self._is_writable(type_):
                args.append(str(self._literal(type_)))
            elif self._chance(self._shape.wildcards):
                args.append("_")
            elif type_ == "Pair" and self._chance(0.3):  # a pattern that takes it apart
                parts = [("number", self._variable(prefix)), ("symbol", self._variable(prefix))]
                args.append(f"[{parts[0][1]}, {parts[1][1]}]")
                for part, name in parts:
                    here.setdefault(part, []).append(name)
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
            if known and not (self._chance(self._shape.constants / 2) and self._is_writable(type_)):
                args.append(self._random.choice(known))
            else:
                args.append(str(self._literal(type_)))
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
                args.append(self._literal(type_) or "_")
        return f"!{relation.name}({', '.join(args)})"

    def _negated_group(self, bound: _Bound, level: int) -> NotBoth | None:
        condition = self._comparison(bound, level)
        if condition is None:
            return None
        # A text or a record has spaces of its own.
        left, op, right = next(
            (left, op, right)
            for op in ("!=", "<=", ">=", "<", ">", "=")
            for left, sign, right in [condition.partition(f" {op} ")]
            if sign
        )
        atom = self._negated(bound, level).removeprefix("!")
        return NotBoth(atom, (left, op, right), self._chance(0.5))

    def _comparison(self, bound: _Bound, level: int) -> str | None:
        types = [type_ for type_, names in bound.names.items() if names]
        if not types:
            return None
        type_ = self._random.choice(types)
        left = self._random.choice(bound.of(type_))
        others = [name for name in bound.of(type_) if name != left]
        right = self._literal(type_)
        if others and (self._chance(0.5) or right is None):
            right = self._random.choice(others)
        if right is None:
            return None
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
                    same = known and (self._chance(0.5) or not self._is_writable(type_))
                    if same:
                        other.append(f"{name} = {self._random.choice(known)}")
                    elif self._is_writable(type_):
                        other.append(f"{name} = {self._known(type_)}")
                    else:
                        other.append(self._provider(type_, name))
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
        value = self._known(type_)
        if known and (self._chance(0.5) or value is None):
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
        ops = ["count", "count", "sum", "sum", "min", "max"]
        if self._typed:
            ops += ["setof", "setof", "concat", "mean", "total", "min", "max", "count of"]
        op = self._random.choice(ops)
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
        if self._typed and op not in ("count", "sum"):
            return self._typed_aggregate(op, result, local, parts, bound)
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
        if self._wide and not self._shape.widening and (op == "sum" or shown != target):
            parts.append(f"{-_GUARD} < {target}, {target} < {_GUARD}")  # no overflow
        aggregate = f"{result} = {op} {shown} : {{ {', '.join(parts)} }}"
        if op == "sum" and level != self._sum_level:
            return f"{aggregate}, {result} < 50, -50 < {result}"
        return aggregate

    def _typed_aggregate(
        self, op: str, result: str, local: dict[str, list[str]], parts: list[str], bound: _Bound
    ) -> str | None:
        """Return an aggregate of any type."""
        fits = {
            "concat": lambda type_: type_ == "symbol",
            "mean": lambda type_: type_ in NUMERIC,
            "total": lambda type_: type_ in NUMERIC,
            "setof": lambda type_: f"set({type_})" in TYPED,
        }.get(op, lambda type_: True)
        targets = [(name, t) for t, names in local.items() if fits(t) for name in names]
        if not targets:
            return None
        target, type_ = self._random.choice(targets)
        types = {
            "count of": "number", "mean": "float", "total": "float", "setof": f"set({type_})",
        }  # fmt: skip
        bound.add(result, types.get(op, type_))
        return f"{result} = {op.removesuffix(' of')} {target} : {{ {', '.join(parts)} }}"

    def _typed_value(self, bound: _Bound, level: int) -> str | None:
        """Return a computation on any type; what it gives is one of finitely many values."""
        types = [type_ for type_, names in bound.names.items() if names]
        if not types:
            return None
        type_ = self._random.choice(types)
        known = bound.of(type_)
        x, y = self._random.choice(known), self._random.choice(known)
        name = self._variable()
        made: list[tuple[str, str]] = [(f"max({x}, {y})", type_), (f"min({x}, {y})", type_)]
        match type_:
            case "number":
                made += [
                    (f"{x} band 6", type_),
                    (f"{x} bxor 3", type_),
                    (f"to_float({x})", "float"),
                ]
                made += [(f"to_string({x})", "symbol"), ("range(0u, 3u)", "unsigned")]
            case "unsigned":
                made += [
                    (f"{x} band 6", type_),
                    (f"{x} bshr 1", type_),
                    (f"to_float({x})", "float"),
                ]
                made += [("range(1.0, 2.5, 0.5)", "float"), (f"{x} % 3", type_)]
            case "float" | "decimal(9,2)" | "decimal(18,4)":
                made += [(f"-{x}", type_)] * 2
            case "bool" | "date" | "timestamp":
                made += [(f"to_number({x})", "number"), (f"to_string({x})", "symbol")]
            case "symbol":
                numbers = bound.of("number")
                if numbers:
                    made += [(f"as([{self._random.choice(numbers)}, {x}], Pair)", "Pair")] * 3
            case "Pair" | "List" if self._chance(0.7):
                other = self._variable()
                second = "symbol" if type_ == "Pair" else "List"
                bound.add(name, "number")
                bound.add(other, second)
                return f"{x} = [{name}, {other}]"
        term, result = self._random.choice(made)
        bound.add(name, result)
        return f"{name} = {term}"

    def _fallible(self, bound: _Bound, level: int) -> str | None:
        """Return a condition that cannot be computed for some values. It binds nothing."""
        types = [type_ for type_, names in bound.names.items() if names]
        if not types:
            return None
        type_ = self._random.choice(types)
        known = bound.of(type_)
        x, y = self._random.choice(known), self._random.choice(known)
        match type_:
            case "number":
                terms = [f"6 / ({x} - {POISON}) != 3", f"6 % ({x} - {POISON}) < 4"]
                terms += [f"{x} + {y} < 100", f"2 * {x} != {y}", f"-{x} != 2", f"{x} ^ 3 != {y}"]
            case "unsigned":
                terms = [f"{x} + {y} != 3", f"2 * {x} != {y}", f"{x} - 0 != 3", f"3 - {x} != {y}"]
            case "decimal(9,2)" | "decimal(18,4)":
                terms = [f"{x} + {y} != 3", f"2 * {x} != {y}", f"{y} / 2 != {x}"]
            case "date" | "timestamp":
                terms = [f"{x} + 1 != {y}", f"{x} - 1 != {y}"]
            case "float":
                terms = [f"to_number({x}) != 3", f"to_unsigned({x} * {x}) != 3"]
            case _:
                return None
        return self._random.choice(terms)

    # --- epochs ---

    def _epochs(
        self, facts: Mapping[str, frozenset[Row]], program_facts: Mapping[str, list[Row]]
    ) -> Iterator[Epoch]:
        previous: Epoch = {}
        shape = self._shape
        current = {name: set(rows) for name, rows in facts.items()}
        count = self._between(shape.epochs)
        widens = self._random.randrange(1, count) if count > 1 and shape.widening else count
        for number in range(count):
            if number >= widens and self._chance(shape.widening):
                self._widen()
            epoch: Epoch = {}
            if number and self._chance(shape.flips):
                # What went comes back, what came goes.
                undone = {name: (list(d), list(i)) for name, (i, d) in previous.items()}
                for name, (adds, removes) in undone.items():
                    current[name] -= set(removes) - set(adds)
                    current[name] |= set(adds) - set(removes)
                previous = undone
                yield undone
                continue
            burst = bool(shape.bursts) and self._chance(shape.bursts)
            for declaration in self._declarations:
                # Derived relations change, too: any relation may be given.
                derived = self._levels[declaration.name] > 0
                if self._chance(0.75 if derived else 0.3):
                    continue
                here = current[declaration.name]
                present = sorted(here, key=repr)
                sizes = (0, 1, 2, 3) if not burst else (0, 0, 8, 14)
                inserts = [self._row(declaration) for _ in range(self._random.choice(sizes))]
                if shape.errors and declaration.types and self._chance(0.25):
                    inserts.append(self._poisoned(declaration))
                sizes = (0, 1, 2, 4) if not burst else (0, len(present), max(0, len(present) - 1))
                deletes = self._random.sample(
                    present, min(len(present), self._random.choice(sizes))
                )
                if present and self._chance(0.15):
                    inserts.append(self._random.choice(present))  # present already
                if self._chance(0.15):
                    deletes.append(self._row(declaration))  # perhaps absent, perhaps only derived
                fixed = program_facts[declaration.name]
                if fixed and self._chance(0.5):  # given from now on, or no more, or neither
                    self._random.choice((inserts, deletes)).append(self._random.choice(fixed))
                if inserts and self._chance(0.15):
                    inserts.append(self._random.choice(inserts))  # twice
                if inserts and self._chance(0.12):
                    deletes.append(self._random.choice(inserts))  # in and out: stays as it was
                if deletes and self._chance(0.08):
                    inserts.append(self._random.choice(deletes))
                if declaration.functional and self._chance(0.8):  # one value for each key
                    inserts = list({row[:-1]: row for row in inserts}.values())
                    keys = {row[:-1] for row in inserts}
                    deletes += [row for row in present if row[:-1] in keys and row not in inserts]
                epoch[declaration.name] = (inserts, deletes)
                added, removed = set(inserts), set(deletes)
                here -= removed - added
                here |= added - removed
            previous = epoch
            yield epoch

    def _poisoned(self, declaration: Declaration) -> Row:
        return tuple(
            POISON if type_ == "number" else self._value(type_) for type_ in declaration.types
        )

    def _widen(self) -> None:
        """Let numbers and symbols take values beyond all before."""
        step = self._random.choice((6, 10, 20, 31, 32, 45, 61, 62, 63))
        self._extend("number", (2**step - 1, -(2**step)))
        self._extend("symbol", (f"s{step}",))


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
    shape: Shape | Callable[[int], RandomCase] | None = None,
) -> None:
    """Run `check` on the case of every seed; it returns what is wrong with a case, or None.

    `shape` is what the cases look like, or a function that makes the case of a seed.
    The first failure is shrunk and raised with its seed, what is wrong, and the case itself.
    """

    def complaint(case: RandomCase) -> str | None:
        try:
            return check(case)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    for seed in seeds:
        case = shape(seed) if callable(shape) else random_case(seed, shape)
        if complaint(case) is not None:
            small = shrink(case, lambda candidate: complaint(candidate) is not None, attempts=600)
            raise AssertionError(
                f"seed {seed}: {complaint(small)}\n\n{small.describe()}"
                f"\n# run again: {again()}; the seed of the case is {seed}"
            )
