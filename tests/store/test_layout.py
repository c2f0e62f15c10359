"""Domains and layouts: which codes values get, and where they are in a row."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernel.words import EDGES, LEAST, MOST, as_rows
from tests.seeds import seeded
from tidelog.kernel import rows as kernel
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.layout import Layout

ordinals = st.one_of(
    st.integers(LEAST, MOST), st.sampled_from(EDGES), st.integers(-300, 300),
    st.integers(0, 62).map(lambda bit: 1 << bit), st.integers(0, 62).map(lambda bit: -(1 << bit)),
)  # fmt: skip


@given(st.lists(st.tuples(ordinals, ordinals).map(sorted), max_size=8))
def test_a_widened_domain_covers_what_it_was_widened_for(ranges: list[list[int]]) -> None:
    domain = Domain()
    seen = [0, 1]
    for low, high in ranges:
        bits, version, covered = domain.bits, domain.generation, domain.covers(low, high)
        assert domain.widen(low, high) == (not covered)
        seen += [low, high]
        assert all(domain.covers(ordinal, ordinal) for ordinal in seen)
        assert domain.covers(min(seen), max(seen))
        assert (
            (domain.bits, domain.generation) == (bits, version)
            if covered
            else (domain.bits > bits and domain.generation == version + 1)
        )
        # Codes fit, keep the order, and are not negative unless raw.
        codes = [ordinal - domain.bias for ordinal in sorted(seen)]
        assert codes == sorted(codes)
        if domain.is_raw:
            assert (domain.bias, domain.bits, domain.mask) == (0, RAW_BITS, -1)
        else:
            assert domain.bits <= 62
            assert all(code == code & domain.mask for code in codes)
        assert not domain.widen(low, high)


@given(ordinals)
def test_widening_by_one_value_at_a_time_happens_rarely(start: int) -> None:
    domain = Domain()
    for i in range(200):
        domain.widen(max(start - i, LEAST), min(start + i, MOST))
    assert domain.generation <= 14


@pytest.mark.parametrize("low", [LEAST, -(2**62), -1, 0])
@pytest.mark.parametrize("high", [1, 2**61 - 1, 2**61, 2**62, MOST])
def test_the_ends_of_what_is_packed(low: int, high: int) -> None:
    domain = Domain()
    domain.widen(low, high)
    assert domain.covers(low, high)
    if high - low >= 2**62:
        assert domain.is_raw
    assert repr(domain) == (
        "<Domain raw>" if domain.is_raw else f"<Domain {domain.bias} + {domain.bits} bits>"
    )


def random_domains(rng: random.Random) -> list[Domain]:
    domains = []
    for _ in range(rng.randint(1, 7)):
        domain = Domain()
        domain.bits = rng.choice([1, 2, 20, 21, 31, 32, 61, 62, RAW_BITS, rng.randint(1, 62)])
        domains.append(domain)
    return domains


def test_columns_never_overlap_nor_leave_their_word() -> None:
    rng = seeded("layout")
    for _ in range(500):
        domains = random_domains(rng)
        order = rng.sample(range(len(domains)), len(domains))
        layout = Layout(order, domains)
        taken = [0] * layout.words
        for column, domain in enumerate(domains):
            word, shift, mask = (int(v) for v in layout.by_column[column])
            assert mask == domain.mask
            bits = mask % 2**64 << shift
            assert taken[word] & bits == 0
            taken[word] += bits
            if domain.is_raw:
                assert shift == 0 and taken[word] == 2**64 - 1
            else:
                assert taken[word] < 2**63
        assert all(taken)
        # As few words as the order allows: no column would fit the word before it.
        for before, after in pairwise(order):
            if layout.by_column[before, 0] != layout.by_column[after, 0]:
                used = taken[layout.by_column[before, 0]].bit_length()
                assert used + domains[after].bits > 63


def test_levels_are_columns_in_sort_order() -> None:
    rng = seeded("levels")
    for _ in range(200):
        domains = random_domains(rng)
        order = rng.sample(range(len(domains)), len(domains))
        layout = Layout(order, domains)
        for level, column in enumerate(order):
            word, shift, mask, before, is_last = (int(v) for v in layout.by_depth[level])
            assert [word, shift, mask] == layout.by_column[column].tolist()
            assert is_last == (level == len(order) - 1)
            # Everything above this column in its word, the sign included.
            above = 0 if domains[column].is_raw else -1 << (shift + domains[column].bits)
            assert before == above


def test_comparing_words_compares_rows() -> None:
    rng = seeded("compare")
    for _ in range(100):
        domains = random_domains(rng)
        order = rng.sample(range(len(domains)), len(domains))
        layout = Layout(order, domains)
        codes = np.array(
            [
                [rng.choice([*EDGES, rng.randint(LEAST, MOST)]) & d.mask for _ in range(30)]
                for d in domains
            ],
            np.int64,
        )
        packed = np.empty((layout.words, 30), np.int64)
        kernel.pack(codes, 30, layout.by_column, packed)
        tuples = [tuple(codes[column, i].item() for column in order) for i in range(30)]
        words = as_rows(packed)
        for a, word_a in zip(tuples, words, strict=True):
            for b, word_b in zip(tuples, words, strict=True):
                assert (a < b, a == b) == (word_a < word_b, word_a == word_b)


def test_a_layout_knows_when_it_is_out_of_date() -> None:
    domains = [Domain(), Domain()]
    layout = Layout((1, 0), domains)
    assert layout.is_current(domains)
    domains[1].widen(0, 5)
    assert not layout.is_current(domains)
