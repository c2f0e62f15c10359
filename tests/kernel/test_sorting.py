"""Radix sort, and what the store sorts with, against Python's sort."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.words import EDGES, Row, as_rows, as_words, random_rows
from tests.seeds import seeded, seeded_arrays
from tidelog.kernel.sorting import MOST_DIGITS, sort_rows
from tidelog.store import sorting
from tidelog.store.sorting import sort_pieces, sort_words, sorted_order

measured = sorting.numpy_is_fast
SIZES = (1, 2, 300, 1499, 1500, 1501, 4097)


@pytest.fixture(autouse=True, params=["numpy", "radix"])
def faster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which sort is faster on this processor: both choices are tested on every one."""
    monkeypatch.setattr(sorting, "numpy_is_fast", lambda: request.param == "numpy")
    return str(request.param)


def radix_sorted(rows: list[Row], words: int, keys: int) -> list[Row]:
    array = as_words(rows, words)
    scratch = np.empty_like(array)
    in_scratch = sort_rows(array, scratch, keys, np.empty((2, MOST_DIGITS), np.int64))
    return as_rows(scratch if in_scratch else array)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_rows_sort_as_tuples_do(words: int) -> None:
    rng = seeded(f"radix{words}")
    for size in SIZES:
        narrow = [tuple(rng.randrange(-300, 300) for _ in range(words)) for _ in range(size)]
        for drawn in (random_rows(rng, words, size), narrow, sorted(narrow), narrow[:1] * size):
            assert radix_sorted(drawn, words, words) == sorted(drawn)
            assert as_rows(sort_words(as_words(drawn, words))) == sorted(drawn)
            assert as_rows(sort_pieces(as_words(drawn, words))) == sorted(drawn)
            array = as_words(drawn, words)
            assert as_rows(array[:, sorted_order(array)]) == sorted(drawn)


def test_the_whole_range_of_words() -> None:
    rng = seeded("radix edges")
    drawn = [(rng.choice(EDGES),) for _ in range(2000)]
    drawn += [(rng.randrange(-(2**63), 2**63),) for _ in range(2000)]
    assert radix_sorted(drawn, 1, 1) == sorted(drawn)


def test_large_arrays() -> None:
    rng = seeded_arrays("radix large")
    for low, high in ((0, 2**11), (0, 2**40), (-(2**63), 2**63 - 1)):
        drawn = rng.integers(low, high, (1, 150_000))
        drawn[0, :90_000] = drawn[0, 0]
        assert np.array_equal(sort_words(drawn.copy())[0], np.sort(drawn[0]))
        assert np.array_equal(sorted_order(drawn), np.argsort(drawn[0], kind="stable"))


def test_other_words_move_along_and_equal_rows_keep_their_order() -> None:
    rng = seeded("radix stable")
    drawn = [(rng.randrange(50), i) for i in range(3000)]
    assert radix_sorted(drawn, 2, 1) == sorted(drawn)
    assert radix_sorted(drawn[::-1], 2, 1) == sorted(drawn[::-1], key=lambda row: row[0])


def test_sorted_pieces() -> None:
    rng = seeded("pieces")
    for pieces in (1, 2, 8, 9, 40):
        drawn = [row for _ in range(pieces) for row in sorted(random_rows(rng, 1, 500))]
        assert as_rows(sort_pieces(as_words(drawn, 1))) == sorted(drawn)


def test_the_choice_is_made_once() -> None:
    assert isinstance(measured(), bool)
    assert measured() is measured()
