"""A plan: the steps of a join, in order, over slots and atoms.

kernel/program.py makes arrays of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.plan.body import Assign, AtomUse, Check, Count, Unpack


@dataclass(frozen=True)
class Leap:
    """Bind a slot to the values on which the atoms agree; each gives its next column."""

    slot: str
    atoms: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Seek:
    """Narrow an atom by columns whose values are known."""

    atom: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Scan:
    """Bind the remaining columns of an atom, row by row."""

    atom: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Compute:
    """Compute a value, or check a condition between values."""

    what: Assign | Check | Unpack
    binds: bool


@dataclass(frozen=True)
class Absent:
    """Go on only if a negated atom has no matching row."""

    atom: int


@dataclass(frozen=True)
class Iterate:
    """Bind a slot to the numbers of a range."""

    count: Count


Step: TypeAlias = Leap | Seek | Scan | Compute | Absent | Iterate


@dataclass(frozen=True)
class Plan:
    """The steps of one join; `orders` has each atom's columns in the order they are used."""

    atoms: tuple[AtomUse, ...]
    driver: int | None
    steps: tuple[Step, ...]
    orders: tuple[tuple[int, ...], ...]
    cost: float
