"""Sensitivity indexes: intervals that contain a value, against a list, over random epochs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seeds import seeded
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.run import Words
from tidelog.store.sensitivity import HIGHEST, LOWEST, SensitivityIndex

Row = tuple[int, ...]


def domain(most: int) -> Domain:
    found = Domain()
    if most > 2**62:
        found.bits = RAW_BITS
    else:
        found.widen(0, most)
    return found


def packed(index: SensitivityIndex, rows: list[Row]) -> Words:
    words = np.zeros((index.words, len(rows)), np.int64)
    for column, (word, shift, _) in enumerate(index.fields.tolist()):
        for i, row in enumerate(rows):
            words[word, i] += row[column] << shift
    return words


@pytest.mark.parametrize("keys", [0, 1, 2])
@pytest.mark.parametrize("most", [30, 5000, 2**63 - 1], ids=["few", "many", "raw"])
@pytest.mark.parametrize("size", [20, 3000])
def test_the_intervals_that_contain_a_value(keys: int, most: int, size: int) -> None:
    rng = seeded("sensitivity", keys, most, size)
    values = domain(most)
    index = SensitivityIndex("test", [domain(6)] * keys, values, [domain(40)])

    def row() -> Row:
        first, last = sorted(rng.randint(0, most) for _ in range(2))
        if rng.random() < 0.7:
            last = min(most, first + rng.randint(0, 1 + most // 50))
        if rng.random() < 0.05:
            last = HIGHEST if values.is_raw else values.mask
        return (*(rng.randrange(6) for _ in range(keys)), first, last, rng.randrange(40))

    held = {row() for _ in range(size)}
    index.load(packed(index, [*held, *sorted(held)[:5]]))
    for epoch in range(12):
        searches = [
            (*(rng.randrange(6) for _ in range(keys)), rng.randint(0, most)) for _ in range(5)
        ]
        expected = {
            found
            for found in held
            for key in searches
            if found[:keys] == key[:-1] and found[keys] <= key[-1] <= found[keys + 1]
        }
        columns = np.array(searches, np.int64).T.copy()
        matched = index.codes(index.containing(columns)).T.tolist()
        assert sorted(map(tuple, matched)) == sorted(expected)
        gone = [*rng.sample(sorted(held), len(held) // 8), row()]
        come = [*(row() for _ in range(size // 8)), *gone[:2], *sorted(held)[:2]]
        index.change(packed(index, gone), packed(index, come))
        if epoch % 3 == 1:
            index.abort()
        else:
            index.commit()
            held = (held - set(gone)) | set(come)
        index.check()
        assert len(index) == len(held)


def test_missing_ends_have_no_code() -> None:
    index = SensitivityIndex("test", [], domain(5), [])
    index.load(packed(index, [(0, 3), (2, index.fields.tolist()[1][2])]))
    assert index.rows().T.tolist() == [[LOWEST, 3], [2, HIGHEST]]
