"""Finding many rows in all runs of an order: run by run for rows of one word, else row by row."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.seeds import seeded
from tidelog.kernel import descriptors as kernel
from tidelog.kernel.marks import ALIVE
from tidelog.store.run import Run, descriptors_of

DEAD = 2**31 - 1


def random_run(rng: random.Random, size: int, low: int, high: int, words: int) -> Run:
    """Make a run in which some rows are dead; equal rows are in others, too."""
    rows = sorted({tuple(rng.randint(low, high) for _ in range(words)) for _ in range(size)})
    marks = [rng.choice((0, 0, 3, DEAD)) for _ in rows]
    counts = [rng.randint(1, 9) for _ in rows]
    return Run(
        np.array(rows, np.int64).T.copy().reshape(words, len(rows)),
        np.array(marks, np.int32) if rng.random() < 0.8 else None,
        np.array(counts, np.int32),
    )


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("sizes", [(9000, 5000, 40), (5000, 1), (300, 20, 2), (1,)])
def test_found_where_a_search_through_all_finds_it(sizes: tuple[int, ...], words: int) -> None:
    rng = seeded(f"find {sizes} {words}")
    # Few values, so that runs share rows; far apart, so that entries of directories have none;
    # close together at one end, so that some entries have very many; below 0 there are none.
    for low, high in ((0, 12_000), (0, 2**50), (2**50 - 20_000, 2**50), (-9000, 9000)):
        runs = [random_run(rng, size, low, high, words) for size in sizes]
        asked = [tuple(rng.randint(low - 3, high + 3) for _ in range(words)) for _ in range(300)]
        for run in runs:
            asked += [tuple(run.words[:, rng.randrange(len(run))].tolist()) for _ in range(300)]
        if rng.random() < 0.7:
            asked.sort()
        rows = np.array(asked, np.int64).T.copy().reshape(words, len(asked))
        found = np.empty((4, len(asked)), np.int64)
        kernel.find(descriptors_of(runs), words, ALIVE, rows, len(asked), found)
        assert found.T.tolist() == [list(place) for place in searched(runs, asked)]


def searched(runs: list[Run], asked: list[tuple[int, ...]]) -> list[tuple[int, int, int, int]]:
    """Return what `find` is to write."""
    places = [{tuple(row): at for at, row in enumerate(run.words.T.tolist())} for run in runs]
    result = []
    for row in asked:
        answer = (-1, -1, 0, 0)
        for number, run in enumerate(runs):
            at = places[number].get(row)
            mark = 0 if at is None or run.marks is None else int(run.marks[at])
            if at is not None and mark <= ALIVE:
                assert run.counts is not None
                answer = (number, at, mark, int(run.counts[at]))
                break
        result.append(answer)
    return result
