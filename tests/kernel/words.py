"""Random sets of rows as words, and the same as plain tuples."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MOST = 2**63 - 1
LEAST = -(2**63)
EDGES = [LEAST, LEAST + 1, -(2**62), -(2**31), -2, -1, 0, 1, 2, 2**31, 2**62, MOST - 1, MOST]

Row = tuple[int, ...]


def random_word(rng: random.Random) -> int:
    """Return a word, often one at the ends of its range or one that was drawn before."""
    match rng.randrange(4):
        case 0:
            return rng.choice(EDGES)
        case 1:
            return rng.randint(LEAST, MOST)
        case _:
            return rng.randint(-3, 3)


def random_rows(rng: random.Random, words: int, size: int) -> list[Row]:
    """Return rows, some of them equal, many with equal first words."""
    return [tuple(random_word(rng) for _ in range(words)) for _ in range(size)]


def as_words(rows: Iterable[Row], words: int) -> NDArray[np.int64]:
    """Return rows as an array of shape (words, rows)."""
    listed = list(rows)
    return np.array(listed, np.int64).reshape(len(listed), words).T.copy()


def as_rows(words: NDArray[np.int64], n: int | None = None) -> list[Row]:
    """Return the first n rows of an array as tuples."""
    return [tuple(row) for row in words[:, :n].T.tolist()]
