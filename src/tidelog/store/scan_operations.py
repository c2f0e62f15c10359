"""The operations of scan trees: on the ordinals of one column, from left to right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

from tidelog.store.scan_tree import ScanOperation
from tidelog.values.algebra import Semigroup

Rope: TypeAlias = "str | tuple[Rope, ...]"


class RowCount(ScanOperation):
    """How many rows there are."""

    def of_values(self, values: Sequence[int]) -> int:
        """Return how many values there are."""
        return len(values)

    def of_partials(self, partials: Sequence[int]) -> int:
        """Add up."""
        return sum(partials)


class Extreme(ScanOperation):
    """The smallest or largest value, as (sort key, ordinal)."""

    def __init__(self, pick: Callable[..., Any], key: Callable[[int], Any]) -> None:
        self._pick, self._key = pick, key

    def of_values(self, values: Sequence[int]) -> tuple[Any, int]:
        """Return the extreme of ordinals."""
        key = self._key
        found: tuple[Any, int] = self._pick((key(value), value) for value in values)
        return found

    def of_partials(self, partials: Sequence[tuple[Any, int]]) -> tuple[Any, int]:
        """Return the extreme of extremes."""
        found: tuple[Any, int] = self._pick(partials)
        return found


class ExactSum(ScanOperation):
    """A sum without rounding, as (number of values, sum of the finite ones, the other ones)."""

    def __init__(self, decode: Callable[[int], Any]) -> None:
        self._decode = decode

    def of_values(self, values: Sequence[int]) -> tuple[int, Fraction, frozenset[float]]:
        """Add up values."""
        numbers = [self._decode(value) for value in values]
        special = frozenset(n for n in numbers if isinstance(n, float) and not math.isfinite(n))
        finite = (Fraction(n) for n in numbers if math.isfinite(n))
        return len(values), sum(finite, Fraction(0)), special

    def of_partials(
        self, partials: Sequence[tuple[int, Fraction, frozenset[float]]]
    ) -> tuple[int, Fraction, frozenset[float]]:
        """Add up sums."""
        counts, finite, special = zip(*partials, strict=True)
        return sum(counts), sum(finite, Fraction(0)), frozenset().union(*special)


class Concat(ScanOperation):
    """Text as a rope: leaves hold texts, and the nodes above only refer to their children."""

    def __init__(self, symbols: list[str]) -> None:
        self._symbols = symbols

    def of_values(self, values: Sequence[int]) -> Rope:
        """Join symbols."""
        return "".join([self._symbols[value] for value in values])

    def of_partials(self, partials: Sequence[Rope]) -> Rope:
        """Refer to the parts: nothing is copied."""
        return tuple(partials)


def text_of(rope: Rope) -> str:
    """Return the text of a rope: O(its length)."""
    return "".join(_pieces(rope))


def _pieces(rope: Rope) -> list[str]:
    """Return the texts of a rope, from left to right. It is no deeper than its tree."""
    if isinstance(rope, str):
        return [rope]
    return [piece for part in rope for piece in _pieces(part)]


class Combined(ScanOperation):
    """A semigroup that was registered from Python."""

    def __init__(self, algebra: Semigroup, decode: Callable[[int], Any]) -> None:
        self._combine, self._lift, self._decode = algebra.combine, algebra.lift, decode

    def of_values(self, values: Sequence[int]) -> Any:
        """Lift values and combine them."""
        lifted = map(self._decode, values)
        return reduce(self._combine, lifted if self._lift is None else map(self._lift, lifted))

    def of_partials(self, partials: Sequence[Any]) -> Any:
        """Combine results."""
        return reduce(self._combine, partials)
