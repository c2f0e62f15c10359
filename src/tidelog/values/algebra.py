"""The algebras of aggregates that are registered from Python.

An algebra says how values are combined, and so what must be stored to maintain the aggregate:

- in a *group* a value can be subtracted, so the sum of the values is enough;
- in a *semigroup* values can only be combined, in the order of their rows: a tree of partial
results;
- a *set function* is computed from the set of all values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.values.types import Type


@dataclass(frozen=True)
class Group:
    """Values that are added and subtracted, in any order."""

    add: Callable[[Any, Any], Any]
    negate: Callable[[Any], Any]
    zero: Any
    lift: Callable[[Any], Any] | None = None
    """Maps a value of the aggregated column to the type of the result; None for the identity."""


@dataclass(frozen=True)
class Semigroup:
    """Values that are combined in the order of the rows; `combine` is associative."""

    combine: Callable[[Any, Any], Any]
    lift: Callable[[Any], Any] | None = None
    """Maps a value of the aggregated column to the type of the result; None for the identity."""


@dataclass(frozen=True)
class SetFunction:
    """A function of the set of a group's values."""

    function: Callable[[frozenset[Any]], Any]


Algebra: TypeAlias = Group | Semigroup | SetFunction


@dataclass(frozen=True)
class UserAggregate:
    """An aggregate registered from Python: its name, its algebra and its types."""

    name: str
    algebra: Algebra
    takes: Type
    """The type of the values that are aggregated."""
    gives: Type
    """The type of the result."""
