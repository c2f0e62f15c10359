"""How much a run tries: a sample in `make test`, everything in `make test-long`.

That is for random input, and for files with many tests that take long. A file that says

    pytestmark = pytest.mark.sampled(3)

has three of its tests run, whichever the seed chooses. The seed is new with every commit
(tests/seeds.py), so samples add up over time. Whoever names a test, or chooses some by -k, gets
those.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from tests.seeds import seed_of

T = TypeVar("T")

LONG = bool(os.environ.get("TIDELOG_LONG"))


def sample(usual: T, whole: T) -> T:
    """Return the first, or the second in a long run."""
    return whole if LONG else usual


def until(enough: Callable[[], bool], least: int, most: int) -> Iterator[int]:
    """Yield numbers from 0: `least` of them, and more while it is not enough, `most` in all.

    For tests that must have seen something, whatever the seed.
    """
    for number in range(most):
        if number >= least and enough():
            return
        yield number


def in_sample(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that an ordinary run has, in the same order."""
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    left_out: set[str] = set()
    for file, own in by_file.items():
        mark = own[0].get_closest_marker("sampled")
        assert mark is not None
        shuffled = sorted(own, key=lambda item: item.nodeid)
        random.Random(seed_of("sample", file)).shuffle(shuffled)
        left_out |= {item.nodeid for item in shuffled[mark.args[0] :]}
    return [item for item in items if item.nodeid not in left_out]
