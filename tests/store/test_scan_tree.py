"""Scan trees: random changes against a sorted list, with an operation that is not commutative."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from math import log2

import pytest

from tests.seeds import seeded
from tidelog.store.scan_tree import NOTHING, TOP, Key, ScanTree

Matrix = tuple[int, int, int, int]
_PRIME = 10_007


class Product:
    """Products of 2x2 matrices: associative, not commutative. Counts its multiplications."""

    def __init__(self) -> None:
        self.calls = 0

    def _times(self, a: Matrix, b: Matrix) -> Matrix:
        self.calls += 1
        return (
            (a[0] * b[0] + a[1] * b[2]) % _PRIME, (a[0] * b[1] + a[1] * b[3]) % _PRIME,
            (a[2] * b[0] + a[3] * b[2]) % _PRIME, (a[2] * b[1] + a[3] * b[3]) % _PRIME,
        )  # fmt: skip

    def of_values(self, values: Sequence[Matrix]) -> Matrix:
        return reduce(self._times, values)

    def of_partials(self, partials: Sequence[Matrix]) -> Matrix:
        return reduce(self._times, partials)


class Concat:
    """Texts, joined."""

    of_values = of_partials = staticmethod("".join)


def random_matrix(rng: random.Random) -> Matrix:
    return (rng.randrange(9), rng.randrange(9), rng.randrange(9), rng.randrange(9))


def random_key(rng: random.Random, size: int) -> Key:
    return (rng.randrange(6), rng.randrange(size), rng.choice("abc"))


def random_bound(rng: random.Random, size: int) -> Key:
    key = random_key(rng, size)[: rng.randint(0, 3)]
    return (*key, TOP) if rng.random() < 0.5 else key


def expected(model: dict[Key, Matrix], low: Key, high: Key, scan: Product) -> object:
    values = [model[key] for key in sorted(model) if low <= key < high]
    return scan.of_values(values) if values else NOTHING


@pytest.mark.parametrize("size", [3, 40, 1000])
def test_random_changes(size: int) -> None:
    rng = seeded(f"scan tree {size}")
    tree, model, before = ScanTree(), dict[Key, Matrix](), dict[Key, Matrix]()
    scan, plain = Product(), Product()
    most = 0
    for _ in range(400):
        for _ in range(rng.randint(0, 2)):
            few = rng.choice([1, 3, 200])
            held = sorted(model)
            gone = rng.sample(held, min(len(held), rng.randint(0, few)))
            new = {random_key(rng, size): random_matrix(rng) for _ in range(rng.randint(0, few))}
            new = {key: value for key, value in new.items() if key not in model or key in gone}
            tree.change(new.items(), gone)
            model = {key: value for key, value in model.items() if key not in gone} | new
            for _ in range(3):
                low, high = random_bound(rng, size), random_bound(rng, size)
                assert tree.fold(low, high, scan) == expected(model, low, high, plain)
        tree.check()
        assert dict(tree) == model
        if rng.random() < 0.7:
            tree.commit()
            before = dict(model)
        else:
            tree.abort()
            model = dict(before)
        tree.check()
        assert dict(tree) == model
        assert tree.fold((), (TOP,), scan) == expected(model, (), (TOP,), plain)
        most = max(most, len(tree))
    assert most > 2 * min(size, 40), "the tree has stayed small"


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_change_costs_a_logarithm(size: int) -> None:
    rng = seeded(f"steps {size}")
    tree, scan = ScanTree(), Product()
    tree.change([((i,), random_matrix(rng)) for i in range(size)], [])
    tree.fold((), (TOP,), scan)
    present = set(range(size))
    most = 0
    for _ in range(200):
        at = rng.randrange(size)
        if at in present:
            tree.change([], [(at,)])
        else:
            tree.change([((at,), random_matrix(rng))], [])
        present ^= {at}
        scan.calls = 0
        tree.fold((), (TOP,), scan)
        most = max(most, scan.calls)
    assert most <= 7 * log2(size), most  # 16 for each level of up to 16 entries
    scan.calls = 0
    tree.fold((size // 3,), (2 * size // 3,), scan)
    assert scan.calls <= 14 * log2(size)


def test_the_order_of_rows_is_that_of_their_keys() -> None:
    rng = seeded("order")
    tree = ScanTree()
    letters = [((i,), chr(97 + i % 26)) for i in range(500)]
    rng.shuffle(letters)
    for start in range(0, 500, 7):
        tree.change(letters[start : start + 7], [])
    text = "".join(chr(97 + i % 26) for i in range(500))
    for _ in range(100):
        low, high = rng.randrange(500), rng.randrange(500)
        assert tree.fold((low,), (high,), Concat()) == (text[low:high] or NOTHING)


def test_a_group_that_nobody_asks_for_is_never_combined() -> None:
    tree, scan = ScanTree(), Product()
    tree.change([((g, i), (1, 1, 0, 1)) for g in range(50) for i in range(50)], [])
    assert tree.fold((7,), (7, TOP), scan) == (1, 50, 0, 1)
    assert scan.calls < 50 + 16, "other groups were combined, too"


def test_removing_what_is_not_here_changes_nothing() -> None:
    tree = ScanTree()
    tree.change([((1,), "a")], [])
    tree.commit()
    with pytest.raises(KeyError):
        tree.change([((3,), "c")], [(2,)])
    tree.abort()
    assert list(tree) == [((1,), "a")]
