"""The checked program: what every later layer reads.

`logic` turns a syntax tree into a `Program` in normal form. Compared with the text:

- every rule has one head and a conjunction as its body; disjunctions and several heads have become
  several rules, and negation stands on single atoms only;
- every term knows its type, and literals have become Python values of that type;
- `range(..)`, aggregates and lookups `price[i]` are no longer inside expressions: each is a literal
  of its own (`Generate`, `Reduce`, `Atom`) that binds a fresh variable;
- rules are grouped into strata, ordered so that negation and aggregation only read lower ones.

Everything is immutable.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tidelog.errors import UsageError, did_you_mean
from tidelog.source import Span
from tidelog.values.algebra import UserAggregate
from tidelog.values.types import Field, Row, Type

# --- terms ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """A variable of the rule. Names that start with `$` were made by normalisation."""

    name: str
    type: Type


@dataclass(frozen=True)
class Const:
    """A value known when the program is loaded."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Wildcard:
    """The `_` of an atom: any value. In an aggregate each one counts as a variable of its own."""

    type: Type


@dataclass(frozen=True)
class Apply:
    """A functor applied to terms, as in `add(x, 1)`. The types of `args` select its meaning."""

    op: str
    args: tuple[Term, ...]
    type: Type
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class MakeRecord:
    """A record `[a, b]`: built from bound terms, or taken apart to bind them."""

    args: tuple[Term, ...]
    type: Type


Term: TypeAlias = Var | Const | Wildcard | Apply | MakeRecord


# --- literals ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Atom:
    """`relation(args)`, or its absence when `negated`."""

    relation: str
    args: tuple[Term, ...]
    span: Span = field(compare=False, repr=False)
    negated: bool = False


