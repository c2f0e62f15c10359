"""Reading by address, and searching."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from tests.kernel.words import EDGES, random_rows
from tests.seeds import seeded
from tidelog.kernel.pointers import bits_of, float_of, load32, load64
from tidelog.kernel.search import count_before, gallop


@njit
def call_gallop(address, low, high, target):  # type: ignore[no-untyped-def]
    """Return the place, and what inlining has left of the arguments."""
    place = gallop(address, low, high, target)
    return place, low, high, target


@njit
def call_count(address, low, high, target):  # type: ignore[no-untyped-def]
    """Return the place, and what inlining has left of the arguments."""
    place = count_before(address, low, high, target)
    return place, low, high, target


@njit
def read64(address, position):  # type: ignore[no-untyped-def]
    return load64(address, position)


@njit
def read32(address, position):  # type: ignore[no-untyped-def]
    return load32(address, position)


@njit
def there_and_back(value):  # type: ignore[no-untyped-def]
    return float_of(bits_of(value))


def address_of(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@pytest.mark.parametrize("search", [call_gallop, call_count])
def test_searches_find_what_bisection_finds(search: Any) -> None:
    rng = seeded("searches")
    for size in (0, 1, 2, 3, 8, 31, 32, 33, 64, 100, 300):
        words = sorted(row[0] for row in random_rows(rng, 1, size))
        array = np.array(words, np.int64)
        targets = [*EDGES, *words, *(row[0] for row in random_rows(rng, 1, 5))]
        for _ in range(40):
            low = rng.randint(0, size)
            high = rng.randint(low, size)
            for target in targets:
                place, *arguments = search(address_of(array), low, high, target)
                assert place == max(low, min(bisect_left(words, target), high))
                assert arguments == [low, high, target]


@pytest.mark.parametrize("search", [call_gallop, call_count])
def test_every_distance(search: Any) -> None:
    size = 70
    array = np.arange(0, 2 * size, 2)
    for low in range(size + 1):
        for target in range(2 * low - 1, 2 * size + 1):
            place = search(address_of(array), low, size, target)[0]
            assert place == min(max(low, (target + 1) // 2), size)


def test_reading_by_address() -> None:
    array = np.array(EDGES, np.int64)
    assert [read64(address_of(array), i) for i in range(len(EDGES))] == EDGES
    marks = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    assert [read32(address_of(marks), i) for i in range(5)] == marks.tolist()


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("nan")])
def test_floats_and_their_bits(value: float) -> None:
    assert repr(there_and_back(value)) == repr(value)


@pytest.mark.parametrize("function", [read64, read32])
def test_addresses_are_integers(function: Any) -> None:
    with pytest.raises(TypingError, match="addresses and positions are integers"):
        function(1.5, 0)
