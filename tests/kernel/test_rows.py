"""The loops over sorted rows, against Python's sets and dictionaries."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tests.kernel.words import EDGES, Row, as_rows, as_words, random_rows
from tests.seeds import seeded
from tidelog.kernel import rows as kernel
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.sorting import sort_words, sorted_order

SIZES = [0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 300]
WORDS = [1, 2, 3]
NO_COUNTS = np.zeros(0, np.int64)
NO_LEVELS = np.zeros(0, np.int32)


def sorted_sets(rng: random.Random, words: int) -> list[Row]:
    return sorted(set(random_rows(rng, words, rng.choice(SIZES))))


# --- sorting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_rows_sort_as_tuples_do(words: int) -> None:
    rng = seeded(f"sort{words}")
    for size in SIZES * 5:
        drawn = random_rows(rng, words, size)
        array = as_words(drawn, words)
        order = sorted_order(array)
        assert sorted(order.tolist()) == list(range(size))
        assert as_rows(array[:, order]) == sorted(drawn)
        assert as_rows(sort_words(array.copy())) == sorted(drawn)


@pytest.mark.parametrize("words", [2, 3])
def test_ties_of_any_length_are_settled(words: int) -> None:
    rng = seeded(f"ties{words}")
    for size in (2, 3, 500, 4097):
        tail = [(7, *row) for row in random_rows(rng, words - 1, size)]
        for drawn in (tail, sorted(tail), sorted(tail, reverse=True), [tail[0]] * size):
            assert as_rows(sort_words(as_words(drawn, words))) == sorted(drawn)


# --- deduplication ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_become_one_and_their_weights_add_up(words: int, weighted: bool) -> None:
    rng = seeded(f"unique{words}{weighted}")
    for size in SIZES * 5:
        drawn = sorted(random_rows(rng, words, size))
        weights = [rng.randint(-5, 2**40) if weighted else 1 for _ in drawn]
        expected: Counter[Row] = Counter()
        for row, weight in zip(drawn, weights, strict=True):
            expected[row] += weight
        array = as_words(drawn, words)
        spare = np.full((words, 3), -9)  # what lies behind the n rows must not matter
        rows = np.concatenate([array, spare], axis=1)
        counts = np.zeros(size, np.int64)
        given = np.array(weights, np.int64)
        n = kernel.unique_sums(rows, size, given, weighted, counts)
        assert dict(zip(as_rows(rows, n), counts[:n].tolist(), strict=True)) == expected
        assert as_rows(rows, n) == sorted(expected)
        # The weights may be summed up in place.
        array, counts = as_words(drawn, words), given.copy()
        assert kernel.unique_sums(array, size, counts, weighted, counts) == n
        assert dict(zip(as_rows(array, n), counts[:n].tolist(), strict=True)) == expected


# --- what is there already --------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("leveled", [False, True])
def test_rows_that_a_run_holds_alive_are_removed(words: int, leveled: bool) -> None:
    rng = seeded(f"remove{words}{leveled}")
    for _ in range(60):
        held, drawn = sorted_sets(rng, words), sorted_sets(rng, words)
        levels = [rng.randint(0, 9) for _ in held]
        limit = rng.randint(-1, 9)
        alive = {r for r, lv in zip(held, levels, strict=True) if not leveled or lv <= limit}
        rows, counts = as_words(drawn, words), np.arange(len(drawn))
        marks = np.array(levels, np.int32) if leveled else NO_LEVELS
        n = kernel.remove_present(
            rows, counts, len(drawn), as_words(held, words), marks, leveled, limit
        )
        expected = [(r, i) for i, r in enumerate(drawn) if r not in alive]
        assert list(zip(as_rows(rows, n), counts[:n].tolist(), strict=True)) == expected


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("leveled", [False, True])
def test_rows_are_located_unless_dead(words: int, leveled: bool) -> None:
    rng = seeded(f"locate{words}{leveled}")
    for _ in range(60):
        held = sorted_sets(rng, words)
        wanted = sorted([*rng.sample(held, len(held) // 2), *random_rows(rng, words, 9)])
        levels = [rng.randint(0, 9) for _ in held]
        limit = rng.randint(-1, 9)
        marks = np.array(levels, np.int32) if leveled else NO_LEVELS
        positions = np.full(len(wanted), 99, np.int64)
        n = kernel.locate(
            as_words(held, words), marks, leveled, limit, as_words(wanted, words), len(wanted),
            positions,
        )  # fmt: skip
        place = {r: i for i, r in enumerate(held) if not leveled or levels[i] <= limit}
        expected = [place.get(row, -1) for row in wanted]
        assert positions.tolist() == expected
        assert n == sum(position >= 0 for position in expected)


@pytest.mark.parametrize("words", WORDS)
def test_galloping_over_any_distance(words: int) -> None:
    """Every jump from every place: steps of one, to the last row, just beyond powers of two."""
    for size in (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100):
        rows = [(0,) * (words - 1) + (2 * i,) for i in range(size)]
        run = as_words(rows, words)
        for start in range(-1, 2 * size):
            for stop in range(start, 2 * size + 1):
                keys = as_words([(0,) * (words - 1) + (k,) for k in (start, stop)], words)
                positions = np.empty(2, np.int64)
                kernel.locate(run, NO_LEVELS, False, 0, keys, 2, positions)
                expected = [
                    k // 2 if k % 2 == 0 and 0 <= k < 2 * size else -1 for k in (start, stop)
                ]
                assert positions.tolist() == expected


# --- merging ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_merged_sums_are_those_of_counters(words: int) -> None:
    rng = seeded(f"sums{words}")
    for _ in range(60):
        a, b = sorted_sets(rng, words), sorted_sets(rng, words)
        if rng.random() < 0.2:
            b = a
        counts_a = [rng.randint(-9, 2**40) for _ in a]
        counts_b = [rng.randint(-9, 2**40) for _ in b]
        expected = Counter(dict(zip(a, counts_a, strict=True)))
        for row, count in zip(b, counts_b, strict=True):
            expected[row] += count
        into = np.empty((words, len(a) + len(b)), np.int64)
        counts = np.empty(len(a) + len(b), np.int64)
        n = kernel.merge_sums(
            as_words(a, words), np.array(counts_a, np.int64), len(a),
            as_words(b, words), np.array(counts_b, np.int64), len(b), into, counts,
        )  # fmt: skip
        assert as_rows(into, n) == sorted(expected)
        assert dict(zip(as_rows(into, n), counts[:n].tolist(), strict=True)) == expected


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("leveled", [False, True])
@pytest.mark.parametrize("counted", [np.int32, np.int64, None])
def test_merged_runs_hold_what_is_alive_in_either(
    words: int, leveled: bool, counted: type[np.int32 | np.int64] | None
) -> None:
    rng = seeded(f"merge{words}{leveled}{counted}")
    limit = 5
    for _ in range(30):
        drawn = sorted_sets(rng, words)
        sides: list[list[Row]] = [[], []]
        levels: list[list[int]] = [[], []]
        for row in drawn:
            side = rng.randrange(2)
            sides[side].append(row)
            levels[side].append(rng.randint(0, 9) if leveled else 0)
            if levels[side][-1] > limit and rng.random() < 0.5:  # dead here, and there anew
                sides[1 - side].append(row)
                levels[1 - side].append(rng.randint(0, 9))
        dtype = counted or np.int32
        counts = [np.array([rng.randint(0, 99) for _ in side], dtype) for side in sides]
        size = len(sides[0]) + len(sides[1])
        into = np.empty((words, size), np.int64)
        into_levels = np.empty(size if leveled else 0, np.int32)
        into_counts = np.empty(size if counted else 0, dtype)
        marks = [np.array(side, np.int32) if leveled else NO_LEVELS for side in levels]
        given = counts if counted else [np.zeros(0, dtype)] * 2
        progress = np.zeros(4, np.int64)
        step = rng.randint(1, size + 1)
        for stop in (*range(0, size, step), size):  # in one go, or in several
            kernel.merge_runs(
                as_words(sides[0], words), marks[0], given[0],
                as_words(sides[1], words), marks[1], given[1],
                into, into_levels, into_counts, leveled, counted is not None, limit,
                progress, stop,
            )  # fmt: skip
        n = int(progress[kernel.WRITTEN])
        assert progress[kernel.FROM_A] + progress[kernel.FROM_B] == size
        expected = sorted(
            (row, level, count)
            for side in (0, 1)
            for row, level, count in zip(
                sides[side], levels[side], counts[side].tolist(), strict=True
            )
            if level <= limit
        )
        assert as_rows(into, n) == [row for row, _, _ in expected]
        if leveled:
            assert into_levels[:n].tolist() == [level for _, level, _ in expected]
        if counted:
            assert into_counts[:n].tolist() == [count for _, _, count in expected]


# --- layouts ----------------------------------------------------------------------------------

WIDTHS = [[], [1], [62], [64], [1, 2, 3], [31, 32], [31, 32, 1], [62, 1, 62], [64, 5, 64],
          [20, 64, 20, 20], [21, 21, 21, 21, 21, 21]]  # fmt: skip


def domains_of(widths: list[int]) -> list[Domain]:
    domains = []
    for bits in widths:
        domain = Domain()
        domain.bits = bits
        domains.append(domain)
    return domains


def random_codes(rng: random.Random, widths: list[int], n: int) -> np.ndarray:
    codes = np.empty((len(widths), n), np.int64)
    for column, bits in zip(codes, widths, strict=True):
        for i in range(n):
            if bits == 64:
                column[i] = rng.choice([*EDGES, rng.randint(EDGES[0], EDGES[-1])])
            else:
                top = 2**bits - 1
                column[i] = rng.choice([0, top, min(1, top), rng.randint(0, top)])
    return codes


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_packing_and_repacking_come_back(widths: list[int]) -> None:
    rng = seeded(f"pack{widths}")
    domains = domains_of(widths)
    identity = Layout(range(len(widths)), domains)
    for n in (0, 1, 2, 50):
        codes = random_codes(rng, widths, n)
        packed = np.full((identity.words, n), -1, np.int64)
        kernel.pack(codes, n, identity.by_column, packed)
        back = np.full_like(codes, -1)
        kernel.unpack(packed, n, identity.by_column, back)
        assert np.array_equal(back, codes)
        order = rng.sample(range(len(widths)), len(widths))
        other = Layout(order, domains)
        repacked = np.full((other.words, n), -1, np.int64)
        kernel.repack(packed, n, identity.by_column, other.by_column, repacked)
        direct = np.full((other.words, n), -1, np.int64)
        kernel.pack(codes, n, other.by_column, direct)
        assert np.array_equal(repacked, direct)
        # Rows sort as the tuples of codes in the order of the layout.
        tuples = [tuple(codes[c, i] for c in order) for i in range(n)]
        rows = as_rows(repacked)
        assert sorted(range(n), key=tuples.__getitem__) == sorted(range(n), key=rows.__getitem__)


@pytest.mark.parametrize("n", [0, 1, 50, 400])
def test_rows_that_were_seen_are_removed(n: int) -> None:
    rng = seeded(f"seen{n}")
    before = {rng.randrange(512) for _ in range(200)}
    seen = np.zeros(8, np.int64)
    kernel.see(as_words(sorted((key,) for key in before), 1), seen)
    rows = sorted({rng.randrange(512) for _ in range(n)})
    words = as_words([(key,) for key in rows], 1)
    counts = np.array(rows, np.int64) * 3
    left = kernel.remove_seen(words, counts, len(rows), seen)
    expected = [key for key in rows if key not in before]
    assert words[0, :left].tolist() == expected
    assert counts[:left].tolist() == [3 * key for key in expected]
