"""Arithmetic that overflows, against Python's, which does not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from numba import njit
from numba.core.errors import TypingError
from numpy import uint64

from tests.kernel.words import EDGES, LEAST, MOST, random_word
from tests.seeds import seeded
from tidelog.kernel import checked


@njit
def add(a, b):  # type: ignore[no-untyped-def]
    return checked.add(a, b)


@njit
def subtract(a, b):  # type: ignore[no-untyped-def]
    return checked.subtract(a, b)


@njit
def multiply(a, b):  # type: ignore[no-untyped-def]
    return checked.multiply(a, b)


@njit
def multiply_unsigned(a, b):  # type: ignore[no-untyped-def]
    return checked.multiply_unsigned(a, b)


@njit
def wrapped_add(a, b):  # type: ignore[no-untyped-def]
    return checked.wrapped_add(a, b)


def pairs() -> list[tuple[int, int]]:
    rng = seeded("checked")
    drawn = [(random_word(rng), random_word(rng)) for _ in range(2000)]
    narrow = [(a >> rng.randrange(64), b >> rng.randrange(64)) for a, b in drawn]
    return [(a, b) for a in EDGES for b in EDGES] + drawn + narrow


@pytest.mark.parametrize(
    ("function", "exact"),
    [(add, operator.add), (subtract, operator.sub), (multiply, operator.mul)],
    ids=["add", "subtract", "multiply"],
)
def test_signed(function: Any, exact: Callable[[int, int], int]) -> None:
    for a, b in pairs():
        result, overflowed = function(a, b)
        wide = exact(a, b)
        assert overflowed == (not LEAST <= wide <= MOST), (a, b)
        assert (result - wide) % 2**64 == 0


def test_unsigned() -> None:
    for a, b in pairs():
        x, y = a % 2**64, b % 2**64
        result, overflowed = multiply_unsigned(uint64(x), uint64(y))
        assert overflowed == (x * y >= 2**64), (x, y)
        assert (int(result) - x * y) % 2**64 == 0


def test_wrapping() -> None:
    for a, b in pairs():
        assert wrapped_add(a, b) == (a + b - LEAST) % 2**64 + LEAST


def test_signs_are_not_mixed() -> None:
    with pytest.raises(TypingError, match="expected int64, found uint64"):
        add(1, uint64(1))
    with pytest.raises(TypingError, match="expected uint64, found int64"):
        multiply_unsigned(1, 1)
