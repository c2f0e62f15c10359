"""Lowered rules: atoms over slots, and the conditions between them.

A *slot* is a named place for one value: a variable of the rule, a constant (`#0`), or an
intermediate value (`%1`). Lowering (plan/lower.py) brings every rule of a checked program into this
form, which has no nested terms. Planning, joins and explanations read it; the reference engine
reads the program itself.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidelog.logic.program import Comparison
from tidelog.source import Span
from tidelog.values.types import Kind, Type


@dataclass(frozen=True)
class AtomUse:
    """`relation(args)` or `!relation(args)`. An argument is a slot, or None for any value."""

    relation: str
    args: tuple[str | None, ...]
    negated: bool = False

    @property
    def slots(self) -> frozenset[str]:
        """The slots among the arguments."""
        return frozenset(arg for arg in self.args if arg is not None)


@dataclass(frozen=True)
class FunctorCall:
    """A functor applied to slots; `types` are the types of the arguments."""

    op: str
    args: tuple[str, ...]
    types: tuple[Type, ...]
    type: Type
    fallible: bool
    external: bool
    """Whether Python computes it, on batches of rows (plan/externals.py)."""


@dataclass(frozen=True)
class Assign:
    """`into = value`: binds `into`, or tests the equality if `into` is bound already."""

    into: str
    value: str | FunctorCall

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
    """`[into..] = record`: false for nil. No slot of `into` is bound before."""

    record: str
    into: tuple[str, ...]
    type: Type

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset((self.record,))


@dataclass(frozen=True)
class Range:
    """`into = range(start, stop, step)`; without a step, from `start` towards `stop` by one."""

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
    """A condition that Python tests on batches of rows: `match`, `contains`, `<` of symbols."""

    op: str
    args: tuple[str, ...]
    types: tuple[Type, ...]
    negated: bool
    fallible: bool

    @property
    def inputs(self) -> frozenset[str]:
        """The slots that must have values."""
        return frozenset(self.args)


Condition: TypeAlias = Assign | Check | Unpack | Range | Filter


@dataclass(frozen=True)
class Constant:
    """A slot whose value is known."""

    value: Any
    type: Type


class OnFailure(enum.Enum):
    """What a rule does where a condition cannot be computed, and no other is false."""

    RAISE = "raise"
    """It is an error."""
    SKIP = "skip"
    """Nothing is derived. Another rule decides whether the failure is an error."""
    DERIVE = "derive"
    """The head is derived only if the body fails. It must not depend on the failed value."""


@dataclass(frozen=True)
class LoweredRule:
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
    on_failure: OnFailure = OnFailure.RAISE

    @property
    def reads(self) -> frozenset[str]:
        """The relations of its atoms."""
        return frozenset(atom.relation for atom in self.atoms)

    @property
    def positive(self) -> Iterator[tuple[int, AtomUse]]:
        """The positive atoms with their indexes in `atoms`."""
        return ((i, atom) for i, atom in enumerate(self.atoms) if not atom.negated)


def outputs(condition: Condition) -> Iterable[str]:
    """Return the slots that a condition can bind."""
    match condition:
        case Assign(into) | Range(into):
            return (into,)
        case Unpack(_, into):
            return into
        case _:
            return ()


def is_external(condition: Condition) -> bool:
    """Return whether Python computes a condition, between two joins."""
    match condition:
        case Assign(_, FunctorCall(external=external)):
            return external
        case Filter():
            return True
        case Range(type=type_):
            return type_.kind is not Kind.NUMBER
        case _:
            return False


def is_fallible(condition: Condition) -> bool:
    """Return whether a condition cannot be computed for some values."""
    match condition:
        case Assign(_, FunctorCall(fallible=fallible)) | Filter(fallible=fallible):
            return fallible
        case _:
            return False


def copied_columns(rule: LoweredRule) -> tuple[int, ...] | None:
    """Return the columns that a rule copies if it does nothing else, and so needs no join."""
    if len(rule.atoms) != 1 or rule.atoms[0].negated or rule.conditions or rule.constants:
        return None
    args = rule.atoms[0].args
    head = rule.head.args
    # Columns with the same slot have the same domain, and so the same codes.
    return tuple(map(args.index, head)) if set(head) <= set(args) else None
