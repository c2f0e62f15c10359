"""Rules as the kernel takes them: atoms over slots, and what is computed between them.

A *slot* is a named place for one value: a variable of the rule, a constant (`#0`), or a value on
the way. Lowering (plan/lower.py) turns every rule of a checked program into this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidelog.logic.program import Comparison
from tidelog.source import Span
from tidelog.values.types import Kind, Type


@dataclass(frozen=True)
class AtomUse:
    """`relation(args)` or its absence; an argument is a slot, or None for any value."""

    relation: str
    args: tuple[str | None, ...]
    negated: bool = False

    @property
    def slots(self) -> frozenset[str]:
        """The slots among the arguments."""
        return frozenset(arg for arg in self.args if arg is not None)


@dataclass(frozen=True)
class Apply:
    """A value computed from slots; `types` are those of the arguments."""

    op: str
    args: tuple[str, ...]
    types: tuple[Type, ...]
    type: Type
    fallible: bool
    external: bool
    """Computed by Python on a batch of rows, since it needs text or a table that grows."""


@dataclass(frozen=True)
class Assign:
    """`into = value`: a binding when `into` is new, a condition when it has a value already."""

    into: str
    value: str | Apply

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset((self.value,) if isinstance(self.value, str) else self.value.args)


@dataclass(frozen=True)
class Check:
    """`left op right` between two slots of one type."""

    op: Comparison
    left: str
    right: str
    type: Type

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset((self.left, self.right))


@dataclass(frozen=True)
class Unpack:
    """`[into..] = record`: false for nil. Every slot of `into` is new."""

    record: str
    into: tuple[str, ...]
    type: Type

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset((self.record,))


@dataclass(frozen=True)
class Count:
    """`into` runs from `start` to `stop` by `step`; without a step, towards `stop` by one."""

    into: str
    start: str
    stop: str
    step: str | None
    type: Type

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset(s for s in (self.start, self.stop, self.step) if s is not None)


@dataclass(frozen=True)
class Filter:
    """A condition that Python tests on a batch of rows: `match`, `contains`, symbols in order."""

    op: str
    args: tuple[str, ...]
    types: tuple[Type, ...]
    negated: bool
    fallible: bool

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset(self.args)


Condition: TypeAlias = Assign | Check | Unpack | Count | Filter


@dataclass(frozen=True)
class Constant:
    """A slot whose value is known."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Rule:
    """`head :- atoms, conditions`, over slots."""

    id: int
    head: AtomUse
    atoms: tuple[AtomUse, ...]
    conditions: tuple[Condition, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, Type]
    """The type of every slot."""
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def positive(self) -> Iterator[tuple[int, AtomUse]]:
        """The positive atoms and their places in the body."""
        return ((i, atom) for i, atom in enumerate(self.atoms) if not atom.negated)


def outputs(condition: Condition) -> Iterable[str]:
    """Return the slots that a condition can give values to."""
    match condition:
        case Assign(into) | Count(into):
            return (into,)
        case Unpack(_, into):
            return into
        case _:
            return ()


def is_external(condition: Condition) -> bool:
    """Return whether Python computes the condition, between two joins."""
    match condition:
        case Assign(_, Apply(external=external)):
            return external
        case Filter():
            return True
        case Count(type=type_):
            return type_.kind is not Kind.NUMBER
        case _:
            return False


def copied_columns(rule: Rule) -> tuple[int, ...] | None:
    """Return the columns that a rule copies, if that is all it does: no join is needed then."""
    if len(rule.atoms) != 1 or rule.atoms[0].negated or rule.conditions or rule.constants:
        return None
    args = rule.atoms[0].args
    head = rule.head.args
    # Columns with the same slot have the same domain, and so the same codes.
    return tuple(map(args.index, head)) if set(head) <= set(args) else None
