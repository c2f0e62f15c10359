"""The complement of a subset: right on random relations, in steps that follow what is missing."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.seeds import seeded
from tests.store.model import Driver, rows_of, words_of
from tests.store.test_relation_model import SHAPES, relation_of
from tidelog.kernel.marks import DEAD_NOW
from tidelog.store.complement import complement
from tidelog.store.relation import StoredRelation
from tidelog.store.versions import Version


def identity(relation: StoredRelation) -> tuple[int, ...]:
    return relation.primary.layout.order


@pytest.mark.parametrize("shape", SHAPES)
def test_random_subsets(shape: str) -> None:
    rng = seeded(f"complement {shape}")
    values = [list(column) for column in SHAPES[shape]]  # some share a list, and `widen` adds to it
    whole = Driver(rng, relation_of(values, counted=False, shared=False), values)
    most = 0
    for _ in range(60):
        for _ in range(3):
            rng.choice([whole.add, whole.add, whole.add, whole.set_marks])()
            if rng.random() < 0.5:
                whole.commit()
        whole.commit()
        rows = sorted(whole.model.shown(Version.NEW))
        # Some are there from the beginning, some come, and some go again: runs with dead rows.
        share = rng.choice([0.0, 0.02, 0.5, 0.98, 1.0])
        missing = {row for row in rows if rng.random() < share}
        part = Driver(rng, whole.relation.empty_copy(), values)
        first = [row for row in rows if rng.random() < 0.6]
        kept = [row for row in rows if row not in missing]
        added = [row for row in kept if row not in first]
        part.relation.replace(words_of(part.relation, first), None, None)
        part.relation.add(words_of(part.relation, added), None, None)
        gone = words_of(part.relation, [row for row in first if row in missing])
        part.relation.set_marks(gone, all_dead_now(gone.shape[1]))
        part.relation.commit()
        order = tuple(rng.sample(range(len(values)), len(values)))
        found = complement(whole.relation, order, part.relation, order)
        index = whole.relation.index(order)
        words = whole.relation.primary.repacked(found.rows, index.layout)
        assert sorted(rows_of(whole.relation, words)) == sorted(missing)
        most = max(most, len(missing))
    assert most > 10


def all_dead_now(n: int) -> NDArray[np.int32]:
    return np.full(n, DEAD_NOW, np.int32)


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("missing", [0, 1, 30])
def test_steps_follow_what_is_missing(size: int, missing: int) -> None:
    rng = seeded(f"complement {size} {missing}")
    whole = relation_of([list(range(size))], counted=False, shared=False)
    part = whole.empty_copy()
    lacking = set(rng.sample(range(size), missing))
    whole.replace(words_of(whole, [(i,) for i in range(size)]), None, None)
    part.replace(words_of(part, [(i,) for i in range(size) if i not in lacking]), None, None)
    found = complement(whole, identity(whole), part, identity(part))
    assert {row for (row,) in rows_of(whole, found.rows)} == lacking
    assert found.steps <= 1 + 2 * missing * (1 + log2(size))


@pytest.mark.parametrize("held", [[50, 51, 52], [50]])
def test_a_subset_that_is_none_is_refused_where_it_shows(held: list[int]) -> None:
    whole = relation_of([list(range(100))], counted=False, shared=False)
    part = whole.empty_copy()
    whole.replace(words_of(whole, [(i,) for i in held]), None, None)
    part.replace(words_of(part, [(1,), (2,)]), None, None)
    with pytest.raises(AssertionError, match="has rows that r lacks"):
        complement(whole, identity(whole), part, identity(part))