class Comparison(enum.Enum):
    """The six comparisons; both sides have the same type."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True)
class Compare:
    """`left op right`. An equality with one unbound side binds it."""

    op: Comparison
    left: Term
    right: Term
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Test:
    """`match(pattern, text)` or `contains(part, text)`, or its negation."""

    name: str
    args: tuple[Term, ...]
    span: Span = field(compare=False, repr=False)
    negated: bool = False


@dataclass(frozen=True)
class Generate:
    """`target = range(start, stop[, step])`: one solution for each number of the range."""

    target: Term
    args: tuple[Term, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Reduce:
    """`result = op target : { body }`: an aggregate over the assignments of the body's variables.

    `group` names the variables that the body shares with the rest of the rule: they are bound
    before the aggregate is taken. `local` names the body's own variables, in order of their first
    occurrence.
    """

    result: Term
    op: str
    target: Term | None
    body: tuple[Literal, ...]
    group: tuple[str, ...]
    local: tuple[str, ...]
    span: Span = field(compare=False, repr=False)
    registered: UserAggregate | None = None
    """The aggregate registered from Python as `op` when the program was analysed, if any."""


Literal: TypeAlias = Atom | Compare | Test | Generate | Reduce


# --- rules and programs -----------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """`head :- body.` in normal form. `text` is the rule as the program wrote it, on one line."""

    id: int
    head: Atom
    body: tuple[Literal, ...]
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Fact:
    """A program fact: a row in the text of the program."""

    relation: str
    row: Row
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Relation:
    """A declared relation. In a functional one the last column is determined by the others."""

    name: str
    columns: tuple[Field, ...]
    functional: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def arity(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __str__(self) -> str:
        shown = [f"{c.name}: {c.declared}" for c in self.columns]
        if self.functional:
            return f"{self.name}[{', '.join(shown[:-1])}]: {self.columns[-1].declared}"
        return f"{self.name}({', '.join(shown)})"


class DirectiveKind(enum.Enum):
    """What a file directive asks `tidelog run` to do."""

    INPUT = "input"
    OUTPUT = "output"
    PRINTSIZE = "printsize"


@dataclass(frozen=True)
class Directive:
    """`.input`, `.output` or `.printsize` of one relation, with its parameters."""

    kind: DirectiveKind
    relation: str
    parameters: Mapping[str, str]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ViewOptions:
    """`.view name(..)`: how a view is to be maintained. None leaves the choice to the planner."""

    relation: str
    virtual: bool | None = None
    strategy: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Retain:
    """`.retain name(column, bound)`: rows that are older than the newest by more are deleted.

    The newest time is that of all given rows, those included that the epoch inserts.
    """

    relation: str
    column: int
    bound: dt.timedelta | int
    """A duration for a timestamp, whole days for a date, an integer for a number."""
    span: Span | None = field(default=None, compare=False, repr=False)

    def is_too_old(self, time: Any, newest: Any) -> bool:
        """Return whether a row with this time is not retained."""
        return bool(newest - time > self.bound)


@dataclass(frozen=True)
class ChoiceDomain:
    """`choice-domain`: no two rows agree in all columns of a key.

    The candidates are taken in order of their values, column by column. One is kept unless a kept
    row agrees with it in a key.
    """

    keys: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Subsumption:
    """`p(worse) <= p(better) :- body.`: a candidate is left out if there is a better one.

    Of two rows that are better than each other, the one with the smaller values is better. Each
    rule has the worse row as its head. The first two atoms of its body are the worse and the better
    row, with a variable in each column.
    """

    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Note:
    """A part of the program that Tidelog accepts and ignores, for `explain`."""

    message: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Stratum:
    """Relations that depend on each other, and the rules that derive them."""

    index: int
    relations: tuple[str, ...]
    rules: tuple[Rule, ...]
    recursive: bool


@dataclass(frozen=True)
class Program:
    """A checked program in normal form.

    `strata` covers every declared relation, lower strata first; a relation without rules is a
    stratum of its own without rules.
    """

    name: str
    text: str = field(repr=False)
    records: Mapping[str, tuple[Field, ...]]
    relations: Mapping[str, Relation]
    facts: tuple[Fact, ...]
    rules: tuple[Rule, ...]
    strata: tuple[Stratum, ...]
    directives: tuple[Directive, ...]
    views: Mapping[str, ViewOptions]
    notes: tuple[Note, ...] = ()
    retained: Mapping[str, Retain] = field(default_factory=dict)
    """The relations whose old rows are deleted."""
    pruned: Mapping[str, ChoiceDomain | Subsumption] = field(default_factory=dict)
    """The relations that keep only some of their candidates, and which (logic/pruning.py)."""

    @staticmethod
    def parse(text: str, name: str = "<program>") -> Program:
        """Return the checked program of `text`; raise ProgramError with every mistake found."""
        from tidelog.logic.analyse import analyse_text

        return analyse_text(text, name)

    @staticmethod
    def load(path: str | Path) -> Program:
        """Return the checked program of the file at `path`."""
        from tidelog.logic.analyse import analyse_file

        return analyse_file(Path(path))

    @staticmethod
    def of(program: str | Path | Program) -> Program:
        """Return the checked program of a text, of the file at a Path, or a Program as it is."""
        match program:
            case Program():
                return program
            case Path():
                return Program.load(program)
            case str():
                return Program.parse(program)
        raise UsageError(f"a program is text, a Path or a Program, not {type(program).__name__}")

    def relation(self, name: str) -> Relation:
        """Return the declaration of a relation; raise UsageError if there is none."""
        found = self.relations.get(name)
        if found is None:
            hint = did_you_mean(name, self.relations)
            raise UsageError(f"relation `{name}` is not declared" + (f"; {hint}" if hint else ""))
        return found

    def directives_of(self, kind: DirectiveKind) -> Iterator[Directive]:
        """Yield the directives of one kind, in program order."""
        return (d for d in self.directives if d.kind is kind)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the relations that `.input` names, once each."""
        return tuple(dict.fromkeys(d.relation for d in self.directives_of(DirectiveKind.INPUT)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the relations that `.output` names, once each."""
        return tuple(dict.fromkeys(d.relation for d in self.directives_of(DirectiveKind.OUTPUT)))

    @property
    def derived(self) -> frozenset[str]:
        """Return the names of the relations that some rule derives."""
        return frozenset(rule.head.relation for rule in self.rules)
