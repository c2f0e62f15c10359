"""A plan: the steps of a join, in the order in which they run.

The planner (plan/order.py) makes plans; join/program.py compiles them to arrays for the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, AtomUse, Check, Range, Unpack


@dataclass(frozen=True)
class Leap:
    """Bind a slot to each value that all of the atoms have in their next column."""

    slot: str
    atoms: tuple[int, ...]
    columns: tuple[int, ...]
    absent: tuple[int, ...] = ()
    """Negated atoms, whose last column must not have the value. Only traces have them here."""


@dataclass(frozen=True)
class Window:
    """Restrict a leap to the values that are `op` the value of a slot plus `offset`.

    Only traces have it, right before the leap. Other joins bound their atoms.
    """

    slot: str
    """The slot that the leap binds."""
    op: Comparison
    other: str
    offset: int


@dataclass(frozen=True)
class Seek:
    """Restrict an atom to the rows with the bound values in some columns."""

    atom: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Scan:
    """Bind the remaining columns of an atom, once for each of its rows."""

    atom: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Bound:
    """Restrict an atom to the rows whose next column is `op` the value of a slot plus `offset`."""

    atom: int
    column: int
    op: Comparison
    slot: str
    offset: int


@dataclass(frozen=True)
class Compute:
    """Compute a value and bind it, or test a condition."""

    what: Assign | Check | Unpack
    binds: bool


@dataclass(frozen=True)
class Absent:
    """Continue only if a negated atom has no matching row."""

    atom: int


@dataclass(frozen=True)
class Iterate:
    """Bind a slot to each number of a range."""

    count: Range


Step: TypeAlias = Leap | Window | Seek | Scan | Bound | Compute | Absent | Iterate


@dataclass(frozen=True)
class Plan:
    """The steps of one join.

    `driver` is the atom whose rows are given when the join runs, such as the changed rows of a
    relation. `orders` has the columns of each atom in the order in which the steps use them.
    """

    atoms: tuple[AtomUse, ...]
    driver: int | None
    steps: tuple[Step, ...]
    orders: tuple[tuple[int, ...], ...]
    cost: float
