"""The algebras of aggregates that are registered from Python.

An algebra says how values are put together, and so what has to be kept to follow a change:

- in a *group* a value can be taken away again, so the sum of a group's values is enough;
- in a *semigroup* values are only combined, in the order of their rows: a tree of partial results;
- a *set function* is computed from the set of all values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.values.types import Type


@dataclass(frozen=True)
class Group:
    """Values that are added and taken away, in any order."""

    add: Callable[[Any, Any], Any]
    negate: Callable[[Any], Any]
    zero: Any
    lift: Callable[[Any], Any] | None = None
    """From a value of the aggregated column to one of the result's type; None: the same value."""


@dataclass(frozen=True)
class Semigroup:
    """Values that are combined in the order of the aggregate's rows: `combine` is associative."""

    combine: Callable[[Any, Any], Any]
    lift: Callable[[Any], Any] | None = None
    """From a value of the aggregated column to one of the result's type; None: the same value."""


@dataclass(frozen=True)
class SetFunction:
    """A function of the set of a group's values."""

    function: Callable[[frozenset[Any]], Any]


Algebra: TypeAlias = Group | Semigroup | SetFunction


@dataclass(frozen=True)
class UserAggregate:
    """An aggregate that is registered from Python: its name, its algebra, and its types."""

    name: str
    algebra: Algebra
    takes: Type
    """The type of the values that are aggregated."""
    gives: Type
    """The type of the result."""
