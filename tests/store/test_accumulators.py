"""Accumulators against a model of fractions: random epochs, committed and aborted."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.samples import until
from tests.seeds import seeded, seeded_arrays
from tidelog.kernel import accumulate, groups
from tidelog.store.accumulators import Accumulators, Operation, Sum
from tidelog.store.codec import float_ordinal, float_ordinals, float_value

Array = NDArray[np.int64]
Group = tuple[int, ...]
EDGES = [0.0, 5e-324, 2.0**-1022, 1.0, 2.0**53, 1.7976931348623157e308]


def random_float(rng: random.Random, special: float = 0.0) -> float:
    """Return a float of any size, often one at an edge or one that cancels others."""
    if rng.random() < special:
        return rng.choice([math.inf, -math.inf, math.nan])
    sign = rng.choice([-1.0, 1.0])
    match rng.randrange(4):
        case 0:
            return sign * rng.choice(EDGES)
        case 1:
            return sign * rng.random() * 10.0 ** rng.randint(-300, 300)
        case 2:
            bits = rng.getrandbits(52) | rng.randrange(2047) << 52
            return sign * float(struct.unpack("<d", struct.pack("<q", bits))[0])
        case _:
            return sign * rng.randint(0, 9) * 2.0 ** rng.randint(-80, 80)


def rounded(exact: Fraction) -> float:
    """Return the float nearest to a fraction."""
    try:
        return float(exact) + 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class Model:
    """The values of each group, one by one."""

    def __init__(self) -> None:
        self.groups: dict[Group, Counter[int]] = {}

    def change(self, group: Group, ordinal: int, by: int) -> None:
        values = self.groups.setdefault(group, Counter())
        values[ordinal] += by
        self.groups[group] = +values
        if not self.groups[group]:
            del self.groups[group]

    def sum_of_floats(self, group: Group) -> Sum:
        values = [float_value(o) for o in self.groups[group].elements()]
        special = (values.count(math.inf), values.count(-math.inf), sum(map(math.isnan, values)))
        exact = sum((Fraction(v) for v in values if math.isfinite(v)), Fraction(0))
        return Sum(len(values), exact, special)


def result_of(total: Sum, is_mean: bool) -> float:
    """Return what a sum is as a float."""
    plus, minus, nan = total.special
    if nan or (plus and minus):
        return math.nan
    if plus or minus:
        return math.inf if plus else -math.inf
    return rounded(total.exact / (total.support if is_mean else 1))


@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("key", [0, 1, 3])
def test_floats_in_random_epochs(key: int, is_mean: bool) -> None:
    rng = seeded(f"accumulators{key}{is_mean}")
    operation = Operation.float_sum(of_floats=True, mean=is_mean)
    sums, model = Accumulators(key, operation), Model()
    shown: dict[Group, int] = {}
    ended: Counter[str] = Counter()
    for epoch in range(240):
        growing = epoch % 120 < 70  # groups come, and then they go
        rows: list[tuple[Group, int]] = []
        gone: list[tuple[Group, int]] = []
        for _ in range(rng.choice([1, 1, 3, 40])):
            held = [(g, o) for g, values in model.groups.items() for o in values]
            if held and rng.random() < (0.3 if growing else 0.9):
                picked = rng.choice(held)
                if gone.count(picked) < model.groups[picked[0]][picked[1]]:
                    gone.append(picked)
            else:
                group = tuple(rng.choice([0, 1, -(2**63), 7 * i]) for i in range(key))
                rows.append((group, float_ordinal(random_float(rng, 0.02))))
        columns = np.array([[*g, o] for g, o in rows + gone], np.int64).reshape(-1, key + 1)
        deleted, inserted = sums.add(
            np.ascontiguousarray(columns.T), np.arange(key), key, len(rows)
        )
        if rng.random() < 0.3:
            sums.abort()
            ended["aborted"] += 1
        else:
            sums.commit()
            ended["committed"] += 1
            for group, ordinal in rows:
                model.change(group, ordinal, 1)
            for group, ordinal in gone:
                model.change(group, ordinal, -1)
            for *group, ordinal in deleted.T.tolist():
                assert shown.pop(tuple(group)) == ordinal
            for *group, ordinal in inserted.T.tolist():
                assert shown.setdefault(tuple(group), ordinal) is ordinal
        sums.check()
        expected = {group: model.sum_of_floats(group) for group in model.groups}
        assert sums.contents() == expected
        for group, total in expected.items():
            assert shown[group] == float_ordinal(result_of(total, is_mean)), total
        assert shown.keys() == expected.keys()
    assert min(ended.values()) > 10


def add(sums: Accumulators, groups: list[int], values: list[int], added: int) -> Array:
    """Add rows of one key column; return the result rows that come."""
    columns = np.array([groups, values], np.int64)
    return sums.add(columns, np.arange(1), 1, added)[1]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("scale", [1, 100, 10**18])
def test_means_of_whole_numbers_are_rounded_once(unsigned: bool, scale: int) -> None:
    rng = seeded(f"means{unsigned}{scale}")
    lowest, highest = -(2**63), 2**63 - 1
    for _ in range(500):
        operation = Operation.float_sum(of_floats=False, mean=True, unsigned=unsigned, scale=scale)
        edges = [lowest, highest, 0, rng.randint(-9, 9), rng.randint(lowest, highest)]
        if rng.random() < 0.5:  # near to where a sum is no float any more
            edges = [0, 1, -7, 2**52, 2**53 - 1, 1 - 2**53, rng.randint(-(2**53), 2**53)]
            edges = [edge + lowest for edge in edges if edge >= 0] if unsigned else edges
        values = [rng.choice(edges) for _ in range(rng.randint(1, 12))]
        come = add(Accumulators(1, operation), [0] * len(values), values, len(values))
        exact = sum(v + (2**63 if unsigned else 0) for v in values)
        assert float_value(int(come[1, 0])) == float(Fraction(exact, scale * len(values)))


@pytest.mark.parametrize(
    ("operation", "low", "high", "bias"),
    [
        (Operation.whole_sum(), -(2**63), 2**63 - 1, 0),
        (Operation.whole_sum(unsigned=True), 0, 2**64 - 1, 2**63),
        (Operation.whole_sum(most=10**18), 1 - 10**18, 10**18 - 1, 0),
    ],
)
def test_whole_sums_know_their_range(operation: Operation, low: int, high: int, bias: int) -> None:
    rng = seeded(f"whole{low}")
    sums = Accumulators(1, operation)
    held: list[int] = []
    inside = outside = 0
    fitted = True

    def is_enough() -> bool:
        return min(inside, outside) > 20

    for _ in until(is_enough, least=600, most=20_000):
        if held and rng.random() < 0.55:
            value = held.pop(rng.randrange(len(held)))
            add(sums, [5], [value - bias], 0)
        else:
            value = rng.choice([low, high, rng.randint(low, high), rng.randint(0, 3)])
            held.append(value)
            add(sums, [5], [value - bias], 1)
        overflowing = sums.touched_overflowing().T.tolist()
        gone, come = (keys.T.tolist() for keys in sums.failed())
        sums.commit()
        fits = not held or low <= sum(held) <= high
        inside, outside = inside + fits, outside + (not fits)
        assert overflowing == ([] if fits else [[5]])
        assert gone == ([[5]] if fits and not fitted else [])
        assert come == ([[5]] if fitted and not fits else [])
        fitted = fits
        if held:
            assert sums.contents()[(5,)].exact == sum(held)
            value = int(sums._heads[sums._slots(np.array([[5]]), np.arange(1))[0], 1 + 1])
            assert value == (sum(held) - bias if fits else 0)
    assert is_enough(), (inside, outside)


def test_more_groups_than_are_added_up_at_a_time() -> None:
    rng = seeded("parts")
    n, most = 30_000, 5 << accumulate.PART_SHIFT
    numbers = [rng.randrange(most) for _ in range(n)]
    values = [random_float(rng) for _ in range(n)]
    sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
    columns = np.array([numbers, float_ordinals(np.array(values)).tolist()], np.int64)
    _, come = sums.add(columns, np.arange(1), 1, n)
    sums.commit()
    sums.check()
    expected: dict[int, Fraction] = {}
    for number, value in zip(numbers, values, strict=True):
        expected[number] = expected.get(number, Fraction(0)) + Fraction(value)
    found = dict(zip(come[0].tolist(), come[1].tolist(), strict=True))
    assert found == {number: float_ordinal(rounded(exact)) for number, exact in expected.items()}
    gone, none = sums.add(columns, np.arange(1), 1, 0)
    assert none.shape[1] == 0
    assert dict(zip(gone[0].tolist(), gone[1].tolist(), strict=True)) == found
    sums.abort()
    sums.check()
    assert len(sums) == len(expected)
    sums.add(columns, np.arange(1), 1, 0)
    sums.commit()
    sums.check()
    assert len(sums) == 0


def test_a_million_changes_leave_what_fsum_gives() -> None:
    rng = seeded_arrays("a million changes")
    n, groups = 500_000, 100
    numbers = rng.integers(0, groups, n)
    values = rng.uniform(-1, 1, n) * 10.0 ** rng.integers(-300, 300, n)
    half = n // 2
    values[half : half + half // 2] = -values[: half // 2]  # pairs that cancel out
    numbers[half : half + half // 2] = numbers[: half // 2]
    columns = np.ascontiguousarray(np.vstack([numbers, float_ordinals(values)]))
    sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
    _, come = sums.add(columns, np.arange(1), 1, n)
    sums.commit()
    for number, ordinal in come.T.tolist():
        assert float_value(ordinal) == math.fsum(values[numbers == number])
    deleted = rng.permutation(n)[: n - 1000]
    kept = np.ones(n, np.bool_)
    for part in np.array_split(deleted, 50):
        kept[part] = False
        sums.add(np.ascontiguousarray(columns[:, part]), np.arange(1), 1, 0)
        sums.commit()
    sums.check()
    left = sums.contents()
    for number in range(groups):
        mine = values[kept & (numbers == number)]
        if len(mine):
            assert rounded(left[(number,)].exact) == math.fsum(mine)
        else:
            assert (number,) not in left


def test_a_small_group_takes_little_room() -> None:
    n = 100_000
    sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
    values = seeded_arrays("small groups").uniform(0, 1000, n)
    sums.add(np.vstack([np.arange(n), float_ordinals(values)]), np.arange(1), 1, n)
    sums.commit()
    assert sums.nbytes / n < 160


def test_blocks_are_used_again() -> None:
    """A group that changes for ever does not take more and more room."""
    sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
    wide = [float_ordinal(v) for v in (1e300, 1.0, 1e-300)]
    for _ in range(50):
        add(sums, [1, 1, 1], wide, 3)
        sums.commit()
        add(sums, [1, 1, 1], wide, 0)
        sums.abort()
        add(sums, [1, 1, 1], wide, 0)
        sums.commit()
    sums.check()
    assert sums._state[groups.WORDS_USED] <= 3 * accumulate.LARGEST_BLOCK


def damage(sums: Accumulators, how: str) -> None:
    width = sums._key
    match how:
        case "a group is lost":
            sums._table[np.flatnonzero(sums._table)[0]] = 0
        case "a group is still numbered":
            sums._heads[0, width + groups.NUMBER] = 3
        case "a block is in two groups":
            sums._heads[0, width + groups.BLOCK] = sums._heads[1, width + groups.BLOCK]
        case "a limb is zero":
            sums._words[sums._heads[0, width + groups.BLOCK]] = 0
        case "an epoch is open":
            sums._state[groups.TOUCHED] = 1
        case "limbs are left over":
            sums._limbs[0, 5] = 1


@pytest.mark.parametrize(
    "how",
    [
        "a group is lost", "a group is still numbered", "a block is in two groups",
        "a limb is zero", "an epoch is open", "limbs are left over",
    ],
)  # fmt: skip
def test_the_check_finds(how: str) -> None:
    sums = Accumulators(1, Operation.float_sum(of_floats=True, mean=False))
    add(sums, [1, 2, 3], [float_ordinal(0.1)] * 3, 3)
    sums.commit()
    sums.check()
    damage(sums, how)
    with pytest.raises(AssertionError):
        sums.check()
